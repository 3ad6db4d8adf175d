//! What do the files of a sweep hold: what is to be done, which processes ended, and the table?

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::search::Search;
use xrun_core::task::metric::Better;
use xrun_results::loss::KindLoss;
use xrun_results::verdict::Judgement;

/// `sweep.toml`: everything that is needed to go on with a sweep, beside `base.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// The version of this record's format.
    pub version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// RFC 3339, UTC.
    pub created: String,
    /// The version of xrun that made it.
    pub xrun: String,
    /// The command as it was typed, one entry a word.
    pub command: Vec<String>,
    /// The absolute folder that the command was called in.
    pub working_directory: String,
    /// `grid`, `zip`, `random`, `asha` or `tpe`.
    pub mode: String,
    /// Of the order, and of what was drawn.
    pub seed: u32,
    /// How often each point is run, each time with another seed.
    pub repeats: u64,
    /// The seed of the first repeat; the second has the next one.
    pub experiment_seed: u32,
    /// The swept keys.
    pub keys: Vec<String>,
    /// For each point a value for each key. Points are counted from 1. Those of mode `tpe` stand in `proposals.jsonl`.
    pub points: Vec<Vec<Value>>,
    /// Point and repeat of each run, in the order in which they start.
    pub order: Vec<[u64; 2]>,
    /// How points are chosen, of the modes `asha` and `tpe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
}

/// A line of `processes.jsonl`: a process of a run that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// The version of this record's format.
    pub version: u32,
    /// `0003-1`.
    pub run: String,
    /// RFC 3339, UTC.
    pub ended: String,
    /// Seconds that the process took.
    pub seconds: f64,
    /// It went on with what a process of before left.
    pub resumed: bool,
    /// What it exited with; `null` where a signal ended it, or nobody knows.
    pub exit_code: Option<i32>,
    /// The signal that ended it; `null` where it exited, or nobody knows.
    pub signal: Option<i32>,
    /// What it said at its end, for people; `null` where it said nothing.
    pub message: Option<String>,
    /// It had too little memory, and the run is tried once more with so many bytes; absent of all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_with: Option<u64>,
}

/// `table.json`: the whole table.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Table {
    /// The version of this document's format.
    pub version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The name of the sweep's folder.
    pub sweep: String,
    /// RFC 3339, UTC.
    pub created: String,
    /// `grid`, `zip`, `random`, `asha` or `tpe`.
    pub mode: String,
    /// How often each point is run.
    pub repeats: u64,
    /// The swept keys.
    pub keys: Vec<String>,
    /// The validation metric in the table, and which way it is better where the plans of the runs say so.
    pub metric: Option<String>,
    /// Which of its values are better; `null` where nobody says so.
    pub better: Option<Better>,
    /// The point with the best metric, of those that finished; of mode `asha` of those that came to the highest rung.
    pub best: Option<u64>,
    /// Of mode `asha`: the steps after which runs stop until they are chosen to go on; the last is the end.
    pub rungs: Vec<u64>,
    /// The kind of steps that the loss in the table is of: the one that most steps were of.
    pub loss_kind: Option<String>,
    /// The point that the others are compared with: the one without cleanups, or else the first.
    pub reference: Option<u64>,
    /// Of each comparison; not there when no point was measured twice.
    pub noise: BTreeMap<&'static str, Noise>,
    /// The points, in the order in which they are counted.
    pub rows: Vec<Row>,
}

/// A point. What is not known is `null`; sizes are bytes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Row {
    /// Counted from 1.
    pub point: u64,
    /// For each swept key.
    pub values: Vec<Value>,
    /// `finished`, or how its runs ended.
    pub outcome: String,
    /// Steps done, of the run that came farthest.
    pub steps: Option<u64>,
    /// Of mode `asha`: the rung that it came to, counted from 1; 0 before the first.
    pub rung: Option<u64>,
    /// Runs that did all their steps; the numbers are theirs, or of what there is when there are none.
    pub finished: u64,
    /// The worst of its runs; of a signal 128 and its number.
    pub exit_code: Option<i32>,
    /// Steps a second, with the time of cleanups.
    pub steps_per_second: Option<Spread>,
    /// Seconds of all cleanups of a run.
    pub cleanup_seconds: Option<Spread>,
    /// The highest heap in use.
    pub heap_peak: Option<Spread>,
    /// The least heap in use at rest in the second half of a run.
    pub heap_floor: Option<Spread>,
    /// The highest resident memory.
    pub resident_peak: Option<Spread>,
    /// The least resident memory at rest in the second half of a run.
    pub resident_floor: Option<Spread>,
    /// The highest that live tensors took of the device.
    pub device_in_use_peak: Option<Spread>,
    /// The least that live tensors took of the device at rest in the second half of a run.
    pub device_in_use_floor: Option<Spread>,
    /// The most that the device's pool had taken from the driver.
    pub device_reserved_peak: Option<Spread>,
    /// The least that the device's pool had taken at rest in the second half of a run.
    pub device_reserved_floor: Option<Spread>,
    /// Bytes a step.
    pub growth: Option<Spread>,
    /// The worst of its runs.
    pub verdict: Option<Judgement>,
    /// The table's metric at the last validation.
    pub metric: Option<Spread>,
    /// Moving average at the end.
    pub loss: Option<Spread>,
    /// Against the reference, by what is compared.
    pub change: BTreeMap<&'static str, Change>,
    /// The fronts of speed and memory that it is on: `heap`, `resident`, `device`.
    pub pareto: Vec<&'static str>,
    /// The point's runs, by repeat.
    pub runs: Vec<Measured>,
}

/// A run in numbers. What is not known is `null`; sizes are bytes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Measured {
    /// The folder's name below `points`.
    pub run: String,
    /// Which of the point's repeats, from 1.
    pub repeat: u64,
    /// `finished`, `killed`, `memory limit`, `not run`, …
    pub outcome: String,
    /// It did all its steps.
    pub finished: bool,
    /// It stopped at a rung of mode `asha`, and was not chosen to go on.
    pub at_rung: bool,
    /// Of the run's own summary, or of its last process where it has none.
    pub exit_code: Option<i32>,
    /// That killed its last process, of a run that has no summary.
    pub signal: Option<i32>,
    /// Why it ended, or what is damaged; for people.
    pub message: Option<String>,
    /// Optimiser steps done.
    pub steps: Option<u64>,
    /// Seconds of work, without the pauses between processes.
    pub seconds: Option<f64>,
    /// Cleanups are part of the time; validations, checkpoints and measuring are not.
    pub steps_per_second: Option<f64>,
    /// Seconds of all cleanups.
    pub cleanup_seconds: Option<f64>,
    /// The highest heap in use.
    pub heap_peak: Option<u64>,
    /// The least heap in use at rest in the second half of the run; the other floors are the same of what they name.
    pub heap_floor: Option<u64>,
    /// The highest resident memory.
    pub resident_peak: Option<u64>,
    /// The least resident memory.
    pub resident_floor: Option<u64>,
    /// The highest that live tensors took of the device.
    pub device_in_use_peak: Option<u64>,
    /// The least that live tensors took of the device.
    pub device_in_use_floor: Option<u64>,
    /// The most that the device's pool had taken from the driver.
    pub device_reserved_peak: Option<u64>,
    /// The least that the device's pool had taken.
    pub device_reserved_floor: Option<u64>,
    /// Bytes a step: of the heap, or of the device's pool when that grows faster.
    pub growth: Option<f64>,
    /// The verdict on its memory.
    pub verdict: Option<Judgement>,
    /// The last validation after a step; empty where there was none.
    pub metrics: BTreeMap<String, Option<f64>>,
    /// Of each kind of step.
    pub losses: Vec<KindLoss>,
    /// The metric by which a checkpoint is best, and which way that is.
    #[serde(skip)]
    pub best_by: Option<(String, Option<Better>)>,
}

/// Middle and ends of what the repeats of a point gave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Spread {
    /// The middle value; of an even count the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
    /// How many repeats gave a number.
    pub count: usize,
}

/// The noise of a measurement, relative.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Noise {
    /// Standard deviation of the logarithm.
    pub deviation: f64,
    /// How many numbers say so beyond the means.
    pub degrees_of_freedom: usize,
}

/// A point against the reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// 0.1 is a tenth more than the reference.
    pub change: f64,
    /// The ends of the interval of 95 %; `null` when noise was not measured.
    pub low: Option<f64>,
    /// The upper end of that interval.
    pub high: Option<f64>,
    /// The interval holds 0: the difference may be noise. `null` when noise was not measured.
    pub within_noise: Option<bool>,
}
