//! Ranges of numbers that a sweep draws from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Closed range of numbers with a scale.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NumberRange {
    /// Lower end, inclusive.
    pub from: f64,
    /// Upper end, inclusive.
    pub to: f64,
    /// `true` for a logarithmic scale.
    pub logarithmic: bool,
    /// `true` for integers only.
    pub integer: bool,
}

impl NumberRange {
    /// Value at a fraction (0..1) of the range, on its scale.
    pub fn at(&self, fraction: f64) -> Value {
        let between = |from: f64, to: f64| from + (to - from) * fraction;
        let number = match (fraction, self.logarithmic) {
            (0.0, _) => self.from,
            (1.0, _) => self.to,
            (_, true) => readable(between(self.from.ln(), self.to.ln()).exp()),
            (_, false) => readable(between(self.from, self.to)),
        };
        let number = number.clamp(self.from, self.to);
        if self.integer { Value::from(number.round() as i64) } else { Value::from(number) }
    }

    /// Inverse of [`at`](Self::at): the fraction (0..1) of the range at a value; 0 for a value that is not a number.
    pub fn fraction(&self, value: &Value) -> f64 {
        let number = value.as_f64().unwrap_or(self.from);
        let along = |number: f64, from: f64, to: f64| (number - from) / (to - from);
        let fraction = match self.logarithmic {
            true => along(number.max(f64::MIN_POSITIVE).ln(), self.from.ln(), self.to.ln()),
            false => along(number, self.from, self.to),
        };
        if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Rounds to twelve digits: 0.3, not 0.30000000000000004.
fn readable(number: f64) -> f64 {
    format!("{number:.11e}").parse().unwrap_or(number)
}
