//! Resolved experiment as TOML: every key with its value and origin.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value};

use super::tree::join;
use super::{Experiment, shape};

/// Column of the origins.
const ORIGIN_COLUMN: usize = 44;

/// Experiment as TOML that reads back as the same experiment, with the origin of each value as a comment.
pub fn to_toml(experiment: &Experiment, origins: Option<&BTreeMap<String, String>>) -> String {
    let mut text = String::new();
    // All map keys are strings, so serialising cannot fail.
    if let Ok(Value::Object(sections)) = serde_json::to_value(experiment) {
        table(&mut text, &sections, "", origins);
    }
    text
}

fn table(text: &mut String, keys: &Map<String, Value>, path: &str, origins: Option<&BTreeMap<String, String>>) {
    let (tables, values): (Vec<_>, Vec<_>) = keys.iter().partition(|(_, value)| value.is_object());
    let has_only_tables = values.is_empty() && !tables.is_empty();
    if !path.is_empty() && !has_only_tables {
        if !text.is_empty() {
            text.push('\n');
        }
        line(text, format!("[{path}]"), origins.and_then(|origins| origins.get(path)));
    }
    for (key, value) in values {
        let origin = origins.and_then(|origins| origins.get(&join(path, key)));
        line(text, format!("{key} = {}", shape::toml(value)), origin);
    }
    for (key, value) in tables {
        if let Value::Object(inner) = value {
            table(text, inner, &join(path, key), origins);
        }
    }
}

fn line(text: &mut String, content: String, origin: Option<&String>) {
    // Writing to a string cannot fail.
    let _ = match origin {
        Some(origin) => writeln!(text, "{content:<ORIGIN_COLUMN$} # {}", crate::printable::escape(origin)),
        None => writeln!(text, "{content}"),
    };
}

/// Values of nested tables by dotted key.
pub fn flat(table: &Value) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    flatten(table, "", &mut values);
    values
}

fn flatten(value: &Value, path: &str, into: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(keys) if !keys.is_empty() => {
            for (key, inner) in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(inner, &path, into);
            }
        }
        _ => {
            into.insert(path.to_owned(), value.clone());
        }
    }
}
