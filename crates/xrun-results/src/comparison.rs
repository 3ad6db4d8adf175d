//! Document printed by `xrun compare --json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::axis::Axis;
use super::format::{Best, MemorySummary};
use super::loss::KindLoss;
use super::verdict::{LineDamage, TrainingVerdictWord, VerdictWord};
use xrun_core::task::metric::Direction;

/// Runs compared side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The version of this document's format.
    pub version: u32,
    /// The runs, in the order of the command line.
    pub runs: Vec<ComparedRun>,
    /// Keys of the resolved experiments whose values differ; `command` for the command lines of watched commands.
    pub differences: Vec<KeyDifference>,
    /// Differences in code, data, machine and device.
    pub environment: Vec<KeyDifference>,
}

/// A key whose value is not the same in all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeyDifference {
    /// A dotted key such as `cleanup.every_steps`, or a name such as `machine: processor`.
    pub key: String,
    /// Value of each run, in the order of `runs`; `null` if it has none.
    pub values: Vec<Option<Value>>,
}

/// One compared run. Unknown values are `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedRun {
    /// The experiment's name.
    pub experiment: String,
    /// The run's id: the name of its directory.
    pub run: String,
    /// The run's directory, as it was named on the command line.
    pub path: String,
    /// Name by what differs from the other runs: `lr 0.005, epochs 3`.
    pub label: String,
    /// Number of its setting, from 1. Runs whose experiments differ in the seed only have the same one.
    pub setting: usize,
    /// SHA-256 of `metrics.jsonl`; runs with the same one are identical. `null` if the run has no metrics.
    pub metrics_digest: Option<String>,
    /// `true` for a watched command, whose heap is the memory footprint of its processes.
    pub watched: bool,
    /// `finished`, `running`, `killed`, `time limit`, …
    pub state: String,
    /// Why the run ended.
    pub message: String,
    /// Start time: RFC 3339, UTC.
    pub started: Option<String>,
    /// SHA-256 that identifies experiment, data and program; see `fingerprint` in `manifest.json`.
    pub fingerprint: Option<String>,
    /// Number of optimiser steps done.
    pub steps: Option<u64>,
    /// Number of optimiser steps planned.
    pub steps_planned: Option<u64>,
    /// Working time in seconds, without the pauses between processes.
    pub seconds: f64,
    /// Steps per second of training alone.
    pub steps_per_second: Option<f64>,
    /// Images, sequences or clips per second of training alone.
    pub items_per_second: Option<f64>,
    /// Loss of each kind of step; the kind with the most steps first.
    pub losses: Vec<KindLoss>,
    /// Metrics by name.
    pub metrics: BTreeMap<String, ComparedMetric>,
    /// Checkpoint with the best validation.
    pub best: Option<Best>,
    /// Verdict on training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingVerdictWord>,
    /// Memory peaks.
    pub memory: MemorySummary,
    /// The verdict on memory.
    pub verdict: Option<VerdictWord>,
    /// Buffer that explains the growth.
    pub growing_owner: Option<String>,
    /// Growth of the heap, of RSS and of device memory.
    pub growth: Vec<SeriesGrowth>,
    /// Files or lines that could not be read; the numbers above do not include them.
    pub damage: Vec<String>,
    /// Files whose lines are not those that were written; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub line_damage: Vec<LineDamage>,
}

/// A metric over all validations of a run except the one before training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedMetric {
    /// Value of the last validation; `null` if there was none or it could not be measured.
    pub last: Option<f64>,
    /// Minimum over all validations.
    pub lowest: Option<f64>,
    /// Maximum over all validations.
    pub highest: Option<f64>,
    /// Direction in which the metric is better; `null` if the plan does not state it.
    pub direction: Option<Direction>,
    /// Best value of all validations; `null` if neither direction is better.
    pub best: Option<f64>,
}

/// Growth of one kind of memory, from `verdict.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesGrowth {
    /// `heap`, `rss`, `device_in_use`, `device_reserved`.
    pub series: String,
    /// Verdict on this series.
    pub verdict: VerdictWord,
    /// Growth of the window minima, in bytes.
    pub growth: f64,
    /// Unit of the slope's axis: steps, or milliseconds for a command without known steps.
    pub axis: Axis,
    /// Slope in bytes per unit of the axis.
    pub slope: Option<f64>,
    /// Lower end of the slope's confidence interval.
    pub slope_low: Option<f64>,
    /// Upper end of the slope's confidence interval.
    pub slope_high: Option<f64>,
}
