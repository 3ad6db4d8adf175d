//! Overrides from the environment and the command line.
//!
//! `XRUN__LIMITS__FRAME_CACHE="64 MiB"`: two underscores separate, case is ignored, and `_` matches `-`.
//! `-s limits.frame_cache="64 MiB"`: a dotted key as in the file. Values are TOML; a value that is not, or one of a key that
//! takes only text, is taken as text. `--device=cuda`: an option that is short for a key.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use super::layers::Layer;
use super::overrides_sweep::split_at_commas;
use super::shape::{self, Shape};
use super::tree::join;
use super::tree::{self, Entry, Node, Tree};
use crate::invocation;
use crate::printable::escape;
use crate::problem::{Location, OptionKey, Problem, Problems, Source, nearest};

/// Prefix of the environment variables.
pub const PREFIX: &str = "XRUN__";

/// Command-line options that are short for a key.
pub const OPTIONS: &[OptionKey] = &[
    OptionKey { option: "--device", key: "experiment.device" },
    OptionKey { option: "--name", key: "experiment.name" },
    OptionKey { option: "--fail-on", key: "memory.fail_on" },
    OptionKey { option: "--method", key: "sweep.method" },
    OptionKey { option: "--trials", key: "sweep.trials" },
    OptionKey { option: "--repeats", key: "sweep.repeats" },
];

/// Option and value of `--device=cuda`; `None` for `section.key=value`.
fn option_and_value(text: &str) -> Option<(OptionKey, &str)> {
    let (name, value) = text.split_once('=')?;
    OPTIONS.iter().find(|known| known.option == name).map(|known| (*known, value))
}

/// Key that an override sets.
pub fn overridden_key(text: &str) -> &str {
    match option_and_value(text) {
        Some((option, _)) => option.key,
        None => text.split('=').next().unwrap_or_default().trim(),
    }
}

/// Override as arguments for another xrun process. Always `-s`, where the last value of a key wins; an option would take
/// precedence over all of them.
pub fn as_arguments(text: &str) -> [String; 2] {
    let set = option_and_value(text).map(|(option, value)| format!("{}={value}", option.key));
    ["-s".to_owned(), set.unwrap_or_else(|| text.to_owned())]
}

/// One layer per environment variable with [`PREFIX`], sorted by name.
pub fn from_environment<'a>(
    environment: impl Iterator<Item = (&'a String, &'a String)>,
    schema: &Value,
    problems: &mut Problems,
) -> Vec<Layer> {
    let mut variables: Vec<_> = environment.filter(|(name, _)| name.starts_with(PREFIX)).collect();
    variables.sort();
    variables.into_iter().filter_map(|(name, value)| variable(name, value, schema, problems)).collect()
}

fn variable(name: &str, value: &str, schema: &Value, problems: &mut Problems) -> Option<Layer> {
    let text = format!("{name}={value}");
    let source = Arc::new(Source::new(format!("environment variable {}", escape(name)), text));
    let name_place = Location { source: source.clone(), span: 0..name.len() };
    let mut part = schema;
    let mut path: Vec<String> = Vec::new();
    for segment in name[PREFIX.len()..].split("__") {
        let known = part.get("properties").and_then(Value::as_object);
        let wanted = normalised(segment);
        let at_root = path.is_empty();
        let found = known
            .and_then(|keys| keys.iter().find(|(key, _)| normalised(key) == wanted && !(at_root && *key == "extends")));
        // A free key is in lower case here.
        let free = || Some((segment.to_lowercase(), shape::key_of(part, segment).filter(|_| known.is_none())?));
        let Some((key, next)) = found.map(|(key, next)| (key.clone(), next)).or_else(free) else {
            let so_far = path.join(".");
            let mut problem = Problem::new(join(&so_far, &segment.to_lowercase()), "unknown key");
            let names = || known.into_iter().flatten().map(|(key, _)| key.as_str());
            if at_root && wanted == "extends" {
                problem = Problem::new("extends", EXTENDS_ONLY_IN_FILES);
            } else if let Some(near) = nearest(segment, names()) {
                let written: Vec<String> = path.iter().map(String::as_str).chain([near]).map(upper).collect();
                problem = problem.help(format!("did you mean {PREFIX}{}?", written.join("__")));
            } else if known.is_none() {
                problem = problem.help(format!("`{so_far}` is a value without keys"));
            } else {
                problem = problem.help("write XRUN__SECTION__KEY; `docs/reference.md` lists all keys");
            }
            problems.add(problem.at(Some(name_place)));
            return None;
        };
        path.push(key);
        part = next;
    }
    let span = name.len() + 1..source.text.len();
    let node = tree::parse_for(&source, span, Some(part));
    Some(Layer { entries: vec![nest(&path, &name_place, node)?], source, directory: None })
}

/// Text of the problem of an `extends` outside a file.
const EXTENDS_ONLY_IN_FILES: &str = "`extends` is valid only in a file";

fn normalised(key: &str) -> String {
    key.to_lowercase().replace('-', "_")
}

fn upper(key: &str) -> String {
    key.to_uppercase().replace('-', "_")
}

/// One layer per `-s key=value`, in order.
pub fn from_command_line(overrides: &[String], schema: &Value, problems: &mut Problems) -> Vec<Layer> {
    overrides.iter().filter_map(|text| command_line(text, schema, problems)).collect()
}

fn command_line(text: &str, schema: &Value, problems: &mut Problems) -> Option<Layer> {
    let Override { source, keys, key, value } = parse_override(text, problems)?;
    let dotted = keys.join(".");
    let part = shape::schema_at(schema, &dotted);
    let pieces = split_at_commas(&source.text, value.clone());
    if let Some(shape) = part.map(shape::parse).filter(takes_single_value).filter(|_| pieces.len() > 1) {
        let problem = Problem::new(&dotted, format!("expected {}, found {} values", shape.words(), pieces.len()));
        let help = match source.option {
            Some(option) => format!(
                "`{}` sets one value; to run the experiment with each, use `{} sweep FILE -s {dotted}={}`",
                option.option,
                invocation::program(),
                source.text[value.clone()].trim()
            ),
            None => {
                let program = invocation::program();
                format!("`-s` sets one value; to run the experiment with each, use `{program} sweep FILE -s {text}`")
            }
        };
        problems.add(problem.help(help).at(Some(Location { source: source.clone(), span: value })));
        return None;
    }
    let node = tree::parse_for(&source, value, part);
    let entry = nest(&keys, &key, node)?;
    Some(Layer { entries: vec![entry], source, directory: None })
}

/// `true` if a comma-separated list cannot be a value of this shape.
fn takes_single_value(shape: &Shape<'_>) -> bool {
    match shape {
        Shape::Text { pattern, .. } => pattern.is_some(),
        Shape::Choice(_)
        | Shape::Integer { .. }
        | Shape::Number { .. }
        | Shape::Boolean
        | Shape::Scalar
        | Shape::Bytes
        | Shape::Either(_)
        | Shape::Span => true,
        Shape::Table { .. } | Shape::Map { .. } | Shape::Array { .. } | Shape::Files | Shape::SweptValues => false,
    }
}

/// Both sides of the `=` of an override.
pub(super) struct Override {
    pub source: Arc<Source>,
    pub keys: Vec<String>,
    pub key: Location,
    /// Bytes of the source's text.
    pub value: Range<usize>,
}

/// Splits an override at its `=`; adds a problem and returns `None` if it is malformed.
pub(super) fn parse_override(text: &str, problems: &mut Problems) -> Option<Override> {
    if let Some((option, value)) = option_and_value(text) {
        let source =
            Source { option: Some(option), ..Source::new("command line", format!("{} {value}", option.option)) };
        let (begin, end, source) = (option.option.len(), source.text.len(), Arc::new(source));
        return Some(Override {
            keys: option.key.split('.').map(str::to_owned).collect(),
            key: Location { source: source.clone(), span: 0..begin },
            value: begin + 1..end,
            source,
        });
    }
    let source = Arc::new(Source::new("command line", text));
    let location = |span: Range<usize>| Location { source: source.clone(), span };
    let form = "write -s section.key=value, for example -s limits.workers=2";
    let Some(equals) = text.find('=') else {
        problems.add(Problem::new("", "missing `=` in an override").help(form).at(Some(location(0..text.len()))));
        return None;
    };
    let key_text = &text[..equals];
    let keys: Vec<String> = match toml_edit::Key::parse(key_text) {
        Ok(keys) if !key_text.trim().is_empty() => keys.iter().map(|key| key.get().to_owned()).collect(),
        _ => {
            let problem = Problem::new("", "invalid key before `=`").help(form);
            problems.add(problem.at(Some(location(0..equals.max(1).min(text.len())))));
            return None;
        }
    };
    // Bounds the depth of the tree; no key is that deep.
    if keys.len() > 16 {
        problems.add(Problem::new("", "a key has at most 16 parts").help(form).at(Some(location(0..equals))));
        return None;
    }
    if keys.first().is_some_and(|key| key == "extends") {
        let problem = Problem::new("extends", EXTENDS_ONLY_IN_FILES);
        problems.add(problem.help("write a file that extends both").at(Some(location(0..equals))));
        return None;
    }
    Some(Override { key: location(0..equals), keys, value: equals + 1..text.len(), source })
}

/// Wraps a value into nested tables, one for each key.
pub(super) fn nest(keys: &[String], key_location: &Location, node: Node) -> Option<Entry> {
    let (first, rest) = keys.split_first()?;
    let node = match nest(rest, key_location, node.clone()) {
        Some(inner) => Node { tree: Tree::Table(vec![inner]), location: key_location.clone() },
        None => node,
    };
    Some(Entry { key: first.clone(), key_location: key_location.clone(), node })
}
