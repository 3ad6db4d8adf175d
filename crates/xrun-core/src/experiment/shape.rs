//! What may stand at a key, and how is that said to a person?
//!
//! A view of the JSON Schema: the forms of it that the types make, and no others.

use serde_json::{Map, Value};

use super::pattern::{self, Pattern};
use super::schema::is_kinds;

/// What may stand at a key.
#[derive(Clone, Debug)]
pub enum Shape<'a> {
    /// A section; with `kinds`, a choice between tables.
    Table {
        /// Schemas by key.
        properties: &'a Map<String, Value>,
        /// Exactly one of the keys is written.
        kinds: bool,
    },
    /// A table whose keys the author names; each takes the same.
    Free {
        /// The schema of each value.
        values: &'a Value,
        /// The most keys.
        most: usize,
    },
    /// A list.
    Array {
        /// The schema of each item.
        items: &'a Value,
        /// The fewest items.
        least: usize,
        /// The most items.
        most: usize,
    },
    /// One of some words.
    Choice(Vec<Word<'a>>),
    /// Text.
    Text {
        /// The pattern that all of it must match.
        pattern: Option<&'static Pattern>,
        /// The fewest characters.
        least: usize,
        /// The most characters.
        most: usize,
    },
    /// A whole number.
    Integer {
        /// The least that is allowed.
        least: i64,
        /// The greatest that is allowed.
        most: i64,
    },
    /// A number.
    Number {
        /// The least that is allowed.
        least: f64,
        /// The greatest that is allowed.
        most: f64,
    },
    /// `true` or `false`.
    Boolean,
    /// Whatever is one value: text, a number, true or false.
    Scalar,
    /// A size, such as `"48 MiB"`.
    Bytes,
    /// A time, such as `"2 h"`.
    Span,
    /// One file name or a list of them (`extends`).
    Files,
    /// Swept keys, each with its values.
    SweptValues,
}

/// One of the words that may be written, and what it means.
#[derive(Clone, Copy, Debug)]
pub struct Word<'a> {
    /// As it is written.
    pub word: &'a str,
    /// Its description; may be empty.
    pub meaning: &'a str,
}

/// The description in a schema.
pub fn meaning(schema: &Value) -> &str {
    schema.get("description").and_then(Value::as_str).unwrap_or_default()
}

/// The kind that is chosen where the file chooses none.
pub fn default_kind(schema: &Value) -> Option<&str> {
    schema.get("default")?.as_object()?.keys().next().map(String::as_str)
}

/// Reads the shape from the schema of a key.
pub fn of(schema: &Value) -> Shape<'_> {
    let size = |key: &str, otherwise: usize| {
        schema.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()).unwrap_or(otherwise)
    };
    if let Some(words) = words(schema) {
        return Shape::Choice(words);
    }
    let choices = schema.get("anyOf").filter(|_| schema.get("properties").is_none());
    if let Some(choices) = choices.and_then(Value::as_array) {
        let is_bytes = choices.iter().any(|choice| choice.get("format").and_then(Value::as_str) == Some("bytes"));
        return if is_bytes { Shape::Bytes } else { Shape::Files };
    }
    if schema.get("type").is_some_and(Value::is_array) {
        return Shape::Scalar;
    }
    match schema.get("type").and_then(Value::as_str).unwrap_or_default() {
        "object" if schema.get("format").and_then(Value::as_str) == Some(super::sweep::FORMAT) => Shape::SweptValues,
        "object" => match schema.get("properties").and_then(Value::as_object) {
            Some(properties) => Shape::Table { properties, kinds: is_kinds(schema) },
            None if let Some(values) = of_every_key(schema) => {
                Shape::Free { values, most: size("maxProperties", usize::MAX) }
            }
            None => Shape::Table { properties: &NO_PROPERTIES, kinds: false },
        },
        "array" => Shape::Array {
            items: schema.get("items").unwrap_or(&Value::Null),
            least: size("minItems", 0),
            most: size("maxItems", usize::MAX),
        },
        "integer" => Shape::Integer {
            least: whole(schema.get("minimum")).unwrap_or(i64::MIN),
            most: whole(schema.get("maximum")).unwrap_or(i64::MAX),
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

/// A bound; one beyond what TOML can write is as good as none.
fn whole(bound: Option<&Value>) -> Option<i64> {
    let bound = bound?;
    bound.as_i64().or_else(|| bound.as_f64().map(|number| number as i64))
}

/// The words of an enum: `enum`, `const`, or a `oneOf` of them.
fn words(schema: &Value) -> Option<Vec<Word<'_>>> {
    if let Some(word) = schema.get("const").and_then(Value::as_str) {
        return Some(vec![Word { word, meaning: meaning(schema) }]);
    }
    if let Some(list) = schema.get("enum").and_then(Value::as_array) {
        return Some(list.iter().filter_map(Value::as_str).map(|word| Word { word, meaning: "" }).collect());
    }
    let parts = schema.get("oneOf").and_then(Value::as_array)?;
    Some(parts.iter().filter_map(words).flatten().collect())
}

/// The words that may stand at a key, or in its list.
pub fn choices(schema: &Value) -> Vec<Word<'_>> {
    match of(schema) {
        Shape::Choice(words) => words,
        Shape::Array { items, .. } => words(items).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// The schema at a path of keys.
pub fn at<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(schema, key_of)
}

/// The schema of a key in a table.
pub fn key_of<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    let named = schema.get("properties").and_then(|properties| properties.get(key));
    named.or_else(|| of_every_key(schema))
}

/// What every key takes of a table whose keys the author names.
fn of_every_key(schema: &Value) -> Option<&Value> {
    schema.get("additionalProperties").filter(|values| values.is_object())
}

/// Whether a key of such a table may be called so: it stands on the command line, and in variables of the environment.
pub fn is_free_name(name: &str) -> bool {
    let good = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    !name.is_empty() && name.len() <= FREE_NAME_MAX && name.chars().all(good)
}

const FREE_NAME_MAX: usize = 64;

/// Does this key take nothing but text?
pub fn wants_text(schema: &Value) -> bool {
    matches!(of(schema), Shape::Text { .. } | Shape::Choice(_) | Shape::Span | Shape::Files)
}

/// A number as a person writes it: `0.9999999` stays, `0.000000001` becomes `1e-9`.
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
    /// Completes "expected …".
    pub fn words(&self) -> String {
        match self {
            Self::Table { properties, kinds: true } => {
                format!("a table with one kind: {}", list(properties.keys().map(String::as_str), "or"))
            }
            Self::Table { .. } => "a table".into(),
            Self::Free { values, .. } => format!("a table of keys of your own, each with {}", of(values).words()),
            Self::Array { items, least, most } => {
                let count = match (*least, *most) {
                    (least, most) if least == most => format!("exactly {least} entries, each "),
                    (0, usize::MAX) => "entries that are each ".into(),
                    (0, most) => format!("at most {most} entries, each "),
                    (least, usize::MAX) => format!("at least {least} entries, each "),
                    (least, most) => format!("{least} to {most} entries, each "),
                };
                format!("an array of {count}{}", of(items).words())
            }
            Self::Choice(words) => list(words.iter().map(|word| word.word), "or").replace('`', "\""),
            Self::Text { pattern: Some(pattern), .. } => pattern.words.into(),
            Self::Text { least, most, .. } => {
                let least = (*least > 0).then(|| least.to_string());
                let most = (*most < usize::MAX).then(|| most.to_string());
                let range = range(least, most);
                if range.is_empty() { "text in quotes".into() } else { format!("text{range} characters") }
            }
            Self::Integer { .. } => format!("a whole number{}", self.range()),
            Self::Number { .. } => format!("a number{}", self.range()),
            Self::Boolean => "true or false".into(),
            Self::Scalar => "text, a number, true or false".into(),
            Self::Bytes => "a size such as \"300 MiB\" or an integer of bytes".into(),
            Self::Span => "a duration such as \"30 s\" or \"2h 30m\"".into(),
            Self::Files => "the name of an experiment file, or a list of them".into(),
            Self::SweptValues => "a table of keys, each with a list of values or a range".into(),
        }
    }

    /// ` from 1 to 64`, ` of at least 1`, or nothing.
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

    /// A value that may stand there, as TOML.
    pub fn example(&self) -> String {
        match self {
            Self::Table { .. } | Self::Free { .. } => "{}".into(),
            Self::Array { items, least, .. } => {
                format!("[{}]", vec![of(items).example(); (*least).clamp(1, 16)].join(", "))
            }
            Self::Choice(words) => quoted(words.first().map_or("", |word| word.word)),
            Self::Text { pattern, .. } => quoted(pattern.map_or("text", |pattern| pattern.example)),
            Self::Integer { least, most } => 100.clamp(*least, *most).to_string(),
            Self::Number { least, most } => as_float(1_f64.clamp(*least, *most)),
            Self::Boolean => "true".into(),
            Self::Scalar => "0.5".into(),
            Self::Bytes => "\"300 MiB\"".into(),
            Self::Span => "\"2h 30m\"".into(),
            Self::Files => "\"base.toml\"".into(),
            Self::SweptValues => "{ \"cleanup.every_steps\" = [0, 1, 10] }".into(),
        }
    }
}

/// A float as TOML: always with a point or an exponent.
pub fn as_float(value: f64) -> String {
    format!("{value:?}")
}

/// Text as a TOML string.
pub fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

/// A schema's default, or else an example, as TOML.
pub fn sample(schema: &Value) -> String {
    let default = schema.get("default").filter(|default| !default.is_object());
    match (default, of(schema)) {
        // A default that no one could write, such as the name that the file gives.
        (Some(Value::String(text)), shape @ Shape::Text { pattern: Some(pattern), .. }) if !pattern.matches(text) => {
            shape.example()
        }
        (Some(default), _) => toml(default),
        (None, shape) => shape.example(),
    }
}

/// A JSON value as TOML, without tables.
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

/// `` `a`, `b` or `c` ``.
pub fn list<'a>(names: impl Iterator<Item = &'a str>, word: &str) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [rest @ .., last] => format!("{} {word} {last}", rest.join(", ")),
    }
}
