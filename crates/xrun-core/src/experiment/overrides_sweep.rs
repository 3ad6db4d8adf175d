//! Swept values on the command line, `xrun sweep -s key=…`: a comma-separated list, a TOML list, or a range
//! `from..to:steps:scale`.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use super::layers::Layer;
use super::overrides::{Override, nest, parse_override};
use super::shape::{self, Shape};
use super::tree::{self, Entry, Node, Tree};
use crate::problem::{Location, Problem, Problems, Source};

/// Path of swept values in an experiment.
pub const VALUES: [&str; 2] = ["sweep", "values"];

/// One layer per override, in order. Several values are swept, one value is set; one value of a key that `files` sweep
/// replaces the swept values.
pub fn from_command_line(texts: &[String], files: &[Layer], schema: &Value, problems: &mut Problems) -> Vec<Layer> {
    texts.iter().filter_map(|text| layer(text, files, schema, problems)).collect()
}

fn layer(text: &str, files: &[Layer], schema: &Value, problems: &mut Problems) -> Option<Layer> {
    let Override { source, keys, key, value } = parse_override(text, problems)?;
    let dotted = keys.join(".");
    let part = shape::schema_at(schema, &dotted);
    let single = |source: &Arc<Source>| tree::parse_for(source, value.clone(), part);
    let node = match part.map(|part| (shape::parse(part), part)) {
        // Kinds by name or as tables.
        Some((Shape::Table { kinds: true, .. }, _)) => {
            let pieces = split_at_commas(&source.text, value.clone());
            let list = |nodes| Node { tree: Tree::Array(nodes), location: location(&source, value.clone()) };
            let nodes = || pieces.iter().map(|span| tree::parse_value(&source, span.clone(), false)).collect();
            (pieces.len() > 1).then(|| list(nodes()))
        }
        None | Some((Shape::Table { .. } | Shape::Map { .. } | Shape::SweptValues, _)) => None,
        _ if keys.first().is_some_and(|first| first == VALUES[0]) => None,
        Some((shape, _)) => {
            let numbers = match shape {
                Shape::Integer { .. } | Shape::Number { .. } => true,
                // Text may contain two dots, too, such as a path.
                Shape::Scalar => {
                    text[value.clone()].trim().split("..").next().is_some_and(|from| from.parse::<f64>().is_ok())
                }
                _ => false,
            };
            if numbers && text[value.clone()].contains("..") {
                Some(range(&source, value.clone(), &dotted, problems)?)
            } else {
                let pieces = split_at_commas(&source.text, value.clone());
                let one = single(&source);
                let swept = files.iter().any(|layer| {
                    let path = format!("{}.{}.{dotted}", VALUES[0], VALUES[1]);
                    tree::find(&layer.entries, &path).is_some() || quoted(&layer.entries, &dotted)
                });
                let list = |nodes| Node { tree: Tree::Array(nodes), location: location(&source, value.clone()) };
                match (&one.tree, &shape) {
                    (Tree::Table(_), _) if numbers => Some(one),
                    (Tree::Array(_), shape) if pieces.len() == 1 && !matches!(shape, Shape::Array { .. }) => Some(one),
                    _ if pieces.len() > 1 => {
                        let nodes = pieces.into_iter().map(|span| tree::parse_for(&source, span, part));
                        Some(list(nodes.collect()))
                    }
                    _ if swept => Some(list(vec![one])),
                    _ => None,
                }
            }
        }
    };
    let entry = match node {
        Some(node) => {
            let path: Vec<String> = VALUES.iter().map(|part| (*part).to_owned()).chain(keys).collect();
            nest(&path, &key, node)?
        }
        None => nest(&keys, &key, single(&source))?,
    };
    Some(Layer { entries: vec![entry], source, directory: None })
}

fn location(source: &Arc<Source>, span: Range<usize>) -> Location {
    Location { source: source.clone(), span }
}

/// `true` if a layer sweeps the key as a quoted, dotted name.
fn quoted(entries: &[Entry], key: &str) -> bool {
    let values = tree::find(entries, &VALUES.join("."));
    matches!(values.map(|entry| &entry.node.tree), Some(Tree::Table(inner)) if inner.iter().any(|entry| entry.key == key))
}

/// Spans between commas outside quotes and brackets.
pub(super) fn split_at_commas(text: &str, span: Range<usize>) -> Vec<Range<usize>> {
    let (mut found, mut start, mut depth, mut quote) = (Vec::new(), span.start, 0i32, None);
    for (at, character) in text[span.clone()].char_indices() {
        let at = span.start + at;
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                found.push(start..at);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(start..span.end);
    found
}

/// Parses `1e-4..1e-2:5:log` into the table of a range.
fn range(source: &Arc<Source>, span: Range<usize>, key: &str, problems: &mut Problems) -> Option<Node> {
    let text = &source.text[span.clone()];
    let dots = text.find("..")?;
    let from = span.start..span.start + dots;
    let mut parts = Vec::new();
    let mut start = from.end + 2;
    for piece in text[dots + 2..].split(':') {
        parts.push(start..start + piece.len());
        start += piece.len() + 1;
    }
    if parts.len() > 3 || from.is_empty() || parts.iter().any(Range::is_empty) {
        let problem = Problem::new(key, "is not a valid range")
            .help("write from..to:steps, or from..to:steps:log, for example 1e-4..1e-2:5:log");
        problems.add(problem.at(Some(location(source, span))));
        return None;
    }
    let names = ["from", "to", "steps", "scale"];
    let entries = std::iter::once(from).chain(parts).zip(names).map(|(span, name)| Entry {
        key: name.to_owned(),
        key_location: location(source, span.clone()),
        node: tree::parse_value(source, span, name == "scale"),
    });
    Some(Node { tree: Tree::Table(entries.collect()), location: location(source, span) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::axes::{AxisValues, axes};
    use crate::experiment::schema;
    use proptest::prelude::*;

    /// Swept values of an override; `None` if it sets a single value.
    fn swept(text: &str) -> Option<Vec<Value>> {
        let mut problems = Problems::default();
        let layers = from_command_line(&[text.to_owned()], &[], schema::shared(), &mut problems);
        assert!(problems.is_empty(), "{problems}");
        let values = tree::find(&layers[0].entries, "sweep.values")?;
        let Tree::Table(entries) = &values.node.tree else { panic!("{values:?}") };
        match axes(entries, schema::shared()).remove(0).values {
            AxisValues::List(list) => Some(list.into_iter().map(|swept| swept.value).collect()),
            AxisValues::Range(range) => Some(range.ends().to_vec()),
        }
    }

    fn values<T: Into<Value>>(list: impl IntoIterator<Item = T>) -> Option<Vec<Value>> {
        Some(list.into_iter().map(Into::into).collect())
    }

    #[test]
    fn lists_and_ranges_are_swept_and_a_single_value_is_set() {
        assert_eq!(swept("cleanup.every_steps=0,1,5"), values([0, 1, 5]));
        assert_eq!(swept("cleanup.every_steps=[0, 1]"), values([0, 1]));
        assert_eq!(swept("cleanup.every_steps=5"), None);
        assert_eq!(swept("experiment.device=cpu,cuda:1"), values(["cpu", "cuda:1"]));
        assert_eq!(swept("limits.frame_cache=16 MiB,\"1,5 GB\""), values(["16 MiB", "1,5 GB"]));
        assert_eq!(swept(r#"cleanup.actions=["heap"],["heap","pool"]"#), values([vec!["heap"], vec!["heap", "pool"]]));
        assert_eq!(swept(r#"cleanup.actions=["heap"]"#), None);
        assert_eq!(swept("optimizer.adamw.learning_rate=1e-4..1e-2:3:log"), values([1e-4, 1e-3, 1e-2]));
        assert_eq!(swept("limits.workers=0..4:3"), values([0, 2, 4]));
        assert_eq!(swept("limits.workers={ from = 1, to = 3, steps = 3 }"), values([1, 2, 3]));
        assert_eq!(swept("limits.workers=1..3:9"), values([1, 2, 3]), "equal integers are merged");
        assert_eq!(swept("sweep.repeats=3"), None);
        let kinds = |text: &str| swept(text).map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(
            kinds("optimizer=adamw,{ sgd = { momentum = 0.5 } }").unwrap(),
            ["\"adamw\"", r#"{"sgd":{"momentum":0.5}}"#]
        );
        assert_eq!(kinds("optimizer={ sgd = {} }"), None);
    }

    proptest! {
        #[test]
        fn a_range_has_its_ends_its_order_and_its_number_of_steps(
            from in 1e-6f64..1.0, width in 1e-3f64..1e3, steps in 2u64..50, log in any::<bool>(),
        ) {
            let to = from + width;
            let scale = if log { "log" } else { "linear" };
            let values = swept(&format!("optimizer.adamw.weight_decay={from:?}..{to:?}:{steps}:{scale}")).unwrap();
            let numbers: Vec<f64> = values.iter().map(|value| value.as_f64().unwrap()).collect();
            prop_assert_eq!(numbers.len() as u64, steps);
            prop_assert_eq!((numbers[0], numbers[numbers.len() - 1]), (from, to));
            prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
            if log {
                let ratios: Vec<f64> = numbers.windows(2).map(|pair| pair[1] / pair[0]).collect();
                prop_assert!(ratios.iter().all(|ratio| (ratio / ratios[0] - 1.0).abs() < 1e-6));
            }
        }
    }
}
