//! A commented file to start from, written from the schema.

use serde_json::{Map, Value};

use super::pipeline::Pipeline;
use super::schema;
use super::shape::{self, Shape};
use crate::dataset::Dataset;
use crate::invocation;

/// Where editors look for the schema.
const SCHEMA: &str = "experiment.schema.json";
/// Comments are wrapped at this column.
const COLUMN_MAX: usize = 100;

/// A file for a kind of pipeline in which every key stands with its meaning and its default; `None` for a kind that
/// does not exist.
pub fn template(kind: &str) -> Option<String> {
    let pipeline = Pipeline::find(kind)?;
    let schema = schema::shared();
    let program = invocation::program();
    let mut text = format!(
        "#:schema {SCHEMA}\n\
         # `{program} schema > {SCHEMA}` beside this file lets editors complete it and check it.\n\
         # An experiment for {program}. `{program} check` says what is wrong with it, `{program}` runs it.\n\
         # A line that begins with `#` and a key shows the default. A key that has none is named with what it takes.\n",
    );
    let (models, datasets) = (pipeline.models(), pipeline.samples().map_or_else(Vec::new, Dataset::names_of));
    for (section, part) in properties(schema) {
        match section.as_str() {
            // For whole files, for trying the instrument, for many runs: not what a first file needs.
            "extends" | "leaks" | "sweep" | "launcher" => {}
            "pipeline" => kinds(&mut text, part, section, Some(kind), &[kind]),
            "model" => kinds(&mut text, part, section, models.first().copied(), models),
            "dataset" => kinds(&mut text, part, section, datasets.first().copied(), &datasets),
            _ => table(&mut text, part, section),
        }
    }
    Some(text)
}

/// What prints a file to start from: for the pipeline that was registered first.
pub fn command() -> String {
    format!("{} new {}", invocation::program(), Pipeline::names().next().unwrap_or("PIPELINE"))
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// A choice between kinds: the chosen one, and the names of the others.
fn kinds(text: &mut String, schema: &Value, path: &str, chosen: Option<&str>, possible: &[&str]) {
    let Some(chosen) = chosen else { return };
    let Some(part) = properties(schema).find(|(kind, _)| *kind == chosen).map(|(_, part)| part) else { return };
    table(text, part, &format!("{path}.{chosen}"));
    let others = properties(schema).filter(|(kind, _)| *kind != chosen && possible.contains(&kind.as_str()));
    for (kind, part) in others {
        comment(text, "#", &format!("Or in its place: {}", shape::meaning(part)));
        text.push_str(&format!("# [{path}.{kind}]\n"));
        if let Shape::Table { properties, .. } = shape::of(part) {
            properties.iter().for_each(|(key, part)| text.push_str(&format!("#   {}\n", key_and_value(key, part))));
        }
    }
}

/// `epochs = 1`, or what the key takes where nothing stands for it.
fn key_and_value(key: &str, schema: &Value) -> String {
    match (schema.get("default"), shape::of(schema)) {
        (_, Shape::Table { .. } | Shape::Free { .. }) => format!("[{key}], a table"),
        (Some(_), _) => format!("{key} = {}", shape::sample(schema)),
        (None, shape) => format!("{key}, not set: {}", shape.words()),
    }
}

fn table(text: &mut String, schema: &Value, path: &str) {
    let Shape::Table { properties, kinds: is_kinds } = shape::of(schema) else { return };
    if is_kinds {
        let names: Vec<&str> = properties.keys().map(String::as_str).collect();
        return kinds(text, schema, path, shape::default_kind(schema), &names);
    }
    text.push('\n');
    comment(text, "#", shape::meaning(schema));
    text.push_str(&format!("[{path}]\n"));
    values(text, properties);
    for (key, part) in properties {
        match shape::of(part) {
            Shape::Table { .. } => table(text, part, &format!("{path}.{key}")),
            Shape::Free { values, .. } => {
                text.push('\n');
                comment(text, "#", shape::meaning(part));
                text.push_str(&format!("# [{path}.{key}]\n#   name = {}\n", shape::sample(values)));
            }
            _ => {}
        }
    }
}

fn values(text: &mut String, properties: &Map<String, Value>) {
    for (key, part) in properties {
        if !matches!(shape::of(part), Shape::Table { .. } | Shape::Free { .. }) {
            comment(text, "#", shape::meaning(part));
            for word in shape::choices(part) {
                let meaning = if word.meaning.is_empty() { String::new() } else { format!(": {}", word.meaning) };
                comment(text, "#  ", &format!("{}{meaning}", shape::quoted(word.word)));
            }
            // What nothing works without is not left to a comment.
            match part.get("examples").and_then(|examples| examples.get(0)) {
                Some(example) => text.push_str(&format!("{key} = {}\n", shape::toml(example))),
                None => text.push_str(&format!("# {}\n", key_and_value(key, part))),
            }
        }
    }
}

/// Lines that begin so.
fn comment(text: &mut String, begin: &str, words: &str) {
    let mut line = String::from(begin);
    for word in words.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > COLUMN_MAX {
            text.push_str(&line);
            text.push('\n');
            line = String::from(begin);
        }
        line.push(' ');
        line.push_str(word);
    }
    if line.len() > begin.len() {
        text.push_str(&line);
        text.push('\n');
    }
}
