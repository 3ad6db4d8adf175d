//! Axes of a sweep: parsing of `[sweep.values]` into lists and ranges.

use serde_json::Value;

use super::shape::{self, Shape};
use super::tree::{Entry, Node, Tree, location_of};
use super::validate::{found, join};
use crate::experiment::number_range::NumberRange;
use crate::problem::{Location, Problem, nearest};

/// Maximum number of values of one key.
pub const VALUES_MAX: usize = 10_000;

/// A swept key and its values.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Dotted key: `cleanup.every_steps`.
    pub key: String,
    /// Its values.
    pub values: AxisValues,
    /// Location of the key.
    pub location: Location,
}

/// Values of an axis.
#[derive(Clone, Debug)]
pub enum AxisValues {
    /// A list, in the order of the file.
    List(Vec<SweptValue>),
    /// A continuous range; only in modes that draw.
    Range(AxisRange),
}

/// One value of a swept key.
#[derive(Clone, Debug)]
pub struct SweptValue {
    /// The value.
    pub value: Value,
    /// Location for problems.
    pub location: Location,
}

/// A range of numbers as written in the file.
#[derive(Clone, Debug)]
pub struct AxisRange {
    numbers: NumberRange,
    steps: Option<u64>,
    /// Location for problems.
    pub location: Location,
}

impl AxisRange {
    /// Parses `{ from, to, steps, scale }` for a key of this shape.
    ///
    /// # Errors
    /// All problems of the range.
    pub(crate) fn read(
        entries: &[Entry],
        location: &Location,
        shape: &Shape<'_>,
        key: &str,
    ) -> Result<Self, Vec<Problem>> {
        const FORM: &str = "write `{ from = 1, to = 9, steps = 5 }`, with `scale = \"log\"` for a logarithmic range";
        const KEYS: [&str; 4] = ["from", "to", "steps", "scale"];
        let mut problems = Vec::new();
        let mut wrong = |message: String, help: String, at: &Location| {
            problems.push(Problem::new(key, message).help(help).at(Some(at.clone())));
        };
        let whole = |entry: &Entry| {
            !["from", "to"].contains(&entry.key.as_str()) || matches!(entry.node.tree, Tree::Integer(_))
        };
        let integer = match shape {
            Shape::Integer { .. } => true,
            // Integer ends give integer values.
            Shape::Scalar => entries.iter().all(whole),
            _ => false,
        };
        if !integer && !matches!(shape, Shape::Number { .. } | Shape::Scalar) {
            let message = format!("expected {}, found a range of numbers", shape.words());
            wrong(message, format!("write a list: `[{}]`", shape.example()), location);
            return Err(problems);
        }
        for entry in entries.iter().filter(|entry| !KEYS.contains(&entry.key.as_str())) {
            let near = nearest(&entry.key, KEYS).map_or_else(|| FORM.into(), |near| format!("did you mean `{near}`?"));
            wrong(format!("unknown key `{}` in a range", entry.key), near, &entry.key_location);
        }
        let entry = |name: &str| entries.iter().find(|entry| entry.key == name);
        let mut end = |name: &str| match entry(name).map(|entry| (&entry.node.tree, &entry.node.location)) {
            Some((Tree::Integer(number), _)) => Some(*number as f64),
            Some((Tree::Float(number), _)) if number.is_finite() => Some(*number),
            Some((tree, at)) => {
                wrong(format!("`{name}`: expected a number, found {}", found(tree)), FORM.into(), at);
                None
            }
            None => {
                wrong(format!("the range has no `{name}`"), FORM.into(), location);
                None
            }
        };
        let (from, to) = (end("from"), end("to"));
        let steps = match entry("steps").map(|entry| (&entry.node.tree, &entry.node.location)) {
            Some((Tree::Integer(steps), _)) if (2..=VALUES_MAX as i64).contains(steps) => Some(*steps as u64),
            Some((tree, at)) => {
                let message = format!("`steps`: expected an integer from 2 to {VALUES_MAX}, found {}", found(tree));
                wrong(message, FORM.into(), at);
                None
            }
            None => None,
        };
        let logarithmic = match entry("scale").map(|entry| (&entry.node.tree, &entry.node.location)) {
            None => false,
            Some((Tree::Text(text), _)) if text == "linear" => false,
            Some((Tree::Text(text), _)) if text == "log" => true,
            Some((tree, at)) => {
                let message = format!("`scale`: expected \"linear\" or \"log\", found {}", found(tree));
                wrong(message, FORM.into(), at);
                false
            }
        };
        if let (Some(from), Some(to)) = (from, to) {
            let at = entry("to").map_or(location, |entry| &entry.node.location);
            if from >= to {
                wrong(format!("the end of the range, {to}, is not above its start, {from}"), FORM.into(), at);
            }
            if logarithmic && from <= 0.0 {
                let at = entry("from").map_or(location, |entry| &entry.node.location);
                wrong(format!("a logarithmic range cannot start at {from}"), "start above 0".into(), at);
            }
            if integer && (from.fract() != 0.0 || to.fract() != 0.0) {
                wrong(
                    "this key takes integers, so both ends of the range must be integers".into(),
                    FORM.into(),
                    location,
                );
            }
        }
        match (from, to) {
            (Some(from), Some(to)) if problems.is_empty() => {
                Ok(Self { numbers: NumberRange { from, to, logarithmic, integer }, steps, location: location.clone() })
            }
            _ => Err(problems),
        }
    }

    /// Both ends.
    pub fn ends(&self) -> [Value; 2] {
        [0.0, 1.0].map(|fraction| self.numbers.at(fraction))
    }

    /// Range without its steps and location.
    pub fn numbers(&self) -> NumberRange {
        self.numbers
    }

    /// Value at a fraction (0..1) of the range, on its scale.
    pub fn at(&self, fraction: f64) -> Value {
        self.numbers.at(fraction)
    }

    /// Values at all steps without duplicates, which rounding to integers may cause; `None` without `steps`.
    pub fn list(&self) -> Option<Vec<SweptValue>> {
        let steps = self.steps?;
        let mut values: Vec<Value> = (0..steps).map(|step| self.at(step as f64 / (steps - 1) as f64)).collect();
        values.dedup();
        Some(values.into_iter().map(|value| SweptValue { value, location: self.location.clone() }).collect())
    }
}

/// Axes in alphabetical order of their keys, from a checked `[sweep.values]`.
pub fn axes(entries: &[Entry], schema: &Value) -> Vec<Axis> {
    let mut found = Vec::new();
    collect(entries, schema, "", &mut found);
    found.sort_by(|a, b| a.key.cmp(&b.key));
    found
}

fn collect(entries: &[Entry], schema: &Value, path: &str, into: &mut Vec<Axis>) {
    for entry in entries {
        let key = join(path, &entry.key);
        let Some(part) = shape::key_of(schema, &entry.key) else { continue };
        let shape = shape::parse(part);
        let values = match (&entry.node.tree, &shape) {
            (Tree::Table(inner), Shape::Table { .. } | Shape::Free { .. }) => {
                collect(inner, part, &key, into);
                continue;
            }
            (Tree::Table(inner), _) => match AxisRange::read(inner, &entry.node.location, &shape, &key) {
                Ok(range) => range.list().map_or(AxisValues::Range(range), AxisValues::List),
                Err(_) => continue,
            },
            (Tree::Array(nodes), _) => AxisValues::List(
                nodes.iter().map(|node| SweptValue { value: value(node), location: node.location.clone() }).collect(),
            ),
            _ => continue,
        };
        into.push(Axis { key, values, location: location_of(entry).clone() });
    }
}

fn value(node: &Node) -> Value {
    match &node.tree {
        Tree::Table(entries) => entries.iter().map(|entry| (entry.key.clone(), value(&entry.node))).collect(),
        Tree::Array(list) => list.iter().map(value).collect(),
        Tree::Text(text) | Tree::Date(text) => Value::from(text.as_str()),
        Tree::Integer(number) => Value::from(*number),
        Tree::Float(number) => Value::from(*number),
        Tree::Boolean(truth) => Value::from(*truth),
    }
}
