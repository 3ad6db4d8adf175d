//! What is swept: which keys take which values, and how are they put together?

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::task::metric::Better;

/// One experiment for each of many values, run and compared by `xrun sweep`. `xrun FILE` leaves the section out and
/// runs the experiment itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("additionalProperties" = by_key()))]
pub struct Sweep {
    /// How the values of several keys are put together.
    pub mode: Mode,
    /// How many points are drawn in the modes `random`, `asha` and `tpe`, which need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub samples: Option<u64>,
    /// How often each point is run, to measure the noise: the second time with the experiment's seed plus 1, and so on.
    /// 1 measures no noise.
    #[schemars(range(min = 1, max = 1000))]
    pub repeats: u64,
    /// Seeds the order in which points are run, and what the modes `random`, `asha` and `tpe` draw.
    pub seed: u32,
    /// The validation metric by which `asha` and `tpe` search, which need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Which values of the metric are better; if absent, the metric says so itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub better: Option<Better>,
    /// How mode `asha` searches.
    #[serde(skip_serializing_if = "Asha::is_default")]
    pub asha: Asha,
    /// How mode `tpe` searches.
    #[serde(skip_serializing_if = "Tpe::is_default")]
    pub tpe: Tpe,
    /// For each swept key its values: a list, or a range `{ from = 1e-4, to = 1e-2, steps = 5, scale = "log" }`
    /// (`scale` is `linear` if it is not given; without `steps`, in the modes `random`, `asha` and `tpe`, any number
    /// between). Keys are
    /// written as for `-s`: `"cleanup.every_steps" = [0, 1, 5]`, in quotes or not, in this table or directly below
    /// `[sweep]`.
    pub values: Values,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            mode: Mode::Grid,
            samples: None,
            repeats: 1,
            seed: 0,
            metric: None,
            better: None,
            asha: Asha::default(),
            tpe: Tpe::default(),
            values: Values::default(),
        }
    }
}

/// How mode `asha` searches: every point is trained for a few steps, and of those that came to a rung the best go on to
/// the next. They go on from their checkpoints, with the schedule of all steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Asha {
    /// The step of the first rung. A rung is moved to the next step after which the run is validated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_steps: Option<u64>,
    /// Each rung is at so many times the steps of the one before, and one point in so many goes on to it.
    #[schemars(range(min = 2, max = 1000))]
    pub reduction_factor: u64,
}

impl Default for Asha {
    fn default() -> Self {
        Self { min_steps: None, reduction_factor: 4 }
    }
}

impl Asha {
    /// Nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How mode `tpe` searches: the first points are drawn as in mode `random`; each later point is drawn close to the best
/// ones before it, and far from the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tpe {
    /// Points that are drawn without a look at results.
    #[schemars(range(min = 1, max = 1000))]
    pub startup: u64,
    /// The share of the points before that count as good.
    #[schemars(range(min = 0.01, max = 0.9))]
    pub gamma: f64,
    /// How many points are drawn close to the good ones, of which the most promising is run.
    #[schemars(range(min = 1, max = 1000))]
    pub candidates: u64,
}

impl Default for Tpe {
    fn default() -> Self {
        Self { startup: 10, gamma: 0.15, candidates: 24 }
    }
}

impl Tpe {
    /// Nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How the values of several keys are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Every value of each key with every value of all others.
    #[default]
    Grid,
    /// The first value of each key, then the second of each, and so on.
    Zip,
    /// `samples` points, for each of which every key draws one of its values.
    Random,
    /// As `random`, but only the points with the best validations are trained to the end (asynchronous successive halving).
    Asha,
    /// `samples` points one after another, each drawn by the results of those before it (tree-structured Parzen estimator).
    Tpe,
}

impl Mode {
    /// As in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Grid => "grid",
            Self::Zip => "zip",
            Self::Random => "random",
            Self::Asha => "asha",
            Self::Tpe => "tpe",
        }
    }

    /// Which points are run, or how far, depends on results.
    pub fn is_search(self) -> bool {
        matches!(self, Self::Asha | Self::Tpe)
    }
}

/// Values by key, as tables within tables: `cleanup.every_steps` stands in a table `cleanup`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Values(pub Map<String, Value>);

/// What marks the schema of [`Values`] for `xrun check`.
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

/// Values of a key, or a table with keys in it.
fn by_key() -> Value {
    serde_json::json!({ "anyOf": [ { "type": "array", "minItems": 1 }, { "type": "object" } ] })
}
