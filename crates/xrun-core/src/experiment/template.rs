//! Generation of a commented experiment file from the schema.

use serde_json::{Map, Value};

use super::pipeline::{Model, Pipeline, PipelineFacts};
use super::schema;
use super::shape::{self, Shape};
use crate::dataset::Dataset;
use crate::invocation;
use crate::settings::backbone::{Backbone, BackboneUse};

/// File of the schema, which editors read.
const SCHEMA: &str = "experiment.schema.json";
/// Column at which comments are wrapped.
const COLUMN_MAX: usize = 100;

/// Experiment file for a kind of pipeline, with the description and default of every key; `None` for an unknown kind.
pub fn template(kind: &str) -> Option<String> {
    let pipeline = Pipeline::find(kind)?;
    let schema = schema::shared();
    let program = invocation::program();
    let mut text = format!(
        "#:schema {SCHEMA}\n\
         # `{program} generate schema > {SCHEMA}` in this directory enables completion and checks in editors.\n\
                  # An experiment for {program}: `{program} check FILE` checks it, `{program} FILE` runs it.\n\
                  # A key in a comment shows its default; a key without a default shows the values that it takes.\n",
    );
    let PipelineFacts { models, sample_type, .. } = pipeline.facts;
    let datasets = sample_type.map_or_else(Vec::new, Dataset::names_of);
    for (section, part) in properties(schema) {
        match section.as_str() {
            // Not needed in a first file.
            "extends" | "leaks" | "sweep" | "launcher" => {}
            "pipeline" => write_kinds(&mut text, part, section, Some(kind), &[kind]),
            "model" => write_kinds(&mut text, part, section, models.first().copied(), models),
            // Alternatives alone: only some models take one.
            "backbone" if takes_backbone(models) => write_kinds(&mut text, part, section, None, Backbone::KINDS),
            "backbone" => {}
            "dataset" => write_kinds(&mut text, part, section, datasets.first().copied(), &datasets),
            _ => write_table(&mut text, part, section),
        }
    }
    Some(text)
}

/// Command that prints a template for the first registered pipeline.
pub fn command() -> String {
    format!("{} new {}", invocation::program(), Pipeline::names().next().unwrap_or("PIPELINE"))
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// Returns whether one of these models takes a backbone.
fn takes_backbone(models: &[&str]) -> bool {
    models.iter().filter_map(|model| Model::find(model)).any(|model| model.facts != BackboneUse::None)
}

/// Writes a choice between kinds: the selected one in full, the alternatives as comments.
fn write_kinds(text: &mut String, schema: &Value, path: &str, selected: Option<&str>, possible: &[&str]) {
    if let Some((kind, part)) = properties(schema).find(|(kind, _)| Some(kind.as_str()) == selected) {
        write_table(text, part, &format!("{path}.{kind}"));
    }
    let is_other = |kind: &str| Some(kind) != selected && possible.contains(&kind);
    let others = properties(schema).filter(|(kind, _)| is_other(kind));
    let when = if selected.is_some() { "Alternatively" } else { "With a model that needs it" };
    for (kind, part) in others {
        write_comment(text, "#", &format!("{when}: {}", shape::description(part)));
        text.push_str(&format!("# [{path}.{kind}]\n"));
        if let Shape::Table { properties, .. } = shape::parse(part) {
            properties.iter().for_each(|(key, part)| text.push_str(&format!("#   {}\n", key_and_value(key, part))));
        }
    }
}

/// Line such as `epochs = 1`, or the description of the values of a key without a default.
fn key_and_value(key: &str, schema: &Value) -> String {
    match (schema.get("default"), shape::parse(schema)) {
        (_, Shape::Table { .. } | Shape::Map { .. }) => format!("[{key}], a table"),
        (Some(_), _) => format!("{key} = {}", shape::example(schema)),
        (None, shape) => format!("{key}, not set: {}", shape.words()),
    }
}

fn write_table(text: &mut String, schema: &Value, path: &str) {
    let Shape::Table { properties, kinds: is_kinds } = shape::parse(schema) else { return };
    if is_kinds {
        let names: Vec<&str> = properties.keys().map(String::as_str).collect();
        return write_kinds(text, schema, path, shape::default_kind(schema), &names);
    }
    text.push('\n');
    write_comment(text, "#", shape::description(schema));
    text.push_str(&format!("[{path}]\n"));
    write_values(text, properties);
    for (key, part) in properties {
        match shape::parse(part) {
            Shape::Table { .. } => write_table(text, part, &format!("{path}.{key}")),
            Shape::Map { values, .. } => {
                text.push('\n');
                write_comment(text, "#", shape::description(part));
                text.push_str(&format!("# [{path}.{key}]\n#   name = {}\n", shape::example(values)));
            }
            _ => {}
        }
    }
}

fn write_values(text: &mut String, properties: &Map<String, Value>) {
    for (key, part) in properties {
        if !matches!(shape::parse(part), Shape::Table { .. } | Shape::Map { .. }) {
            write_comment(text, "#", shape::description(part));
            for word in shape::choices(part) {
                let description =
                    if word.description.is_empty() { String::new() } else { format!(": {}", word.description) };
                write_comment(text, "#  ", &format!("{}{description}", shape::quoted(word.value)));
            }
            // Only required keys have `examples` in the schema; they are written uncommented.
            match part.get("examples").and_then(|examples| examples.get(0)) {
                Some(example) => text.push_str(&format!("{key} = {}\n", shape::toml(example))),
                None => text.push_str(&format!("# {}\n", key_and_value(key, part))),
            }
        }
    }
}

/// Writes a wrapped comment whose lines start with `begin`.
fn write_comment(text: &mut String, begin: &str, words: &str) {
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
