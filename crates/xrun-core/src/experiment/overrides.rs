//! What do the environment and the command line change?
//!
//! `XRUN__LIMITS__FRAME_CACHE="64 MiB"`: two underscores separate, case does not matter, and `_` stands for `-` too.
//! `-s limits.frame_cache="64 MiB"`: a dotted key as in the file. Values are TOML; what is not TOML is text, and so is
//! anything for a key that takes only text. `--device=cuda`: an option that stands for a key, as it was typed.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use super::layers::Layer;
use super::overrides_sweep::pieces;
use super::shape::{self, Shape};
use super::tree::{self, Entry, Node, Tree};
use super::walk::{join, moved};
use crate::invocation;
use crate::printable::escape;
use crate::problem::{OptionKey, Place, Problem, Problems, Source, nearest};

/// What every variable begins with.
pub const PREFIX: &str = "XRUN__";

/// Options of the command line that stand for a key.
pub const OPTIONS: &[OptionKey] = &[
    OptionKey { option: "--device", key: "experiment.device" },
    OptionKey { option: "--name", key: "experiment.name" },
    OptionKey { option: "--fail-on", key: "memory.fail_on" },
    OptionKey { option: "--mode", key: "sweep.mode" },
    OptionKey { option: "--samples", key: "sweep.samples" },
    OptionKey { option: "--repeats", key: "sweep.repeats" },
];

/// The option and the value of `--device=cuda`; `None` of `section.key=value`.
fn option_and_value(text: &str) -> Option<(OptionKey, &str)> {
    let (name, value) = text.split_once('=')?;
    OPTIONS.iter().find(|known| known.option == name).map(|known| (*known, value))
}

/// The key that an override sets, as it is written.
pub fn key_of(text: &str) -> &str {
    match option_and_value(text) {
        Some((option, _)) => option.key,
        None => text.split('=').next().unwrap_or_default().trim(),
    }
}

/// An override as words for another xrun. Always `-s`: there the last one of a key counts, and an option would stand behind
/// all of them.
pub fn as_words(text: &str) -> [String; 2] {
    let set = option_and_value(text).map(|(option, value)| format!("{}={value}", option.key));
    ["-s".to_owned(), set.unwrap_or_else(|| text.to_owned())]
}

/// A layer for each variable that begins with [`PREFIX`], sorted by name.
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
    let name_place = Place { source: source.clone(), span: 0..name.len() };
    let mut part = schema;
    let mut path: Vec<String> = Vec::new();
    for segment in name[PREFIX.len()..].split("__") {
        let known = part.get("properties").and_then(Value::as_object);
        let meant = plain(segment);
        let at_root = path.is_empty();
        let found =
            known.and_then(|keys| keys.iter().find(|(key, _)| plain(key) == meant && !(at_root && *key == "extends")));
        // A key that the author names is in lower case here.
        let own = || Some((segment.to_lowercase(), shape::key_of(part, segment).filter(|_| known.is_none())?));
        let Some((key, next)) = found.map(|(key, next)| (key.clone(), next)).or_else(own) else {
            let so_far = path.join(".");
            let mut problem = Problem::new(join(&so_far, &segment.to_lowercase()), "sets a key that does not exist");
            let names = || known.into_iter().flatten().map(|(key, _)| key.as_str());
            let whole = name[PREFIX.len()..].to_lowercase().replace("__", ".");
            if let Some((section, field)) = moved(&whole) {
                let now = upper(&join(&section, field)).replace('.', "__");
                problem = problem.help(format!("it is {PREFIX}{now} now"));
            } else if at_root && meant == "extends" {
                problem = Problem::new("extends", "`extends` can stand only in a file");
            } else if let Some(near) = nearest(segment, names()) {
                let written: Vec<String> = path.iter().map(String::as_str).chain([near]).map(upper).collect();
                problem = problem.help(format!("did you mean {PREFIX}{}?", written.join("__")));
            } else if known.is_none() {
                problem = problem.help(format!("`{so_far}` is a value and has no keys"));
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
    let node = tree::parse_value(&source, span, shape::wants_text(part));
    Some(Layer { entries: vec![nest(&path, &name_place, node)?], source, folder: None })
}

fn plain(key: &str) -> String {
    key.to_lowercase().replace('-', "_")
}

fn upper(key: &str) -> String {
    key.to_uppercase().replace('-', "_")
}

/// A layer for each `-s key=value`, in their order.
pub fn from_command_line(overrides: &[String], schema: &Value, problems: &mut Problems) -> Vec<Layer> {
    overrides.iter().filter_map(|text| command_line(text, schema, problems)).collect()
}

fn command_line(text: &str, schema: &Value, problems: &mut Problems) -> Option<Layer> {
    let Typed { source, keys, key, value } = typed(text, problems)?;
    let dotted = keys.join(".");
    let part = shape::at(schema, &dotted);
    let pieces = pieces(&source.text, value.clone());
    if let Some(shape) = part.map(shape::of).filter(takes_one).filter(|_| pieces.len() > 1) {
        let problem = Problem::new(&dotted, format!("expected {}, found {} values", shape.words(), pieces.len()));
        let help = match source.option {
            Some(option) => format!(
                "`{}` sets one value; `{} sweep FILE -s {dotted}={}` runs the experiment with each",
                option.option,
                invocation::program(),
                source.text[value.clone()].trim()
            ),
            None => {
                let program = invocation::program();
                format!("`-s` sets one value; `{program} sweep FILE -s {text}` runs the experiment with each")
            }
        };
        problems.add(problem.help(help).at(Some(Place { source: source.clone(), span: value })));
        return None;
    }
    let wants_text = part.is_some_and(shape::wants_text);
    let mut node = tree::parse_value(&source, value.clone(), wants_text);
    if let (Tree::Text(_), Some(Shape::Array { items, .. })) = (&node.tree, part.map(shape::of))
        && let Some(list) = list_without_quotes(&source, value, items)
    {
        node = list;
    }
    let entry = nest(&keys, &key, node)?;
    Some(Layer { entries: vec![entry], source, folder: None })
}

/// Whether several values separated by commas are more than may stand there.
fn takes_one(shape: &Shape<'_>) -> bool {
    match shape {
        Shape::Text { pattern, .. } => pattern.is_some(),
        Shape::Choice(_)
        | Shape::Integer { .. }
        | Shape::Number { .. }
        | Shape::Boolean
        | Shape::Scalar
        | Shape::Bytes
        | Shape::Span => true,
        Shape::Table { .. } | Shape::Free { .. } | Shape::Array { .. } | Shape::Files | Shape::SweptValues => false,
    }
}

/// `[box, cup]` of a key that takes a list of texts: shells take quotes away, and other tools ask for none.
fn list_without_quotes(source: &Arc<Source>, value: Range<usize>, items: &Value) -> Option<Node> {
    let text = &source.text[value.clone()];
    let begin = value.start + text.len() - text.trim_start().len();
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?;
    if !shape::wants_text(items) || inner.contains(['[', ']', '"', '\'']) {
        return None;
    }
    let pieces = pieces(&source.text, begin + 1..begin + 1 + inner.len());
    let nodes = pieces.into_iter().map(|span| tree::parse_value(source, span, true));
    Some(Node { tree: Tree::Array(nodes.collect()), place: Place { source: source.clone(), span: value } })
}

/// What stands on both sides of the `=`.
pub(super) struct Typed {
    pub source: Arc<Source>,
    pub keys: Vec<String>,
    pub key: Place,
    /// Bytes of the source's text.
    pub value: Range<usize>,
}

pub(super) fn typed(text: &str, problems: &mut Problems) -> Option<Typed> {
    if let Some((option, value)) = option_and_value(text) {
        let source =
            Source { option: Some(option), ..Source::new("command line", format!("{} {value}", option.option)) };
        let (begin, end, source) = (option.option.len(), source.text.len(), Arc::new(source));
        return Some(Typed {
            keys: option.key.split('.').map(str::to_owned).collect(),
            key: Place { source: source.clone(), span: 0..begin },
            value: begin + 1..end,
            source,
        });
    }
    let source = Arc::new(Source::new("command line", text));
    let place = |span: Range<usize>| Place { source: source.clone(), span };
    let form = "write -s section.key=value, for example -s limits.workers=2";
    let Some(equals) = text.find('=') else {
        problems.add(Problem::new("", "an override without `=`").help(form).at(Some(place(0..text.len()))));
        return None;
    };
    let key_text = &text[..equals];
    let keys: Vec<String> = match toml_edit::Key::parse(key_text) {
        Ok(keys) if !key_text.trim().is_empty() => keys.iter().map(|key| key.get().to_owned()).collect(),
        _ => {
            let problem = Problem::new("", "what stands before `=` is not a key").help(form);
            problems.add(problem.at(Some(place(0..equals.max(1).min(text.len())))));
            return None;
        }
    };
    // Deeper than any key there is; the tree's depth stays bounded.
    if keys.len() > 16 {
        problems.add(Problem::new("", "a key of more than 16 parts").help(form).at(Some(place(0..equals))));
        return None;
    }
    if keys.first().is_some_and(|key| key == "extends") {
        let problem = Problem::new("extends", "`extends` can stand only in a file");
        problems.add(problem.help("write a file that extends both").at(Some(place(0..equals))));
        return None;
    }
    Some(Typed { key: place(0..equals), keys, value: equals + 1..text.len(), source })
}

/// The value inside one table for each key before the last.
pub(super) fn nest(keys: &[String], key_place: &Place, node: Node) -> Option<Entry> {
    let (first, rest) = keys.split_first()?;
    let node = match nest(rest, key_place, node.clone()) {
        Some(inner) => Node { tree: Tree::Table(vec![inner]), place: key_place.clone() },
        None => node,
    };
    Some(Entry { key: first.clone(), key_place: key_place.clone(), node })
}
