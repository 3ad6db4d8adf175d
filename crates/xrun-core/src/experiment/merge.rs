//! Merging of layers, and the origin and the location of each value in them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Experiment;
use super::layers::Layer;
use super::read::DEFAULT;
use super::tree::{self, Entry, Tree};
use super::validate::join;
use crate::problem::{Location, Problem};

/// Merged layers.
pub struct Merged<'a> {
    pub layers: &'a [Layer],
    /// All values, without defaults.
    pub values: Value,
}

impl<'a> Merged<'a> {
    /// Merges layers in ascending precedence. `name` is the default of `experiment.name`.
    pub fn new(layers: &'a [Layer], name: Option<&str>) -> Self {
        let mut values = name.map_or_else(|| json!({}), |name| json!({ "experiment": { "name": name } }));
        layers.iter().for_each(|layer| merge(&mut values, tree::json(&layer.entries)));
        Self { layers, values }
    }

    /// The experiment with all values.
    ///
    /// # Errors
    /// Deserialisation fails although the schema is satisfied: a key is missing, or the settings type of another crate rejects
    /// a value.
    pub fn extract(&self) -> Result<Experiment, Problem> {
        serde_path_to_error::deserialize(&self.values).map_err(|error| {
            let key = Some(error.path().to_string()).filter(|key| key != ".").unwrap_or_default();
            let location = location(self.layers, &key);
            Problem::new(key, error.inner().to_string()).at(location)
        })
    }

    /// Layer that a value came from; `None` for a default.
    pub fn layer(&self, key: &str) -> Option<&'a Layer> {
        self.layers.iter().rev().find(|layer| tree::find(&layer.entries, key).is_some())
    }

    /// Origins of all values of an experiment, by dotted key.
    pub fn origins(&self, experiment: &Experiment) -> BTreeMap<String, String> {
        let mut origins = BTreeMap::new();
        let json = serde_json::to_value(experiment).unwrap_or_default();
        self.collect(&json, "", &mut origins);
        origins
    }

    fn collect(&self, json: &Value, path: &str, origins: &mut BTreeMap<String, String>) {
        match json {
            Value::Object(object) if path.is_empty() || !object.is_empty() => {
                for (key, part) in object {
                    self.collect(part, &join(path, key), origins);
                }
            }
            _ => {
                let origin = match self.layer(path) {
                    Some(layer) => {
                        let entry = tree::find(&layer.entries, path);
                        layer.origin(entry.map(|entry| &entry.key_location))
                    }
                    None => DEFAULT.into(),
                };
                origins.insert(path.to_owned(), origin);
            }
        }
    }
}

/// Sets later values. Tables are merged key by key.
fn merge(into: &mut Value, later: Value) {
    match (into, later) {
        (Value::Object(into), Value::Object(later)) => {
            later.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
        }
        (into, later) => *into = later,
    }
}

/// Location where a key was set last, or that of its section if it was not set.
pub fn location(layers: &[Layer], key: &str) -> Option<Location> {
    let mut key = key;
    while !key.is_empty() {
        if let Some(entry) = last(layers, key) {
            return Some(tree::location_of(entry).clone());
        }
        key = key.rsplit_once('.').map_or("", |(before, _)| before);
    }
    None
}

/// Location where exactly this key, or an entry of a list, was set last.
pub fn exact_location(layers: &[Layer], key: &str) -> Option<Location> {
    if let Some(entry) = last(layers, key) {
        return Some(tree::location_of(entry).clone());
    }
    // `pipeline.command.program.2` is the third entry of a list.
    let (list, at) = key.rsplit_once('.')?;
    let Tree::Array(nodes) = &last(layers, list)?.node.tree else { return None };
    Some(nodes.get(at.parse::<usize>().ok()?)?.location.clone())
}

/// Entry of a key in the last layer that sets it.
fn last<'a>(layers: &'a [Layer], key: &str) -> Option<&'a Entry> {
    layers.iter().rev().find_map(|layer| tree::find(&layer.entries, key))
}
