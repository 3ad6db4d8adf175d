//! Reading of an experiment file for a sweep: base experiment and axes, or all problems.

use std::path::Path;
use std::sync::Arc;

use super::axes::{Axis, SweptValue, axes};
use super::launcher::LauncherSettings;
use super::layers::Layer;
use super::merge;
use super::overrides_sweep::{VALUES, from_command_line};
use super::read::Loaded;
use super::sweep::Sweep;
use super::tree::{self, Entry, Node, Tree};
use super::validate_sweep::{insert, nest_dotted};
use super::{Experiment, schema, shape};
use crate::problem::{Location, Problem, Problems, Source};

/// Base experiment of a sweep with its axes.
pub struct SweepFile {
    /// The experiment without its sweep and its launcher.
    pub base: Experiment,
    /// Checked section `[sweep]`.
    pub sweep: Sweep,
    /// Swept keys in alphabetical order.
    pub axes: Vec<Axis>,
    /// Resources to request from a cluster.
    pub launcher: Option<LauncherSettings>,
    loaded: Loaded,
    /// Layers with the section, which `loaded` lacks.
    written: Vec<Layer>,
}

/// Reads and checks a file for a sweep. `command_line` has overrides, in which several values are swept.
///
/// # Errors
/// All problems of the base and of the values, with locations. [`SweepFile::trial`] finds those of single trials.
pub fn read(
    path: &Path,
    command_line: &[String],
    environment: impl Iterator<Item = (String, String)>,
) -> Result<SweepFile, Problems> {
    let mut loaded = Loaded::new(path, environment.collect(), |below, schema, problems| {
        from_command_line(command_line, below, schema, problems)
    });
    let (mut base, _) = loaded.check()?;
    let sweep = base.sweep.take().unwrap_or_default();
    let launcher = base.launcher.take();
    let written = loaded.layers.clone();
    let mut all: Vec<Axis> = Vec::new();
    for layer in &written {
        let values = tree::find(&layer.entries, &VALUES.join(".")).map(|entry| &entry.node.tree);
        let Some(Tree::Table(entries)) = values else { continue };
        let own = axes(entries, schema::shared());
        // A later layer replaces a key, and a table or the keys in it.
        all.retain(|before| !own.iter().any(|axis| overlap(&axis.key, &before.key)));
        all.extend(own);
    }
    all.sort_by(|a, b| a.key.cmp(&b.key));
    // A trial has no sweep and no launcher.
    for layer in &mut loaded.layers {
        layer.entries.retain(|entry| entry.key != VALUES[0] && entry.key != "launcher");
    }
    Ok(SweepFile { base, sweep, axes: all, launcher, loaded, written })
}

/// `true` if two dotted keys are the same, or one is in the table of the other.
fn overlap(one: &str, other: &str) -> bool {
    let is_within = |key: &str, table: &str| key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'));
    one == other || is_within(one, other) || is_within(other, one)
}

impl SweepFile {
    /// Location of a key of `[sweep]`, or else of the section.
    pub fn location(&self, key: &str) -> Option<Location> {
        merge::location(&self.written, &format!("{}.{key}", VALUES[0]))
    }

    /// Experiment of a trial, with a value for each axis.
    ///
    /// # Errors
    /// Problems of this trial, located at its values.
    pub fn trial(&self, values: &[SweptValue]) -> Result<Experiment, Vec<Problem>> {
        let mut entries: Vec<Entry> = Vec::new();
        for (axis, swept) in self.axes.iter().zip(values) {
            let node = Node { tree: tree_from_json(&swept.value, &swept.location), location: swept.location.clone() };
            let entry = Entry { key: axis.key.clone(), key_location: swept.location.clone(), node };
            insert(&mut entries, nest_dotted(entry));
        }
        let source = Arc::new(Source::new("sweep", ""));
        let experiment = self.loaded.with_layer(Layer { entries, source, directory: None })?;
        let json = serde_json::to_value(&experiment).unwrap_or_default();
        let unused = self.axes.iter().zip(values).filter(|(axis, _)| !kind_is_selected(&axis.key, &json));
        let problem = |(axis, swept): (&Axis, &SweptValue)| {
            let kind = axis.key.rsplit_once('.').map_or(axis.key.as_str(), |(table, _)| table);
            let message = format!("has no effect in a trial with another kind than `{kind}`");
            Problem::new(&axis.key, message).help("sweep keys of one kind only").at(Some(swept.location.clone()))
        };
        let problems: Vec<Problem> = unused.map(problem).collect();
        if problems.is_empty() { Ok(experiment) } else { Err(problems) }
    }
}

/// `true` if the experiment has the kinds in the path of a key.
fn kind_is_selected(key: &str, experiment: &serde_json::Value) -> bool {
    let (mut part, mut path) = (Some(schema::shared()), String::new());
    key.split('.').all(|name| {
        let choice = part.is_some_and(shape::is_kinds);
        part = part.and_then(|part| part.get("properties")?.get(name));
        path = format!("{path}/{name}");
        !choice || experiment.pointer(&path).is_some()
    })
}

fn tree_from_json(value: &serde_json::Value, location: &Location) -> Tree {
    use serde_json::Value;
    match value {
        Value::Bool(truth) => Tree::Boolean(*truth),
        Value::Number(number) => match number.as_i64() {
            Some(number) => Tree::Integer(number),
            None => Tree::Float(number.as_f64().unwrap_or_default()),
        },
        Value::Array(list) => Tree::Array(
            list.iter().map(|part| Node { tree: tree_from_json(part, location), location: location.clone() }).collect(),
        ),
        Value::String(text) => Tree::Text(text.clone()),
        // A kind with settings.
        Value::Object(table) => {
            let entry = |(key, part): (&String, &Value)| Entry {
                key: key.clone(),
                key_location: location.clone(),
                node: Node { tree: tree_from_json(part, location), location: location.clone() },
            };
            Tree::Table(table.iter().map(entry).collect())
        }
        // No key has the value null.
        Value::Null => Tree::Table(Vec::new()),
    }
}

/// Value as written after `key=` on the command line.
pub fn written(value: &serde_json::Value) -> String {
    shape::toml(value)
}

/// Human-readable value; a kind without settings is its name.
pub fn shown(value: &serde_json::Value) -> String {
    let kind = value.as_object().filter(|table| table.len() == 1).and_then(|table| table.iter().next());
    match kind {
        Some((name, values)) if values.as_object().is_some_and(serde_json::Map::is_empty) => name.clone(),
        _ => written(value),
    }
}
