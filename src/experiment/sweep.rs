//! What is swept: which keys take which values, and how are they put together?

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One experiment for each of many values, run and compared by `xrun sweep`. `xrun FILE` leaves the section out and
/// runs the experiment itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("additionalProperties" = by_key()))]
pub struct Sweep {
    /// How the values of several keys are put together.
    pub mode: Mode,
    /// How many points are drawn in mode `random`, which needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub samples: Option<u64>,
    /// How often each point is run, to measure the noise: the second time with the experiment's seed plus 1, and so on.
    /// 1 measures no noise.
    #[schemars(range(min = 1, max = 1000))]
    pub repeats: u64,
    /// Seeds the order in which points are run, and what mode `random` draws.
    pub seed: u32,
    /// For each swept key its values: a list, or a range `{ from = 1e-4, to = 1e-2, steps = 5, scale = "log" }`
    /// (`scale` is `linear` if it is not given; without `steps`, in mode `random`, any number between). Keys are
    /// written as for `-s`: `"cleanup.every_steps" = [0, 1, 5]`, in quotes or not, in this table or directly below
    /// `[sweep]`.
    pub values: Values,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { mode: Mode::Grid, samples: None, repeats: 1, seed: 0, values: Values::default() }
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
}

impl Mode {
    /// As in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Grid => "grid",
            Self::Zip => "zip",
            Self::Random => "random",
        }
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
