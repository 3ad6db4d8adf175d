//! What does `xrun compare --json` print: several runs side by side?

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::axis::Axis;
use super::format::{Best, MemorySummary};
use super::loss::KindLoss;
use super::verdict::Judgement;
use xrun_core::task::metric::Better;

/// Several runs side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The version of this document's format.
    pub version: u32,
    /// The runs, in the order in which they were named.
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
    /// The experiment's name.
    pub experiment: String,
    /// The run's id: the name of its folder.
    pub run: String,
    /// The run's folder, as it was named.
    pub path: String,
    /// `finished`, `running`, `killed`, `time limit`, …
    pub state: String,
    /// Why it ended so.
    pub message: String,
    /// RFC 3339, UTC.
    pub started: Option<String>,
    /// What identifies experiment, data and program: see `fingerprint` in `manifest.json`.
    pub fingerprint: Option<String>,
    /// Optimiser steps done.
    pub steps: Option<u64>,
    /// Optimiser steps that were planned.
    pub steps_planned: Option<u64>,
    /// Seconds of work, without the pauses between processes.
    pub seconds: f64,
    /// Steps a second within the training parts.
    pub steps_per_second: Option<f64>,
    /// Images, sequences or clips a second within the training parts.
    pub items_per_second: Option<f64>,
    /// The loss of each kind of step, most steps first.
    pub losses: Vec<KindLoss>,
    /// Each metric by its name.
    pub metrics: BTreeMap<String, ComparedMetric>,
    /// The checkpoint with the best validation.
    pub best: Option<Best>,
    /// The highest that memory was.
    pub memory: MemorySummary,
    /// The verdict on memory.
    pub verdict: Option<Judgement>,
    /// The buffer that explains the growth.
    pub growing_owner: Option<String>,
    /// Of the heap, resident memory and the device.
    pub growth: Vec<Growth>,
    /// What of its files was not read, for people: numbers above are without it.
    pub damage: Vec<String>,
}

/// A metric over the validations of a run, the one before training left out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedMetric {
    /// After the last validation; `null` where there was none, or it could not be measured there.
    pub last: Option<f64>,
    /// The least of all validations.
    pub lowest: Option<f64>,
    /// The greatest of all validations.
    pub highest: Option<f64>,
    /// `null` where the plan does not say it.
    pub better: Option<Better>,
    /// The best of all validations; `null` where no way is better.
    pub best: Option<f64>,
}

/// How a kind of memory went, as in verdict.json.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// `heap`, `resident`, `device_in_use`, `device_reserved`.
    pub series: String,
    /// What the series does.
    pub verdict: Judgement,
    /// Bytes over the floors.
    pub growth: f64,
    /// What a slope is by: steps; of a command whose steps are not known, milliseconds.
    pub axis: Axis,
    /// Bytes a step, and the ends of its interval.
    pub slope: Option<f64>,
    /// The lower end of the slope's interval.
    pub slope_low: Option<f64>,
    /// The upper end of the slope's interval.
    pub slope_high: Option<f64>,
}
