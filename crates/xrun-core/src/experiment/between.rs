//! A range of numbers that a sweep draws from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Numbers between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Between {
    /// The lower end, which belongs to it.
    pub from: f64,
    /// The upper end, which belongs to it.
    pub to: f64,
    /// Evenly spread along their logarithms.
    pub logarithmic: bool,
    /// Whole numbers only.
    pub integer: bool,
}

impl Between {
    /// The value at a share of the way, 0 to 1: along the numbers, or along their logarithms.
    pub fn at(&self, share: f64) -> Value {
        let between = |from: f64, to: f64| from + (to - from) * share;
        let number = match (share, self.logarithmic) {
            (0.0, _) => self.from,
            (1.0, _) => self.to,
            (_, true) => readable(between(self.from.ln(), self.to.ln()).exp()),
            (_, false) => readable(between(self.from, self.to)),
        };
        let number = number.clamp(self.from, self.to);
        if self.integer { Value::from(number.round() as i64) } else { Value::from(number) }
    }

    /// How far along the way a value stands, 0 to 1. What is no number stands at the start.
    pub fn share(&self, value: &Value) -> f64 {
        let number = value.as_f64().unwrap_or(self.from);
        let along = |number: f64, from: f64, to: f64| (number - from) / (to - from);
        let share = match self.logarithmic {
            true => along(number.max(f64::MIN_POSITIVE).ln(), self.from.ln(), self.to.ln()),
            false => along(number, self.from, self.to),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Twelve digits: 0.3, not 0.30000000000000004.
fn readable(number: f64) -> f64 {
    format!("{number:.11e}").parse().unwrap_or(number)
}
