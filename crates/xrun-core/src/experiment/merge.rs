//! What comes out when all layers are put together, and which layer did each value come from? Figment does both.

use std::collections::BTreeMap;

use figment::providers::Serialized;
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider, Source};

use super::Experiment;
use super::layers::Layer;
use super::tree::{self, Entry, Node, Tree};
use super::walk::join;
use crate::problem::{Place, Problem};

/// A layer as Figment sees it: its values, marked with its number.
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

/// All layers, put together.
pub struct Merged<'a> {
    layers: &'a [Layer],
    figment: Figment,
}

impl<'a> Merged<'a> {
    /// Later layers win. `name` is the experiment's name where no layer gives one.
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

    /// The experiment with every value.
    ///
    /// # Errors
    /// What the types refuse and the schema let pass: what is missing, and what a kind of another crate refuses by itself.
    pub fn extract(&self) -> Result<Experiment, Problem> {
        self.figment.extract().map_err(|error| {
            let key = self.refused().unwrap_or_else(|| error.path.join("."));
            let place = self.place(&key);
            Problem::new(key, error.kind.to_string()).at(place)
        })
    }

    /// The key that the types refuse. Figment knows it only as far as the kind of another crate, whose type is known at run
    /// time only.
    fn refused(&self) -> Option<String> {
        let values: serde_json::Value = self.figment.extract().ok()?;
        let error = serde_path_to_error::deserialize::<_, Experiment>(values).err()?;
        Some(error.path().to_string()).filter(|key| key != ".")
    }

    /// The layer that a value came from; `None` for a default.
    pub fn layer(&self, key: &str) -> Option<&'a Layer> {
        let number: usize = self.figment.find_metadata(key)?.source.as_ref()?.custom()?.parse().ok()?;
        self.layers.get(number)
    }

    /// Where a key was set last; for one that was not set, the section that it would stand in.
    pub fn place(&self, key: &str) -> Option<Place> {
        let mut key = key;
        while !key.is_empty() {
            let set = self.layers.iter().rev().find_map(|layer| tree::find(&layer.entries, key));
            if let Some(entry) = set {
                return Some(tree::place_of(entry).clone());
            }
            key = key.rsplit_once('.').map_or("", |(before, _)| before);
        }
        None
    }

    /// Where exactly this key was set.
    pub fn exact_place(&self, key: &str) -> Option<Place> {
        let found = |key: &str| self.layers.iter().rev().find_map(|layer| tree::find(&layer.entries, key));
        if let Some(entry) = found(key) {
            return Some(tree::place_of(entry).clone());
        }
        // `pipeline.command.program.2` is the third word of a list.
        let (list, at) = key.rsplit_once('.')?;
        let Tree::Array(nodes) = &found(list)?.node.tree else { return None };
        Some(nodes.get(at.parse::<usize>().ok()?)?.place.clone())
    }

    /// The origin of every value of an experiment, by dotted key.
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
                        layer.origin(entry.map(|entry| &entry.key_place))
                    }
                    None => "default".into(),
                };
                origins.insert(path.to_owned(), origin);
            }
        }
    }

    /// All keys that are set anywhere, as one table; for what has to be seen as a whole.
    pub fn union(&self) -> Vec<Entry> {
        let mut all: Vec<Entry> = Vec::new();
        self.layers.iter().for_each(|layer| unite(&mut all, &layer.entries));
        all
    }
}

fn unite(all: &mut Vec<Entry>, more: &[Entry]) {
    for entry in more {
        match all.iter_mut().find(|before| before.key == entry.key) {
            Some(before) => match (&mut before.node.tree, &entry.node.tree) {
                (Tree::Table(inner), Tree::Table(more)) => unite(inner, more),
                _ => *before = entry.clone(),
            },
            None => all.push(entry.clone()),
        }
    }
}
