//! Validation of `[sweep.values]`: each key must be one of the experiment, and each value valid for its key.

use serde_json::Value;

use super::axes::{AxisRange, VALUES_MAX};
use super::overrides_sweep::VALUES;
use super::shape::{self, Shape};
use super::tree::join;
use super::tree::{Entry, Node, Tree};
use super::validate::{Validator, found};
use crate::problem::Problem;

/// Keys that cannot be swept.
const FIXED: [&str; 5] = ["extends", "sweep", "launcher", "experiment.name", "experiment.description"];

/// Maximum number of swept keys.
const KEYS_MAX: usize = 1000;
/// Maximum number of parts of a dotted key.
const PARTS_MAX: usize = 16;

/// Moves keys of the experiment from `[sweep]` into `[sweep.values]`. Unknown keys stay, to be reported.
pub fn collect_swept_keys(entries: &mut [Entry], schema: &Value) {
    let Some(own) = shape::schema_at(schema, VALUES[0]).and_then(|sweep| sweep.get("properties")) else { return };
    let section = entries.iter_mut().find(|entry| entry.key == VALUES[0]);
    let Some(Tree::Table(section)) = section.map(|entry| &mut entry.node.tree) else { return };
    let is_swept = |key: &str| own.get(key).is_none() && (key.contains('.') || schema["properties"].get(key).is_some());
    let (swept, mut rest): (Vec<Entry>, Vec<Entry>) =
        std::mem::take(section).into_iter().partition(|entry| is_swept(&entry.key));
    match rest.iter_mut().find(|entry| entry.key == VALUES[1]).map(|entry| &mut entry.node.tree) {
        Some(Tree::Table(values)) => values.extend(swept),
        // `values` is not a table, which validation reports.
        Some(_) => {}
        None => rest.extend(swept.first().map(|first| first.key_location.clone()).map(|location| Entry {
            key: VALUES[1].to_owned(),
            key_location: location.clone(),
            node: Node { tree: Tree::Table(swept), location },
        })),
    }
    *section = rest;
}

impl Validator<'_> {
    /// Validates swept keys and removes invalid ones. Dotted keys in quotes become nested tables.
    pub(super) fn swept(&mut self, entries: &mut Vec<Entry>, path: &str) {
        let mut nested = Vec::new();
        if entries.len() > KEYS_MAX {
            let message = format!("expected at most {KEYS_MAX} swept keys, found {}", entries.len());
            let problem = Problem::new(path, message).help("an experiment has fewer keys; is this another file?");
            self.findings.add(problem.at(Some(entries[KEYS_MAX].key_location.clone())));
            entries.clear();
        }
        for entry in std::mem::take(entries) {
            let (key, location) = (entry.key.clone(), entry.key_location.clone());
            let parts = key.split('.').count();
            if parts > PARTS_MAX {
                let message = format!("expected a key of at most {PARTS_MAX} parts, found {parts}");
                self.findings.add(Problem::new(join(path, &key), message).help("remove it").at(Some(location)));
            } else if !insert(&mut nested, nest_dotted(entry)) {
                let problem = Problem::new(join(path, &key), "the key is swept twice").help("keep one of the two");
                self.findings.add(problem.at(Some(location)));
            }
        }
        let root = self.root;
        self.swept_table(&mut nested, root, path, "");
        *entries = nested;
    }

    fn swept_table(&mut self, entries: &mut Vec<Entry>, schema: &Value, path: &str, swept_key: &str) {
        let shape = shape::parse(schema);
        entries.retain_mut(|entry| {
            let (key, swept_key) = (join(path, &entry.key), join(swept_key, &entry.key));
            let part = match &shape {
                Shape::Table { properties, kinds } => {
                    let Some(part) = properties.get(&entry.key) else {
                        self.unknown(entry, properties, *kinds, path, &key);
                        return false;
                    };
                    part
                }
                Shape::Map { values, .. } if self.is_free_name(entry, &key) => values,
                _ => return false,
            };
            if FIXED.contains(&swept_key.as_str()) {
                let problem = Problem::new(&key, format!("`{swept_key}` cannot be swept"));
                self.findings.add(problem.help("remove it").at(Some(entry.key_location.clone())));
                return false;
            }
            let shape = shape::parse(part);
            match (&shape, &mut entry.node.tree) {
                (Shape::Table { .. } | Shape::Map { .. }, Tree::Table(inner)) => {
                    self.swept_table(inner, part, &key, &swept_key);
                    !inner.is_empty()
                }
                (Shape::Table { kinds: true, .. }, Tree::Array(_)) => {
                    kinds_by_name(&mut entry.node);
                    self.swept_list(&mut entry.node, part, &key)
                }
                (Shape::Table { .. } | Shape::Map { .. }, _) => {
                    let problem = Problem::new(&key, format!("`{swept_key}` is a table and has no value of its own"));
                    self.findings.add(problem.help("name one of its keys").at(Some(entry.key_location.clone())));
                    false
                }
                (_, Tree::Table(_)) => self.swept_range(&entry.node, part, &shape, &key),
                (_, Tree::Array(_)) => self.swept_list(&mut entry.node, part, &key),
                (_, tree) => {
                    let problem =
                        Problem::new(&key, format!("expected a list of values or a range, found {}", found(tree)));
                    let text = &entry.node.location.source.text;
                    let written = text.get(entry.node.location.span.clone()).unwrap_or_default().trim();
                    let help = format!("write `[{written}]`, with more values");
                    self.findings.add(problem.help(help).at(Some(entry.node.location.clone())));
                    false
                }
            }
        });
    }

    fn swept_list(&mut self, node: &mut Node, schema: &Value, key: &str) -> bool {
        let Tree::Array(items) = &mut node.tree else { return false };
        if items.is_empty() || items.len() > VALUES_MAX {
            let message = format!("expected 1 to {VALUES_MAX} values, found {}", items.len());
            let help = format!("for example `[{}]`", shape::example(schema));
            self.findings.add(Problem::new(key, message).help(help).at(Some(node.location.clone())));
            return false;
        }
        let mut is_valid = true;
        for item in items {
            self.array_help = Some(format!("each value must be {}", shape::parse(schema).words()));
            is_valid &= self.node(item, schema, key);
        }
        self.array_help = None;
        is_valid
    }

    fn swept_range(&mut self, node: &Node, schema: &Value, shape: &Shape<'_>, key: &str) -> bool {
        let Tree::Table(entries) = &node.tree else { return false };
        let range = match AxisRange::read(node, shape, key) {
            Ok(range) => range,
            Err(problem) => {
                self.findings.add(problem);
                return false;
            }
        };
        let mut is_valid = true;
        for (name, end) in ["from", "to"].into_iter().zip(range.ends()) {
            let location =
                entries.iter().find(|entry| entry.key == name).map_or(&node.location, |entry| &entry.node.location);
            let tree = end.as_i64().map_or_else(|| Tree::Float(end.as_f64().unwrap_or_default()), Tree::Integer);
            self.array_help = Some(format!("each value must be {}", shape.words()));
            is_valid &= self.node(&mut Node { tree, location: location.clone() }, schema, key);
        }
        self.array_help = None;
        is_valid
    }
}

/// Converts names of kinds, `["adamw", "sgd"]`, into tables without settings.
fn kinds_by_name(list: &mut Node) {
    let Tree::Array(items) = &mut list.tree else { return };
    for item in items {
        if let Tree::Text(name) = &item.tree {
            let node = Node { tree: Tree::Table(Vec::new()), location: item.location.clone() };
            let entry = Entry { key: name.clone(), key_location: item.location.clone(), node };
            item.tree = Tree::Table(vec![entry]);
        }
    }
}

/// Converts `"a.b" = …` into `a = { b = … }`.
pub(super) fn nest_dotted(entry: Entry) -> Entry {
    let Some((first, rest)) = entry.key.split_once('.') else { return entry };
    let location = entry.key_location.clone();
    let inner = nest_dotted(Entry { key: rest.to_owned(), key_location: location.clone(), node: entry.node });
    Entry {
        key: first.to_owned(),
        key_location: location.clone(),
        node: Node { tree: Tree::Table(vec![inner]), location },
    }
}

/// Inserts an entry, merging tables. Returns `false` if the key already has a value.
pub(super) fn insert(all: &mut Vec<Entry>, entry: Entry) -> bool {
    let Some(before) = all.iter_mut().find(|before| before.key == entry.key) else {
        all.push(entry);
        return true;
    };
    match (&mut before.node.tree, entry.node.tree) {
        (Tree::Table(inner), Tree::Table(more)) => {
            let mut inserted = true;
            for entry in more {
                inserted &= insert(inner, entry);
            }
            inserted
        }
        _ => false,
    }
}
