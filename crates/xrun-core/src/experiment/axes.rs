//! Axes of a sweep: parsing of `[sweep.values]` into lists and ranges.

use serde::Deserialize;
use serde_json::{Number, Value};

use super::shape::{self, Shape};
use super::tree::join;
use super::tree::{Entry, Node, Tree, location_of};
use crate::experiment::number_range::NumberRange;
use crate::problem::{Location, Problem};

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

/// A range as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRange {
    from: Number,
    to: Number,
    steps: Option<u64>,
    #[serde(default)]
    scale: Scale,
}

#[derive(Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scale {
    #[default]
    Linear,
    Log,
}

impl AxisRange {
    /// Parses `{ from, to, steps, scale }` for a key of this shape.
    ///
    /// # Errors
    /// The first problem of the range.
    pub(crate) fn read(node: &Node, shape: &Shape<'_>, key: &str) -> Result<Self, Problem> {
        const FORM: &str = "write `{ from = 1, to = 9, steps = 5 }`, with `scale = \"log\"` for a logarithmic range";
        let wrong = |end: &str, message: String, help: &str| {
            let Tree::Table(entries) = &node.tree else { return Problem::new(key, message) };
            let entry = entries.iter().find(|entry| entry.key == end);
            let location = entry.map_or(&node.location, |entry| &entry.node.location);
            Problem::new(key, message).help(help).at(Some(location.clone()))
        };
        if !matches!(shape, Shape::Integer { .. } | Shape::Number { .. } | Shape::Scalar) {
            let message = format!("expected {}, found a range of numbers", shape.words());
            return Err(wrong("", message, &format!("write a list: `[{}]`", shape.example())));
        }
        let written: WrittenRange = serde_json::from_value(value(node))
            .map_err(|error| wrong("", format!("is not a valid range: {error}"), FORM))?;
        // Integer ends give integer values, where the key takes any.
        let integer = match shape {
            Shape::Integer { .. } => true,
            Shape::Scalar => written.from.is_i64() && written.to.is_i64(),
            _ => false,
        };
        let end = |number: &Number| number.as_f64().unwrap_or_default();
        let (from, to) = (end(&written.from), end(&written.to));
        let logarithmic = written.scale == Scale::Log;
        if from >= to {
            return Err(wrong("to", format!("the end of the range, {to}, is not above its start, {from}"), FORM));
        }
        if logarithmic && from <= 0.0 {
            return Err(wrong("from", format!("a logarithmic range cannot start at {from}"), "start above 0"));
        }
        if integer && (from.fract() != 0.0 || to.fract() != 0.0) {
            return Err(wrong("", "this key takes integers, so both ends of the range must be integers".into(), FORM));
        }
        if let Some(steps) = written.steps.filter(|steps| !(2..=VALUES_MAX as u64).contains(steps)) {
            return Err(wrong(
                "steps",
                format!("`steps`: expected an integer from 2 to {VALUES_MAX}, found {steps}"),
                FORM,
            ));
        }
        Ok(Self {
            numbers: NumberRange { from, to, logarithmic, integer },
            steps: written.steps,
            location: node.location.clone(),
        })
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

/// Axes of a checked `[sweep.values]`.
pub fn axes(entries: &[Entry], schema: &Value) -> Vec<Axis> {
    let mut found = Vec::new();
    collect(entries, schema, "", &mut found);
    found
}

fn collect(entries: &[Entry], schema: &Value, path: &str, into: &mut Vec<Axis>) {
    for entry in entries {
        let key = join(path, &entry.key);
        let Some(part) = shape::key_of(schema, &entry.key) else { continue };
        let shape = shape::parse(part);
        let values = match (&entry.node.tree, &shape) {
            (Tree::Table(inner), Shape::Table { .. } | Shape::Map { .. }) => {
                collect(inner, part, &key, into);
                continue;
            }
            (Tree::Table(_), _) => match AxisRange::read(&entry.node, &shape, &key) {
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
