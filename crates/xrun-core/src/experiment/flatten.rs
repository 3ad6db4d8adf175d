//! One file from an experiment and the one that it extends, with the comments of both.

use serde_json::Value;
use toml_edit::{DocumentMut, Item, Table};

use super::schema;
use super::shape::{self, Shape};

/// Text of an experiment that needs no other file: `base` with the values of `above`, whose header it has. `None` if one of them is
/// not TOML.
pub fn flatten(base: &str, above: &str) -> Option<String> {
    let mut merged: DocumentMut = without_header(base).parse().ok()?;
    let above_document: DocumentMut = without_header(above).parse().ok()?;
    merge(merged.as_table_mut(), above_document.as_table(), schema::shared(), "");
    merged.remove("extends");
    Some(format!("{}\n{}\n", header(above).trim_end(), merged.to_string().trim()).replacen("\n[", "\n\n[", 1))
}

/// Comments at the beginning of a file.
pub fn header(text: &str) -> &str {
    let end: usize = text.split_inclusive('\n').take_while(|line| line.starts_with('#')).map(str::len).sum();
    &text[..end]
}

fn without_header(text: &str) -> &str {
    &text[header(text).len()..]
}

fn merge(base: &mut Table, above: &Table, schema: &Value, path: &str) {
    let part = if path.is_empty() { Some(schema) } else { shape::schema_at(schema, path) };
    // Another kind replaces the earlier one with all its keys.
    if matches!(part.map(shape::parse), Some(Shape::Table { kinds: true, .. })) {
        base.retain(|kind, _| above.contains_key(kind));
    }
    for (key, item) in above {
        let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        match (base.get_mut(key).and_then(Item::as_table_mut), item.as_table()) {
            (Some(inner), Some(table)) => merge(inner, table, schema, &path),
            _ => {
                base.insert(key, item.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_file_above_replace_those_of_the_base_and_kinds_replace_kinds() {
        let base = "#:schema a\n# Base.\n\n[experiment]\nseed = 1 # one\n\n[pipeline.dummy]\nsteps = 3\n\n[optimizer.sgd]\nmomentum = 0.5\n\
                    \n[limits]\nworkers = 2\n";
        let above = "#:schema a\n# Above.\n\nextends = \"base.toml\"\n\n[experiment]\nname = \"b\"\n\n[optimizer.adamw]\n\
                     learning_rate = 0.1\n\n[limits]\nworkers = 1 # few\n";
        let text = flatten(base, above).unwrap();
        let value: toml::Value = toml::from_str(&text).unwrap();
        let expected: toml::Value = toml::from_str(
            "experiment = { seed = 1, name = \"b\" }\npipeline = { dummy = { steps = 3 } }\n\
             optimizer = { adamw = { learning_rate = 0.1 } }\nlimits = { workers = 1 }",
        )
        .unwrap();
        assert_eq!(value, expected);
        assert!(
            text.starts_with("#:schema a\n# Above.\n") && text.contains("# one") && text.contains("# few"),
            "{text}"
        );
        assert!(!text.contains("# Base.") && !text.contains("extends"), "{text}");
    }
}
