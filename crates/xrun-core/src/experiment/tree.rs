//! Syntax tree of a TOML text, parsed by `toml_edit`. Every key and value has its location, which survives the merging of
//! several files.

use std::ops::Range;
use std::sync::Arc;

use toml_edit::{Document, Item, TableLike, Value};

use super::shape::{self, Shape};
use crate::invocation;
use crate::problem::{Location, Problem, Source};

/// Maximum number of characters of a quoted value.
pub(super) const QUOTED_MAX: usize = 60;

/// A value with its location.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub tree: Tree,
    pub location: Location,
}

/// A value without its location.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    Table(Vec<Entry>),
    Array(Vec<Node>),
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    /// A date or time, as written; no key takes one.
    Date(String),
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub key_location: Location,
    pub node: Node,
}

/// Parses a TOML text.
///
/// # Errors
/// The first syntax error or duplicate key, with its location.
pub fn parse(source: &Arc<Source>) -> Result<Vec<Entry>, Problem> {
    let spans = Spans { source, shift: 0 };
    match Document::parse(source.text.as_str()) {
        Ok(document) => Ok(spans.table(document.as_table(), 0..source.text.len())),
        Err(error) => {
            let message = error.message().trim().to_owned();
            let problem = match message.contains("duplicate key") {
                true => Problem::new("", "duplicate key or table").help("keep one of the two"),
                false => match no_experiment(&source.name) {
                    Some((what, help)) => Problem::new("", format!("is {what}, no experiment")).help(help),
                    None => Problem::new("", format!("invalid TOML: {message}")),
                },
            };
            Err(problem.at(error.span().map(|span| spans.location(span))))
        }
    }
}

/// Kind of a file that is no experiment, by its name, and help.
fn no_experiment(name: &str) -> Option<(&'static str, String)> {
    match name.rsplit_once('.')?.1.to_ascii_lowercase().as_str() {
        "csv" | "tsv" | "jsonl" => {
            let help = "name it in an experiment: `[dataset.image-table]` reads the classes of images from a table";
            Some(("a table", help.to_owned()))
        }
        "json" => Some(("JSON", "name it in an experiment: `[dataset.coco]`, for one, reads annotations".to_owned())),
        "py" => Some(("a Python program", format!("`{} watch -- python3 FILE` watches it", invocation::program()))),
        _ => None,
    }
}

/// Parses the value of an override at the span `at`. A value that is not valid TOML is text; with `wants_text`, so is
/// every value without quotes.
pub fn parse_value(source: &Arc<Source>, at: Range<usize>, wants_text: bool) -> Node {
    const PREFIX: &str = "v=";
    let text = &source.text[at.clone()];
    let bare = || Node {
        tree: Tree::Text(text.trim().to_owned()),
        location: Location { source: source.clone(), span: at.clone() },
    };
    let document = format!("{PREFIX}{text}");
    let Ok(document) = Document::parse(document.as_str()) else { return bare() };
    let spans = Spans { source, shift: at.start as isize - PREFIX.len() as isize };
    let mut entries = spans.table(document.as_table(), at.clone());
    match entries.pop() {
        Some(entry) if entries.is_empty() && entry.key == "v" => match entry.node.tree {
            Tree::Integer(_) | Tree::Float(_) | Tree::Boolean(_) | Tree::Date(_) if wants_text => bare(),
            _ => entry.node,
        },
        _ => bare(),
    }
}

/// Parses an override of a key with this schema, as [`parse_value`] does. A number for a key that takes any value stays a text
/// unless it would be written as it was typed: a command gets `1.10`, not `1.1`.
pub fn parse_for(source: &Arc<Source>, at: Range<usize>, schema: Option<&serde_json::Value>) -> Node {
    let mut node = parse_value(source, at.clone(), schema.is_some_and(shape::wants_text));
    let typed = source.text[at].trim();
    let written = match &node.tree {
        Tree::Integer(number) => number.to_string(),
        Tree::Float(number) => serde_json::Value::from(*number).to_string(),
        _ => return node,
    };
    if written != typed && schema.is_some_and(|schema| matches!(shape::parse(schema), Shape::Scalar)) {
        node.tree = Tree::Text(typed.to_owned());
    }
    node
}

/// Converts spans of a parsed text into locations in the source.
struct Spans<'a> {
    source: &'a Arc<Source>,
    shift: isize,
}

impl Spans<'_> {
    fn location(&self, span: Range<usize>) -> Location {
        let shifted = |at: usize| at.saturating_add_signed(self.shift).min(self.source.text.len());
        Location { source: self.source.clone(), span: shifted(span.start)..shifted(span.end) }
    }

    fn table(&self, table: &dyn TableLike, enclosing_span: Range<usize>) -> Vec<Entry> {
        let entry = |(name, item): (&str, &Item)| {
            let key_span = table.key(name).and_then(toml_edit::Key::span).unwrap_or(enclosing_span.clone());
            let node = self.item(item, &key_span)?;
            Some(Entry { key: name.to_owned(), key_location: self.location(key_span), node })
        };
        table.iter().filter_map(entry).collect()
    }

    fn item(&self, item: &Item, enclosing_span: &Range<usize>) -> Option<Node> {
        let span = item.span().unwrap_or(enclosing_span.clone());
        let tree = match item {
            Item::None => return None,
            Item::Value(value) => return Some(self.value(value, enclosing_span)),
            Item::Table(table) => Tree::Table(self.table(table, span)),
            Item::ArrayOfTables(list) => {
                let tables = list.iter().map(|table| {
                    let span = table.span().unwrap_or(enclosing_span.clone());
                    Node { tree: Tree::Table(self.table(table, span.clone())), location: self.location(span) }
                });
                Tree::Array(tables.collect())
            }
        };
        // The location of a table is that of its name; its text may be the whole file.
        Some(Node { tree, location: self.location(enclosing_span.clone()) })
    }

    fn value(&self, value: &Value, enclosing_span: &Range<usize>) -> Node {
        let span = value.span().unwrap_or(enclosing_span.clone());
        let tree = match value {
            Value::String(text) => Tree::Text(text.value().clone()),
            Value::Integer(number) => Tree::Integer(*number.value()),
            Value::Float(number) => Tree::Float(*number.value()),
            Value::Boolean(truth) => Tree::Boolean(*truth.value()),
            Value::Datetime(date) => Tree::Date(date.value().to_string()),
            Value::Array(list) => Tree::Array(list.iter().map(|item| self.value(item, &span)).collect()),
            Value::InlineTable(table) => Tree::Table(self.table(table, span.clone())),
        };
        Node { tree, location: self.location(span) }
    }
}

/// Entry at a dotted path.
pub fn find<'a>(entries: &'a [Entry], path: &str) -> Option<&'a Entry> {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    let entry = entries.iter().find(|entry| entry.key == first)?;
    match (rest, &entry.node.tree) {
        (None, _) => Some(entry),
        (Some(rest), Tree::Table(inner)) => find(inner, rest),
        _ => None,
    }
}

/// Location for problems of an entry: the value, or the name of a table.
pub fn location_of(entry: &Entry) -> &Location {
    match entry.node.tree {
        Tree::Table(_) => &entry.key_location,
        _ => &entry.node.location,
    }
}

/// First characters of a text that a message quotes.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(QUOTED_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Appends a key to a dotted path.
pub(super) fn join(path: &str, key: &str) -> String {
    let key = shortened(key);
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Arc<Source> {
        Arc::new(Source::new("a.toml", text))
    }

    fn text_at(location: &Location) -> &str {
        &location.source.text[location.span.clone()]
    }

    #[test]
    fn keys_and_values_have_locations() {
        let text = "[limits]\nworkers = 2\n[training.schedule.cosine]\nwarmup_steps = 3\n";
        let entries = parse(&source(text)).unwrap();
        let workers = find(&entries, "limits.workers").unwrap();
        assert_eq!((text_at(&workers.key_location), text_at(&workers.node.location)), ("workers", "2"));
        assert_eq!(text_at(location_of(find(&entries, "training.schedule.cosine").unwrap())), "cosine");
        assert!(find(&entries, "limits.workers.deeper").is_none());
    }

    #[test]
    fn an_override_is_a_toml_value_or_text() {
        let value = |text: &str| parse_value(&source(text), 0..text.len(), false);
        assert_eq!(value("3").tree, Tree::Integer(3));
        assert_eq!(value(" \"64 MiB\"").tree, Tree::Text("64 MiB".into()));
        assert_eq!(value("64 MiB").tree, Tree::Text("64 MiB".into()));
        assert_eq!(value("1\nlimits.workers = 9").tree, Tree::Text("1\nlimits.workers = 9".into()));
        assert_eq!(text_at(&value("  3").location), "3");
        let name = source("42");
        assert_eq!(parse_value(&name, 0..2, true).tree, Tree::Text("42".into()));
        let knob = serde_json::json!({ "type": ["boolean", "integer", "number", "string"] });
        let knob = |text: &str| parse_for(&source(text), 0..text.len(), Some(&knob)).tree;
        for typed in ["1.10", "1e-4", "+5", "1_000", "0x10"] {
            assert_eq!(knob(typed), Tree::Text(typed.into()));
        }
        assert_eq!((knob("1.1"), knob(" 7"), knob("1.0")), (Tree::Float(1.1), Tree::Integer(7), Tree::Float(1.0)));
    }
}
