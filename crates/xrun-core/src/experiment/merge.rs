//! Merging of layers with the origin of each value, by Figment, and the locations of keys in the layers.

use std::collections::BTreeMap;

use figment::error::Kind;
use figment::providers::Serialized;
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider, Source};

use super::Experiment;
use super::layers::Layer;
use super::tree::join;
use super::tree::{self, Entry, Node, Tree};
use super::{schema, shape};
use crate::problem::{Location, Problem};

/// Origin of a value that no layer sets.
pub const DEFAULT: &str = "default";

/// A layer as a provider of Figment, identified by its index.
struct Numbered<'a> {
    number: usize,
    layer: &'a Layer,
}

impl Provider for Numbered<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::from(self.layer.source.name.clone(), Source::Custom(self.number.to_string()))
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        Ok(Map::from([(Profile::Default, dict(&self.layer.entries))]))
    }
}

fn dict(entries: &[Entry]) -> Dict {
    entries.iter().map(|entry| (entry.key.clone(), value(&entry.node))).collect()
}

fn value(node: &Node) -> Value {
    match &node.tree {
        Tree::Table(entries) => Value::from(dict(entries)),
        Tree::Array(list) => Value::from(list.iter().map(value).collect::<Vec<_>>()),
        Tree::Text(text) | Tree::Date(text) => Value::from(text.as_str()),
        Tree::Integer(number) => Value::from(*number),
        Tree::Float(number) => Value::from(*number),
        Tree::Boolean(truth) => Value::from(*truth),
    }
}

/// Line to write for a required key of the table `path`, and its description.
fn how_to_add(path: &str, name: &str) -> Option<String> {
    let part = shape::schema_at(schema::shared(), &join(path, name))?;
    let example = part.get("examples")?.get(0)?;
    Some(format!("add `{name} = {}`: {}", shape::toml(example), shape::description(part)))
}

/// Merged layers.
pub struct Merged<'a> {
    pub layers: &'a [Layer],
    figment: Figment,
}

impl<'a> Merged<'a> {
    /// Merges layers in ascending precedence. `name` is the default of `experiment.name`.
    pub fn new(layers: &'a [Layer], name: Option<&str>) -> Self {
        let mut figment = Figment::new();
        if let Some(name) = name {
            figment = figment.merge(Serialized::default("experiment.name", name));
        }
        for (number, layer) in layers.iter().enumerate() {
            figment = figment.merge(Numbered { number, layer });
        }
        Self { layers, figment }
    }

    /// The experiment with all values.
    ///
    /// # Errors
    /// Deserialisation fails although the schema is satisfied: a key is missing, or the settings type of another crate rejects
    /// a value.
    pub fn extract(&self) -> Result<Experiment, Problem> {
        self.figment.extract().map_err(|error| {
            let key = self.rejected_key().unwrap_or_else(|| error.path.join("."));
            let location = location(self.layers, &key);
            let problem = Problem::new(key.as_str(), error.kind.to_string()).at(location);
            match &error.kind {
                Kind::MissingField(name) => match how_to_add(&key, name) {
                    Some(help) => problem.help(help),
                    None => problem,
                },
                _ => problem,
            }
        })
    }

    /// Key that deserialisation rejects. Figment's own path ends at a kind, whose type is erased.
    fn rejected_key(&self) -> Option<String> {
        let error = serde_path_to_error::deserialize::<_, Experiment>(self.values()).err()?;
        Some(error.path().to_string()).filter(|key| key != ".")
    }

    /// Layer that a value came from; `None` for a default.
    pub fn layer(&self, key: &str) -> Option<&'a Layer> {
        let number: usize = self.figment.find_metadata(key)?.source.as_ref()?.custom()?.parse().ok()?;
        self.layers.get(number)
    }

    /// All values as JSON, without defaults.
    pub fn values(&self) -> serde_json::Value {
        self.figment.extract().unwrap_or_default()
    }

    /// Origins of all values of an experiment, by dotted key.
    pub fn origins(&self, experiment: &Experiment) -> BTreeMap<String, String> {
        let mut origins = BTreeMap::new();
        let json = serde_json::to_value(experiment).unwrap_or_default();
        self.collect(&json, "", &mut origins);
        origins
    }

    fn collect(&self, json: &serde_json::Value, path: &str, origins: &mut BTreeMap<String, String>) {
        match json {
            serde_json::Value::Object(object) if path.is_empty() || !object.is_empty() => {
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
