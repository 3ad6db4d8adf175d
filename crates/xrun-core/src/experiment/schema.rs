//! JSON Schema of an experiment: keys, types, ranges and defaults, generated from the Rust types.
//!
//! Editors complete from it, [`super::validate`] validates against it, and templates and the manual are generated from it.

use std::sync::LazyLock;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{Experiment, shape};

/// Schema of an experiment file for editors: JSON Schema draft 2020-12, without references. Each description ends with the
/// default, which editors do not show otherwise.
pub fn schema() -> Value {
    let mut schema = EXPERIMENT.clone();
    state_defaults(&mut schema);
    schema
}

/// Appends defaults to descriptions, except empty ones.
fn state_defaults(schema: &mut Value) {
    let default = match schema.get("default") {
        Some(Value::String(text)) if text.is_empty() => None,
        Some(Value::Array(list)) if list.is_empty() => None,
        Some(Value::Object(_)) => shape::default_kind(schema).map(|kind| format!("[{kind}]")),
        default => default.map(shape::toml),
    };
    if let (Some(default), Some(Value::String(text))) = (default, schema.get_mut("description")) {
        text.push_str(&format!(" Default: {default}."));
    }
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(Map::values_mut).for_each(state_defaults);
}

/// Schema without defaults in the descriptions; built once.
pub fn shared() -> &'static Value {
    &EXPERIMENT
}

static EXPERIMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut root = generate::<Experiment>(true);
    let extends = json!({
        "description": "Experiment files that this one extends, relative to this file. Later ones take precedence over \
                                earlier ones, and this file over all of them.",
        "anyOf": [
            { "type": "string", "minLength": 1 },
            { "type": "array", "items": { "type": "string", "minLength": 1 }, "minItems": 1, "maxItems": 16 }
        ]
    });
    if let Some(properties) = root.get_mut("properties").and_then(Value::as_object_mut) {
        properties.shift_insert(0, "extends".into(), extends);
    }
    without_pipeline_where_extended(&mut root);
    titled("experiment", "An xrun experiment", root)
});

/// Relaxes the required keys for files that extend others, because editors validate single files.
fn without_pipeline_where_extended(root: &mut Value) {
    let Some(object) = root.as_object_mut() else { return };
    let required = object.shift_remove("required").unwrap_or_else(|| json!([]));
    object.insert("anyOf".into(), json!([{ "required": required }, { "required": ["extends"] }]));
}

/// Required keys of a merged experiment.
pub fn required(root: &Value) -> impl Iterator<Item = &str> {
    let of_whole = root.get("anyOf").and_then(|choices| choices.get(0)?.get("required")?.as_array());
    of_whole.into_iter().flatten().filter_map(Value::as_str)
}

/// Schema of a type: of a TOML file for reading if `for_toml`, else of a JSON record as written.
pub fn generate<T: JsonSchema>(for_toml: bool) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let settings = if for_toml { settings } else { settings.for_serialize() };
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema, for_toml);
    schema
}

/// Adds `$schema`, `$id` and `title` at the start.
pub fn titled(name: &str, title: &str, schema: Value) -> Value {
    let mut root = Map::new();
    root.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    root.insert("$id".into(), format!("urn:xrun:schema:{name}").into());
    root.insert("title".into(), title.into());
    if let Value::Object(rest) = schema {
        rest.into_iter().for_each(|(key, value)| {
            root.entry(key).or_insert(value);
        });
    }
    Value::Object(root)
}

/// Unwraps the lines of doc comments, and removes formats of Rust's types and, as TOML has no null, its alternatives.
fn tidy(schema: &mut Value, for_toml: bool) {
    match schema {
        Value::Array(list) => list.iter_mut().for_each(|part| tidy(part, for_toml)),
        Value::Object(object) => {
            if for_toml {
                strip_null(object);
            }
            if let Some(Value::String(text)) = object.get_mut("description") {
                let paragraphs: Vec<String> = text.split("\n\n").map(|part| part.replace('\n', " ")).collect();
                *text = paragraphs.join("\n\n");
            }
            tidy_number(object);
            tidy_default(object);
            for (key, part) in object.iter_mut() {
                if key != "default" && key != "description" {
                    tidy(part, for_toml);
                }
            }
        }
        _ => {}
    }
}

fn strip_null(object: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".into(), only);
        }
    }
    let Some(Value::Array(choices)) = object.get_mut("anyOf") else { return };
    let before = choices.len();
    choices.retain(|choice| choice.get("type").and_then(Value::as_str) != Some("null"));
    if choices.len() == 1 && before == 2 {
        let only = choices.remove(0);
        object.shift_remove("anyOf");
        if let Value::Object(only) = only {
            only.into_iter().for_each(|(key, value)| {
                object.entry(key).or_insert(value);
            });
        }
        strip_null(object);
    }
}

fn tidy_number(object: &mut Map<String, Value>) {
    let format = object.get("format").and_then(Value::as_str).unwrap_or_default().to_owned();
    if format == "uint32" && !object.contains_key("maximum") {
        object.insert("maximum".into(), u32::MAX.into());
    }
    if format.starts_with("uint") || format.starts_with("int") || format == "double" || format == "float" {
        object.shift_remove("format");
    }
}

/// Removes defaults of sections, which follow from those of their keys; a choice keeps the name of its kind.
fn tidy_default(object: &mut Map<String, Value>) {
    let kinds = object.get("maxProperties").and_then(Value::as_u64) == Some(1);
    let default = match object.get("default") {
        Some(Value::Object(default)) if kinds => {
            default.keys().next().map(|kind| Value::Object(Map::from_iter([(kind.clone(), Map::new().into())])))
        }
        Some(Value::Object(_) | Value::Null) => None,
        Some(other) => Some(other.clone()),
        None => return,
    };
    match default {
        Some(default) => object.insert("default".into(), default),
        None => object.shift_remove("default"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'a>(schema: &'a Value, path: &str) -> &'a Value {
        path.split('.').fold(schema, |schema, key| &schema["properties"][key])
    }

    #[test]
    fn a_default_is_declared_once_and_shown_to_editors() {
        fn check(schema: &Value, path: &str) {
            for (key, part) in schema["properties"].as_object().into_iter().flatten() {
                let path = format!("{path}.{key}");
                let is_set = part.get("default").is_some_and(|default| *default != json!("") && *default != json!([]));
                assert!(!(is_set && shape::description(part).contains("Default: ")), "{path} repeats its default");
                check(part, &path);
            }
        }
        check(shared(), "");
        let stated = |path: &str| at(&schema(), path)["description"].as_str().unwrap().to_owned();
        assert!(stated("limits.frame_cache").ends_with(" Default: \"64 MiB\"."), "{}", stated("limits.frame_cache"));
        assert!(stated("optimizer").ends_with(" Default: [adamw]."));
        assert!(stated("experiment.name").ends_with(" Default: the file's name."));
        assert!(!stated("training.max_steps").contains("Default"));
    }
}
