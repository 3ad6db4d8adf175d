//! Shape of a key's value: a typed view of the JSON Schema, limited to the forms that the types generate.

use serde_json::{Map, Value};

use super::pattern::{self, Pattern};

/// Shape of a key's value.
#[derive(Clone, Debug)]
pub enum Shape<'a> {
    /// A table with fixed keys.
    Table {
        /// Schemas by key.
        properties: &'a Map<String, Value>,
        /// `true` for a choice between kinds: exactly one of the keys is present.
        kinds: bool,
    },
    /// A table with free keys whose values have the same shape.
    Map {
        /// Schema of each value.
        values: &'a Value,
        /// Maximum number of keys.
        most: usize,
    },
    /// A list.
    Array {
        /// Schema of each item.
        items: &'a Value,
        /// Minimum number of items.
        least: usize,
        /// Maximum number of items.
        most: usize,
    },
    /// One of several fixed texts.
    Choice(Vec<Choice<'a>>),
    /// Text.
    Text {
        /// Pattern that the whole text must match.
        pattern: Option<&'static Pattern>,
        /// Minimum number of characters.
        least: usize,
        /// Maximum number of characters.
        most: usize,
    },
    /// An integer.
    Integer {
        /// Smallest valid value.
        least: i64,
        /// Largest valid value.
        most: i64,
    },
    /// A number.
    Number {
        /// Smallest valid value.
        least: f64,
        /// Largest valid value.
        most: f64,
    },
    /// `true` or `false`.
    Boolean,
    /// A single value of any type: text, a number, true or false.
    Scalar,
    /// A size, such as `"48 MiB"`.
    Bytes,
    /// A duration, such as `"2 h"`.
    Span,
    /// One of several single values, such as an integer or text.
    Either(Vec<Self>),
    /// A file name or a list of them (`extends`).
    Files,
    /// A table of swept keys with their values.
    SweptValues,
}

/// One of the valid texts of a choice.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// Text in the file.
    pub value: &'a str,
    /// Description; may be empty.
    pub description: &'a str,
}

/// Description in a schema; may be empty.
pub fn description(schema: &Value) -> &str {
    schema.get("description").and_then(Value::as_str).unwrap_or_default()
}

/// Default kind of a choice between kinds.
pub fn default_kind(schema: &Value) -> Option<&str> {
    schema.get("default")?.as_object()?.keys().next().map(String::as_str)
}

/// `true` for the table of a choice between kinds.
pub fn is_kinds(schema: &Value) -> bool {
    schema.get("maxProperties").and_then(Value::as_u64) == Some(1)
}

/// Shape of a key with this schema.
pub fn parse(schema: &Value) -> Shape<'_> {
    let size = |key: &str, otherwise: usize| {
        schema.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()).unwrap_or(otherwise)
    };
    if let Some(words) = words(schema) {
        return Shape::Choice(words);
    }
    let choices = schema.get("anyOf").filter(|_| schema.get("properties").is_none());
    if let Some(choices) = choices.and_then(Value::as_array) {
        let is_bytes = choices.iter().any(|choice| choice.get("format").and_then(Value::as_str) == Some("bytes"));
        return match choices.iter().any(|choice| choice.get("type").and_then(Value::as_str) == Some("array")) {
            _ if is_bytes => Shape::Bytes,
            true => Shape::Files,
            false => Shape::Either(choices.iter().map(parse).collect()),
        };
    }
    if schema.get("type").is_some_and(Value::is_array) {
        return Shape::Scalar;
    }
    match schema.get("type").and_then(Value::as_str).unwrap_or_default() {
        "object" if schema.get("format").and_then(Value::as_str) == Some(super::sweep::FORMAT) => Shape::SweptValues,
        "object" => match schema.get("properties").and_then(Value::as_object) {
            Some(properties) => Shape::Table { properties, kinds: is_kinds(schema) },
            None if let Some(values) = values_of_free_keys(schema) => {
                Shape::Map { values, most: size("maxProperties", usize::MAX) }
            }
            None => Shape::Table { properties: &NO_PROPERTIES, kinds: false },
        },
        "array" => Shape::Array {
            items: schema.get("items").unwrap_or(&Value::Null),
            least: size("minItems", 0),
            most: size("maxItems", usize::MAX),
        },
        "integer" => Shape::Integer {
            least: integer_bound(schema.get("minimum")).unwrap_or(i64::MIN),
            most: integer_bound(schema.get("maximum")).unwrap_or(i64::MAX),
        },
        "number" => Shape::Number {
            least: schema.get("minimum").and_then(Value::as_f64).unwrap_or(f64::MIN),
            most: schema.get("maximum").and_then(Value::as_f64).unwrap_or(f64::MAX),
        },
        "boolean" => Shape::Boolean,
        _ if schema.get("format").and_then(Value::as_str) == Some("span") => Shape::Span,
        _ => Shape::Text {
            pattern: schema.get("pattern").and_then(Value::as_str).and_then(pattern::find),
            least: size("minLength", 0),
            most: size("maxLength", usize::MAX),
        },
    }
}

static NO_PROPERTIES: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

/// Bound of an integer, saturated to the range of TOML.
fn integer_bound(bound: Option<&Value>) -> Option<i64> {
    let bound = bound?;
    bound.as_i64().or_else(|| bound.as_f64().map(|number| number as i64))
}

/// Texts of an enum: `enum`, `const`, or a `oneOf` of them.
fn words(schema: &Value) -> Option<Vec<Choice<'_>>> {
    if let Some(word) = schema.get("const").and_then(Value::as_str) {
        return Some(vec![Choice { value: word, description: description(schema) }]);
    }
    if let Some(list) = schema.get("enum").and_then(Value::as_array) {
        return Some(list.iter().filter_map(Value::as_str).map(|value| Choice { value, description: "" }).collect());
    }
    let parts = schema.get("oneOf").and_then(Value::as_array)?;
    Some(parts.iter().filter_map(words).flatten().collect())
}

/// Valid texts of a key or of the items of its list; empty for other shapes.
pub fn choices(schema: &Value) -> Vec<Choice<'_>> {
    match parse(schema) {
        Shape::Choice(words) => words,
        Shape::Array { items, .. } => words(items).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Schema at a dotted path.
pub fn schema_at<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(schema, key_of)
}

/// Schema of a key in a table.
pub fn key_of<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    let named = schema.get("properties").and_then(|properties| properties.get(key));
    named.or_else(|| values_of_free_keys(schema))
}

/// Schema of the values of a table with free keys.
fn values_of_free_keys(schema: &Value) -> Option<&Value> {
    schema.get("additionalProperties").filter(|values| values.is_object())
}

/// `true` for a valid free key, which must be usable on the command line and in environment variables.
pub fn is_free_name(name: &str) -> bool {
    let is_valid = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    !name.is_empty() && name.len() <= FREE_NAME_MAX && name.chars().all(is_valid)
}

const FREE_NAME_MAX: usize = 64;

/// `true` if the key accepts only text.
pub fn wants_text(schema: &Value) -> bool {
    matches!(parse(schema), Shape::Text { .. } | Shape::Choice(_) | Shape::Span | Shape::Files)
}

/// Number in its shorter notation: `0.9999999`, but `1e-9`.
pub fn number(value: f64) -> String {
    let (text, short) = (format!("{value}"), format!("{value:e}"));
    if text.len() > 8 && short.len() < text.len() { short } else { text }
}

fn range(least: Option<String>, most: Option<String>) -> String {
    match (least, most) {
        (Some(least), Some(most)) => format!(" from {least} to {most}"),
        (Some(least), None) => format!(" of at least {least}"),
        (None, Some(most)) => format!(" of at most {most}"),
        (None, None) => String::new(),
    }
}

impl Shape<'_> {
    /// Description that completes "expected …".
    pub fn words(&self) -> String {
        match self {
            Self::Table { properties, kinds: true } => {
                format!("a table with one of {}", list(properties.keys().map(String::as_str), "or"))
            }
            Self::Table { .. } => "a table".into(),
            Self::Map { values, .. } => format!("a table of free keys, each with {}", parse(values).words()),
            Self::Array { items, least, most } => {
                let count = match (*least, *most) {
                    (least, most) if least == most => format!("exactly {least} entries, each "),
                    (0, usize::MAX) => "entries that are each ".into(),
                    (0, most) => format!("at most {most} entries, each "),
                    (least, usize::MAX) => format!("at least {least} entries, each "),
                    (least, most) => format!("{least} to {most} entries, each "),
                };
                format!("an array of {count}{}", parse(items).words())
            }
            Self::Choice(words) => list(words.iter().map(|word| word.value), "or").replace('`', "\""),
            Self::Text { pattern: Some(pattern), .. } => pattern.words.into(),
            Self::Text { least, most, .. } => {
                let least = (*least > 0).then(|| least.to_string());
                let most = (*most < usize::MAX).then(|| most.to_string());
                let range = range(least, most);
                if range.is_empty() { "text in quotes".into() } else { format!("text{range} characters") }
            }
            Self::Integer { .. } => format!("an integer{}", self.range()),
            Self::Number { .. } => format!("a number{}", self.range()),
            Self::Boolean => "true or false".into(),
            Self::Scalar => "text, a number, true or false".into(),
            Self::Bytes => "a size such as \"300 MiB\" or an integer of bytes".into(),
            Self::Span => "a duration such as \"30 s\" or \"2h 30m\"".into(),
            Self::Either(shapes) => shapes.iter().map(Self::words).collect::<Vec<_>>().join(", or "),
            Self::Files => "the path of an experiment file, or a list of them".into(),
            Self::SweptValues => "a table of keys, each with a list of values or a range".into(),
        }
    }

    /// Range as the end of a description: ` from 1 to 64`, ` of at least 1`, or empty.
    pub fn range(&self) -> String {
        match self {
            Self::Integer { least, most } => {
                range((*least > i64::MIN).then(|| least.to_string()), (*most < i64::MAX).then(|| most.to_string()))
            }
            Self::Number { least, most } => {
                range((*least > f64::MIN).then(|| number(*least)), (*most < f64::MAX).then(|| number(*most)))
            }
            _ => String::new(),
        }
    }

    /// A valid value as TOML.
    pub fn example(&self) -> String {
        match self {
            Self::Table { .. } | Self::Map { .. } => "{}".into(),
            Self::Array { items, least, .. } => {
                format!("[{}]", vec![parse(items).example(); (*least).clamp(1, 16)].join(", "))
            }
            Self::Choice(words) => quoted(words.first().map_or("", |word| word.value)),
            Self::Text { pattern, .. } => quoted(pattern.map_or("text", |pattern| pattern.example)),
            Self::Integer { least, most } => 100.clamp(*least, *most).to_string(),
            Self::Number { least, most } => as_float(1_f64.clamp(*least, *most)),
            Self::Boolean => "true".into(),
            Self::Scalar => "0.5".into(),
            Self::Bytes => "\"300 MiB\"".into(),
            Self::Span => "\"2h 30m\"".into(),
            Self::Either(shapes) => shapes.first().map(Self::example).unwrap_or_default(),
            Self::Files => "\"base.toml\"".into(),
            Self::SweptValues => "{ \"cleanup.every_steps\" = [0, 1, 10] }".into(),
        }
    }
}

/// Float as TOML, always with a point or an exponent.
pub fn as_float(value: f64) -> String {
    format!("{value:?}")
}

/// Text as a TOML string.
pub fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

/// Default of a schema as TOML, or else an example.
pub fn example(schema: &Value) -> String {
    let default = schema.get("default").filter(|default| !default.is_object());
    match (default, parse(schema)) {
        // A default that is not a valid value, such as an empty name.
        (Some(Value::String(text)), shape @ Shape::Text { pattern: Some(pattern), .. }) if !pattern.matches(text) => {
            shape.example()
        }
        (Some(default), _) => toml(default),
        (None, shape) => shape.example(),
    }
}

/// JSON value as inline TOML.
pub fn toml(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(list) => format!("[{}]", list.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Value::Object(table) if table.is_empty() => "{}".to_owned(),
        Value::Object(table) => {
            let entry = |(key, value): (&String, &Value)| format!("{key} = {}", toml(value));
            format!("{{ {} }}", table.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => as_float(float),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// Enumeration such as `` `a`, `b` or `c` ``.
pub fn list<'a>(names: impl Iterator<Item = &'a str>, conjunction: &str) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [rest @ .., last] => format!("{} {conjunction} {last}", rest.join(", ")),
    }
}
