//! What does `xrun compare --json` print: several runs side by side?

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::axis::Axis;
use super::format::{Best, MemorySummary};
use super::loss::KindLoss;
use super::metric::Better;
use super::verdict::Judgement;

/// Several runs side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    pub version: u32,
    pub runs: Vec<ComparedRun>,
    /// Keys of the resolved experiments that are not the same in all runs.
    pub differences: Vec<Difference>,
    /// Code, data, machine and device, where they are not the same.
    pub surroundings: Vec<Difference>,
}

/// Something that is not the same in all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// A dotted key such as `cleanup.every_steps`, or a name such as `machine: processor`.
    pub key: String,
    /// Of each run, in the order of `runs`; `null` where it has none.
    pub values: Vec<Option<Value>>,
}

/// One of the runs. What is not known is `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedRun {
    pub experiment: String,
    pub run: String,
    pub path: String,
    /// `finished`, `running`, `killed`, `time limit`, …
    pub state: String,
    /// Why it ended so.
    pub message: String,
    /// RFC 3339, UTC.
    pub started: Option<String>,
    pub fingerprint: Option<String>,
    pub steps: Option<u64>,
    pub steps_planned: Option<u64>,
    pub seconds: f64,
    pub steps_per_second: Option<f64>,
    pub items_per_second: Option<f64>,
    /// The loss of each kind of step, most steps first.
    #[serde(default)]
    pub losses: Vec<KindLoss>,
    pub metrics: BTreeMap<String, ComparedMetric>,
    /// The checkpoint with the best validation.
    pub best: Option<Best>,
    pub memory: MemorySummary,
    pub verdict: Option<Judgement>,
    /// The buffer that explains the growth.
    pub growing_owner: Option<String>,
    /// Of the heap, resident memory and the device.
    pub growth: Vec<Growth>,
    /// What of its files was not read, for people: numbers above are without it.
    #[serde(default)]
    pub damage: Vec<String>,
}

/// A metric over the validations of a run, the one before training left out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedMetric {
    pub last: Option<f64>,
    pub lowest: Option<f64>,
    pub highest: Option<f64>,
    /// `null` where the plan does not say it.
    #[serde(default)]
    pub better: Option<Better>,
    #[serde(default)]
    pub best: Option<f64>,
}

/// How a kind of memory went, as in verdict.json.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// `heap`, `resident`, `device_in_use`, `device_reserved`.
    pub series: String,
    pub verdict: Judgement,
    /// Bytes over the floors.
    pub growth: f64,
    /// What a slope is by: steps; of a command whose steps are not known, milliseconds.
    #[serde(default)]
    pub axis: Axis,
    /// Bytes a step, and the ends of its interval.
    pub slope: Option<f64>,
    pub slope_low: Option<f64>,
    pub slope_high: Option<f64>,
}
