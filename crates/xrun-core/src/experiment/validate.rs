//! Validation of a layer against the schema, which collects all problems.
//!
//! Invalid entries are removed from the layer, so that the rest can be merged and checked as a whole.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::merge::{Merged, location};
use super::shape::{self, Shape, list};
use super::tree::{self, Entry, Node, QUOTED_MAX, Tree, join, shortened};
use super::{key_lookup, template};
use crate::problem::{Location, Problem, Problems, Source, nearest};
use crate::units::{Bytes, Span, pluralize};

/// Maximum number of keys listed in a message.
const LISTED_MAX: usize = 12;

/// Smaller sizes without a unit are probably meant in another one.
const BARE_BYTES_MIN: i64 = 4096;
/// Maximum number of warnings about values.
const WARNINGS_MAX: usize = 20;

/// Result of a validation.
#[derive(Debug, Default)]
pub struct Findings {
    /// Problems, in the order of the file.
    pub problems: Problems,
    /// Keys whose value is unknown: it was invalid, or a misspelled key may have been meant for it.
    pub doubtful: BTreeSet<String>,
    /// Values that are valid and probably not meant.
    pub warnings: Vec<Problem>,
}

impl Findings {
    pub(super) fn add(&mut self, problem: Problem) {
        self.doubtful.insert(problem.key.clone());
        self.problems.add(problem);
    }
}

/// Validates a layer and removes invalid entries.
pub fn validate(entries: &mut Vec<Entry>, schema: &Value) -> Findings {
    let mut validator = Validator { root: schema, findings: Findings::default(), array_help: None };
    validator.table(entries, schema, "");
    validator.findings
}

pub(super) struct Validator<'a> {
    pub(super) root: &'a Value,
    pub(super) findings: Findings,
    /// Help inside an array, whose items have no key.
    pub(super) array_help: Option<String>,
}

impl Validator<'_> {
    fn table(&mut self, entries: &mut Vec<Entry>, schema: &Value, path: &str) {
        let Shape::Table { properties, kinds } = shape::parse(schema) else { return };
        entries.retain_mut(|entry| {
            let key = join(path, &entry.key);
            match properties.get(&entry.key) {
                Some(schema) => self.node(&mut entry.node, schema, &key),
                None => {
                    self.unknown(entry, properties, kinds, path, &key);
                    false
                }
            }
        });
        if kinds && entries.len() > 1 {
            let names = list(entries.iter().map(|entry| entry.key.as_str()), "and");
            let mut problem = Problem::new(join(path, &entries[1].key), format!("more than one kind: {names}"))
                .help(format!("keep one of the tables below `[{path}]`; the name of the table is the kind"))
                .at(Some(entries[1].key_location.clone()));
            problem.related.push(crate::problem::Related {
                key: join(path, &entries[0].key),
                location: Some(entries[0].key_location.clone()),
            });
            self.findings.doubtful.insert(path.to_owned());
            self.findings.add(problem);
            entries.clear();
        }
    }

    pub(super) fn unknown(
        &mut self,
        entry: &Entry,
        properties: &Map<String, Value>,
        kinds: bool,
        path: &str,
        key: &str,
    ) {
        // Bounds the work for a file with very many unknown keys.
        if self.findings.problems.count_if_full() {
            return;
        }
        let name = quote(&entry.key);
        let message = match (kinds, path) {
            (true, _) => format!("unknown kind {name}"),
            (false, "") => format!("unknown section or key {name}"),
            (false, _) => format!("unknown key {name}"),
        };
        let mut problem = Problem::new(key, message).at(Some(entry.key_location.clone()));
        if kinds {
            self.findings.doubtful.insert(path.to_owned());
        }
        let key = entry.key.as_str();
        let here = properties.keys().map(String::as_str);
        // At the top level, a key of some section is more likely than a section with a similar name.
        let (meant, elsewhere) = match path {
            "" => key_lookup::likely_sections(self.root, key),
            _ => (key.to_owned(), key_lookup::sections_with_key(self.root, key)),
        };
        let similar = properties.contains_key(key).then_some(key).or_else(|| nearest(key, here));
        let similar = similar.filter(|name| *name == key || !path.is_empty() || elsewhere.is_empty());
        if let Some(similar) = similar {
            // The keys of a misspelled kind are probably those of the kind that was meant.
            if let (true, Some(meant), Tree::Table(entries)) = (kinds, properties.get(similar), &entry.node.tree) {
                self.table(&mut entries.clone(), meant, &join(path, &entry.key));
            }
            self.findings.doubtful.insert(join(path, similar));
            problem = problem.help(format!("did you mean `{similar}`?"));
        } else if let Some(help) = key_lookup::section_help(&meant, &elsewhere) {
            self.findings.doubtful.extend(elsewhere.iter().map(|section| join(section, &meant)));
            problem = problem.help(help);
        } else if let Some(help) = containing(key, properties) {
            problem = problem.help(help);
        } else if properties.is_empty() {
            problem = problem.help(format!("`[{path}]` has no keys"));
        } else {
            let names = || properties.keys().map(String::as_str);
            let listed = match properties.len() {
                ..=LISTED_MAX => list(names(), "and"),
                more => format!("{} and {} more", list(names().take(LISTED_MAX), ","), more - LISTED_MAX)
                    .replace(" , ", ", "),
            };
            let valid = if kinds { "valid kinds" } else { "valid keys" };
            problem = problem.help(format!("{valid}: {listed}"));
        }
        self.findings.add(problem);
    }

    /// Validates a value; returns `true` if it is valid.
    pub(super) fn node(&mut self, node: &mut Node, schema: &Value, key: &str) -> bool {
        let shape = shape::parse(schema);
        match (&shape, &mut node.tree) {
            (Shape::Table { .. }, Tree::Table(entries)) => {
                self.table(entries, schema, key);
                return true;
            }
            (Shape::Map { values, most }, Tree::Table(entries)) => {
                self.free(entries, values, *most, &node.location, key);
                return true;
            }
            (Shape::Array { items, least, most }, Tree::Array(nodes)) => {
                if !(*least..=*most).contains(&nodes.len()) {
                    let found = pluralize(nodes.len() as u64, "entry");
                    return self.wrong(&shape, &found, &node.location, schema, key);
                }
                self.array_help = Some(write_example(schema, key));
                let invalid = nodes.iter_mut().filter_map(|item| (!self.node(item, items, key)).then_some(())).count();
                self.array_help = None;
                return invalid == 0;
            }
            (Shape::Files, Tree::Array(nodes)) => return self.files(nodes, &node.location, schema, key),
            (Shape::SweptValues, Tree::Table(entries)) => {
                self.swept(entries, key);
                return true;
            }
            _ => {}
        }
        if let (Shape::Table { properties, kinds: true }, Tree::Text(name)) = (&shape, &node.tree) {
            let help = kind_by_name(name, properties, key);
            let problem = Problem::new(key, format!("expected {}, found {}", shape.words(), found(&node.tree)));
            self.findings.add(problem.help(help).at(Some(node.location.clone())));
            return false;
        }
        if let (Shape::Bytes, Tree::Integer(bytes @ 1..BARE_BYTES_MIN)) = (&shape, &node.tree)
            && self.findings.warnings.len() < WARNINGS_MAX
        {
            let name = key.rsplit('.').next().unwrap_or(key);
            let message = format!("a number without a unit is in bytes: {bytes} B");
            let problem = Problem::new(key, message).help(format!("write a unit: `{name} = \"{bytes} MiB\"`"));
            self.findings.warnings.push(problem.at(Some(node.location.clone())));
        }
        match scalar(&shape, &node.tree) {
            Ok(()) => true,
            Err(Invalid::Found(found)) => self.wrong(&shape, &found, &node.location, schema, key),
            Err(Invalid::Choice(word)) => {
                let Shape::Choice(words) = &shape else { return false };
                let mut problem = Problem::new(key, format!("expected {}, found {}", shape.words(), quote_text(&word)));
                problem.help = nearest(&word, words.iter().map(|word| word.value))
                    .map(|near| format!("did you mean \"{near}\"?"))
                    .or_else(|| Some(self.array_help.clone().unwrap_or_else(|| write_example(schema, key))))
                    .map(String::into_boxed_str);
                self.findings.add(problem.at(Some(node.location.clone())));
                false
            }
        }
    }

    /// Validates a table with free keys.
    fn free(&mut self, entries: &mut Vec<Entry>, values: &Value, most: usize, location: &Location, path: &str) {
        if entries.len() > most {
            let message = format!("expected at most {most} keys, found {}", entries.len());
            self.findings.add(Problem::new(path, message).help("remove some").at(Some(location.clone())));
            entries.clear();
        }
        entries.retain_mut(|entry| {
            let key = join(path, &entry.key);
            self.is_free_name(entry, &key) && self.node(&mut entry.node, values, &key)
        });
    }

    /// Validates the name of a free key.
    pub(super) fn is_free_name(&mut self, entry: &Entry, key: &str) -> bool {
        let is_valid = shape::is_free_name(&entry.key);
        if !is_valid && !self.findings.problems.count_if_full() {
            let message = format!("invalid name of a key: {}", quote(&entry.key));
            let help = "use at most 64 letters, digits, `_` and `-`";
            self.findings.add(Problem::new(key, message).help(help).at(Some(entry.key_location.clone())));
        }
        is_valid
    }

    fn files(&mut self, nodes: &[Node], location: &Location, schema: &Value, key: &str) -> bool {
        if nodes.is_empty() || nodes.len() > 16 {
            return self.wrong(&Shape::Files, &pluralize(nodes.len() as u64, "entry"), location, schema, key);
        }
        let invalid = nodes.iter().find(|node| !matches!(&node.tree, Tree::Text(text) if !text.is_empty()));
        match invalid {
            Some(node) => self.wrong(&Shape::Files, &found(&node.tree), &node.location, schema, key),
            None => true,
        }
    }

    fn wrong(&mut self, shape: &Shape<'_>, found: &str, location: &Location, schema: &Value, key: &str) -> bool {
        let help = match shape {
            Shape::Table { kinds, properties } => table_help(properties, *kinds, key),
            Shape::Map { .. } => table_help(&Map::new(), false, key),
            _ => match option(location, key) {
                Some(option) => format!("for example `{option} {}`", shape::example(schema).trim_matches('"')),
                None => self.array_help.clone().unwrap_or_else(|| write_example(schema, key)),
            },
        };
        let problem = Problem::new(key, format!("expected {}, found {found}", shape.words()));
        self.findings.add(problem.help(help).at(Some(location.clone())));
        false
    }
}

/// Help on keys that have a misspelled one as one of their words: `weight_bits` for `bits`.
fn containing(key: &str, properties: &Map<String, Value>) -> Option<String> {
    let has_word = |name: &&String| name.split('_').any(|word| word.eq_ignore_ascii_case(key));
    let found: Vec<String> = properties.keys().filter(has_word).map(|name| format!("`{name}`")).collect();
    (1..=CONTAINING_MAX).contains(&found.len()).then(|| format!("did you mean {}?", found.join(" or ")))
}

/// Maximum number of keys with the same word that a message suggests.
const CONTAINING_MAX: usize = 4;

/// Command-line option that the value was given with, if it is short for the key.
fn option(location: &Location, key: &str) -> Option<&'static str> {
    location.source.option.filter(|option| option.key == key).map(|option| option.option)
}

/// Help for a kind given as text, `optimizer = "sgd"`, as in Hydra.
fn kind_by_name(name: &str, properties: &Map<String, Value>, key: &str) -> String {
    let kinds = || properties.keys().map(String::as_str);
    match kinds().find(|kind| *kind == name).or_else(|| nearest(name, kinds())) {
        Some(kind) => format!(
            "a kind is a table: `[{key}.{kind}]` in a file, `-s {key}.{kind}={{}}` or `-s {key}.{kind}.KEY=VALUE` on the \
                         command line"
        ),
        None => format!("valid kinds: {}; write `[{key}.KIND]`", list(kinds(), "and")),
    }
}

fn table_help(properties: &Map<String, Value>, kinds: bool, key: &str) -> String {
    let kind = properties.keys().next().filter(|_| kinds).map_or_else(String::new, |kind| format!(".{kind}"));
    format!("write `[{key}{kind}]` on a line of its own, and the keys below it")
}

/// Help with the default, or else an example.
fn write_example(schema: &Value, key: &str) -> String {
    let name = key.rsplit('.').next().unwrap_or(key);
    format!("for example `{name} = {}`", shape::example(schema))
}

enum Invalid {
    /// Description of the value found.
    Found(String),
    /// Text that is not one of the choices.
    Choice(String),
}

fn scalar(shape: &Shape<'_>, tree: &Tree) -> Result<(), Invalid> {
    let is_valid = match (shape, tree) {
        (Shape::Boolean, Tree::Boolean(_)) => true,
        (Shape::Scalar, Tree::Text(_) | Tree::Integer(_) | Tree::Boolean(_)) => true,
        (Shape::Scalar, Tree::Float(number)) => number.is_finite(),
        (Shape::Integer { least, most }, Tree::Integer(number)) => (*least..=*most).contains(number),
        (Shape::Number { least, most }, Tree::Float(number)) => (*least..=*most).contains(number),
        (Shape::Number { least, most }, Tree::Integer(number)) => (*least..=*most).contains(&(*number as f64)),
        (Shape::Choice(words), Tree::Text(text)) => {
            if !words.iter().any(|word| word.value == text) {
                return Err(Invalid::Choice(text.clone()));
            }
            true
        }
        (Shape::Text { pattern, least, most }, Tree::Text(text)) => {
            let length = text.chars().count();
            if !(*least..=*most).contains(&length) && length > QUOTED_MAX {
                return Err(Invalid::Found(format!("{length} characters")));
            }
            (*least..=*most).contains(&length) && pattern.is_none_or(|pattern| pattern.matches(text))
        }
        (Shape::Bytes, Tree::Integer(number)) => *number >= 0,
        // The resolved file must be able to state the number as an integer of TOML.
        (Shape::Bytes, Tree::Text(text)) => text.parse::<Bytes>().is_ok_and(|bytes| bytes.0 <= i64::MAX as u64),
        (Shape::Span, Tree::Text(text)) => text.parse::<Span>().is_ok(),
        (Shape::Either(shapes), _) => shapes.iter().any(|shape| scalar(shape, tree).is_ok()),
        (Shape::Files, Tree::Text(text)) => !text.is_empty(),
        _ => false,
    };
    if is_valid { Ok(()) } else { Err(Invalid::Found(found(tree))) }
}

/// Description of a value that completes "found …".
pub(super) fn found(tree: &Tree) -> String {
    match tree {
        Tree::Table(_) => "a table".into(),
        Tree::Array(list) if list.is_empty() => "an empty array".into(),
        Tree::Array(_) => "an array".into(),
        Tree::Text(text) if text.is_empty() => "empty text".into(),
        Tree::Text(text) => format!("the text {}", quote_text(text)),
        Tree::Integer(number) => number.to_string(),
        Tree::Float(number) if number.is_nan() => "nan".into(),
        Tree::Float(number) if number.is_infinite() => "infinity, or a number too large".into(),
        Tree::Float(number) => shape::as_float(*number),
        Tree::Boolean(truth) => truth.to_string(),
        Tree::Date(date) => format!("the date or time {date}"),
    }
}

fn quote(key: &str) -> String {
    format!("`{}`", shortened(key))
}

pub(super) fn quote_text(text: &str) -> String {
    format!("\"{}\"", shortened(text))
}

/// Checks that a text, such as an edited `slurm.toml`, has only valid keys and values of a section.
///
/// # Errors
/// The first problem.
pub fn check_section(section: &str, file: &str, text: &str) -> Result<(), String> {
    let source = Arc::new(Source::new(file, text));
    let mut entries = tree::parse(&source).map_err(|problem| problem.to_string())?;
    let Some(part) = shape::schema_at(super::schema::shared(), section) else { return Ok(()) };
    match validate(&mut entries, part).problems.iter().next() {
        Some(problem) => Err(problem.to_string()),
        None => Ok(()),
    }
}

/// Adds missing required sections, and sections without a kind. `start` is the location of a missing section.
pub fn missing(merged: &Merged<'_>, schema: &Value, start: &Location, findings: &mut Findings) {
    let values = merged.values();
    for section in super::schema::required(schema) {
        if values.get(section).is_none() && !findings.doubtful.contains(section) {
            let kinds = kinds_of(shape::schema_at(schema, section), section);
            let problem = Problem::new(section, format!("`[{section}.…]` is missing"))
                .help(format!("add {kinds}; `{}` writes a template", template::command()));
            findings.add(problem.at(Some(start.clone())));
        }
    }
    without_kind(&values, schema, "", merged, findings);
}

fn without_kind(values: &Value, schema: &Value, path: &str, merged: &Merged<'_>, findings: &mut Findings) {
    for (name, inner) in values.as_object().into_iter().flatten() {
        let Some(part) = shape::key_of(schema, name) else { continue };
        let key = join(path, name);
        let is_empty = inner.as_object().is_some_and(Map::is_empty);
        if super::shape::is_kinds(part) && is_empty && !findings.doubtful.contains(&key) {
            let problem = Problem::new(&key, "missing kind").help(format!("write {}", kinds_of(Some(part), &key)));
            findings.add(problem.at(location(merged.layers, &key)));
        }
        without_kind(inner, part, &key, merged, findings);
    }
}

fn kinds_of(schema: Option<&Value>, key: &str) -> String {
    let names: Vec<String> = match schema.map(shape::parse) {
        Some(Shape::Table { properties, .. }) => properties.keys().map(|kind| format!("[{key}.{kind}]")).collect(),
        _ => Vec::new(),
    };
    list(names.iter().map(String::as_str), "or")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLURM: &str = "launcher.slurm";

    #[test]
    fn an_edited_file_is_validated_by_the_schema() {
        assert_eq!(
            check_section(SLURM, "slurm.toml", "partition = \"gpu,long\"\nextra_lines = [\"module load\\tcuda\"]\n"),
            Ok(())
        );
        for text in [
            "partition = \"x\\n#SBATCH --uid=0\\ntouch pwn\"\n",
            "account = \"a b\"\n",
            "cpus = 0\n",
            "extra_lines = [\"a\\u0000b\"]\n",
            "extra_lines = [\"a\\u000Bb\"]\n",
            "extra_lines = [\"a\\nb\"]\n",
            "shell = \"/bin/sh\"\n",
            "partition = ",
        ] {
            let message = check_section(SLURM, "slurm.toml", text).unwrap_err();
            assert!(message.starts_with("slurm.toml:1:"), "{text}: {message}");
        }
    }
}
