//! `[sweep]`: the swept keys, their values, and the method of combination or search.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use strum::IntoStaticStr;

use crate::settings;
use crate::task::metric::Direction;

settings! {
    /// Variations of the experiment (trials), run and compared by `xrun sweep`. `xrun FILE` ignores the section.
    #[schemars(extend("additionalProperties" = by_key()))]
    pub struct Sweep {
        /// Combination of the values of several keys.
        pub method: SweepMethod = SweepMethod::Grid,
        /// Number of trials to draw; required by the methods `random`, `asha` and `tpe`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 10_000))]
        pub trials: Option<u64> = None,
        /// Number of runs per trial, to measure noise; the second run uses the experiment's seed plus 1, and so on.
        #[schemars(range(min = 1, max = 1000))]
        pub repeats: u64 = 1,
        /// Seed of the order of trials and of the draws of `random`, `asha` and `tpe`.
        pub seed: u32 = 0,
        /// Validation metric to optimise; required by `asha` and `tpe`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub metric: Option<String> = None,
        /// Better direction of the metric; if absent, the metric's own.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub direction: Option<Direction> = None,
        /// Settings of method `asha`.
        #[serde(skip_serializing_if = "crate::settings::is_default")]
        pub asha: Asha = Asha::default(),
        /// Settings of method `tpe`.
        #[serde(skip_serializing_if = "crate::settings::is_default")]
        pub tpe: Tpe = Tpe::default(),
        /// Values of each swept key: a list, or a range `{ from = 1e-4, to = 1e-2, steps = 5, scale = "log" }`. The default scale
        /// is `linear`; without `steps`, the methods `random`, `asha` and `tpe` draw any number in the range. Keys are written as for
        /// `-s`, `"cleanup.every_steps" = [0, 1, 5]`, with or without quotes, in this table or directly below `[sweep]`.
        pub values: Values = Values::default(),
    }
}

/// Asynchronous successive halving: every trial is trained for a few steps, and the best at each rung continue to the next,
/// from their checkpoints and with the full-length learning-rate schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Asha {
    /// Step of the first rung. Rungs are rounded up to steps with a validation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_steps: Option<u64>,
    /// Ratio of the steps of consecutive rungs, and reciprocal of the fraction of trials that are promoted.
    #[schemars(range(min = 2, max = 1000))]
    pub reduction_factor: u64,
}

impl Default for Asha {
    fn default() -> Self {
        Self { min_steps: None, reduction_factor: 4 }
    }
}

settings! {
    /// Tree-structured Parzen estimator: the first trials are drawn as with method `random`, later ones close to the best earlier
    /// trials and far from the others.
    pub struct Tpe {
        /// Number of random trials at the start.
        #[schemars(range(min = 1, max = 1000))]
        pub startup_trials: u64 = 10,
        /// Fraction of the earlier trials that count as good.
        #[schemars(range(min = 0.01, max = 0.9))]
        pub gamma: f64 = 0.15,
        /// Number of candidates drawn close to the good trials; the most promising one is run.
        #[schemars(range(min = 1, max = 1000))]
        pub candidates: u64 = 24,
    }
}

/// Combination of the values of several keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SweepMethod {
    /// Cartesian product of all values.
    #[default]
    Grid,
    /// The first value of each key, then the second of each, and so on.
    Zip,
    /// `trials` trials, each with a random value of every key.
    Random,
    /// As `random`, but only trials with the best validations are trained to the end (asynchronous successive halving).
    Asha,
    /// `trials` sequential trials, each drawn from the results of the earlier ones (tree-structured Parzen estimator).
    Tpe,
}

impl SweepMethod {
    /// Value in the file.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// `true` for modes whose trials depend on earlier results.
    pub fn is_search(self) -> bool {
        matches!(self, Self::Asha | Self::Tpe)
    }
}

/// Values by key as nested tables: `cleanup.every_steps` is in the table `cleanup`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Values(pub Map<String, Value>);

/// Format in the schema that marks [`Values`] for `xrun check`.
pub const FORMAT: &str = "sweep-values";

impl JsonSchema for Values {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Values".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "format": FORMAT,
            "additionalProperties": by_key()
        })
    }
}

/// Schema of the values of a key, or of a table of keys.
fn by_key() -> Value {
    serde_json::json!({ "anyOf": [ { "type": "array", "minItems": 1 }, { "type": "object" } ] })
}
