//! Records of a sweep: its plan, the processes that ended, and its table.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::search::Search;
use xrun_core::task::metric::Direction;
use xrun_results::loss::KindLoss;
use xrun_results::noise::{Change, Noise, Spread};
use xrun_results::verdict::{TrainingVerdictWord, VerdictWord};

/// `sweep.toml`: everything that a sweep needs to continue, beside `base.toml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepRecord {
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
    /// The absolute directory that the command was called in.
    pub working_directory: String,
    /// `grid`, `zip`, `random`, `asha` or `tpe`.
    pub method: String,
    /// Seed of the order and of drawn trials.
    pub seed: u32,
    /// Number of runs of each trial, each with another seed.
    pub repeats: u64,
    /// The seed of the first repeat; the second has the next one.
    pub experiment_seed: u32,
    /// The swept keys.
    pub keys: Vec<String>,
    /// The trials: a value for each key. They are counted from 1. Those of method `tpe` are in `proposals.jsonl`.
    pub trials: Vec<Vec<Value>>,
    /// Trial and repeat of each run, in the order in which they start.
    pub order: Vec<[u64; 2]>,
    /// The search of methods `asha` and `tpe`.
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
    /// It resumed a run that an earlier process began.
    pub resumed: bool,
    /// Its exit status; `null` where a signal ended it, or where it is not known.
    pub exit_code: Option<i32>,
    /// The signal that ended it; `null` where it exited, or where it is not known.
    pub signal: Option<i32>,
    /// Its last message; `null` where there is none.
    pub message: Option<String>,
    /// Bytes of memory of the run's one retry, where this process had too few; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_memory: Option<u64>,
}

/// `table.json`: the whole table.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Table {
    /// The version of this document's format.
    pub version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The name of the sweep's directory.
    pub sweep: String,
    /// RFC 3339, UTC.
    pub created: String,
    /// `grid`, `zip`, `random`, `asha` or `tpe`.
    pub method: String,
    /// Number of runs of each trial.
    pub repeats: u64,
    /// The swept keys.
    pub keys: Vec<String>,
    /// The validation metric in the table.
    pub metric: Option<String>,
    /// Direction in which the metric is better; `null` where no plan declares it.
    pub direction: Option<Direction>,
    /// The finished trial with the best metric, the first of equal ones; `null` if it is no better than chance. Of method `asha`, the best at the highest rung that was reached.
    pub best: Option<u64>,
    /// Steps after which runs of method `asha` stop until they are promoted; the last is the end of a run.
    pub rungs: Vec<u64>,
    /// The kind of steps whose loss is in the table: the most frequent one.
    pub loss_kind: Option<String>,
    /// The trial that the others are compared with: the one with `cleanup.every_steps = 0`, or else the first.
    pub reference: Option<u64>,
    /// Noise of each comparison in pairs of one seed; empty when no two trials have two repeats in common.
    pub noise: BTreeMap<&'static str, Noise>,
    /// The trials, by their numbers.
    pub rows: Vec<Row>,
    /// Directory of the sweep.
    #[serde(skip)]
    pub directory: PathBuf,
}

/// A trial. Unknown values are `null`; sizes are bytes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Row {
    /// Number of the trial, from 1.
    pub trial: u64,
    /// Its value of each swept key.
    pub values: Vec<Value>,
    /// `finished`, or how its runs ended.
    pub outcome: String,
    /// The largest number of steps that one of its runs did.
    pub steps: Option<u64>,
    /// The rung of method `asha` that it reached, from 1; 0 before the first.
    pub rung: Option<u64>,
    /// Number of runs that did all their steps. The measurements are theirs, or those of all runs when there are none.
    pub finished: u64,
    /// Number of runs that were interrupted and resumed, whose memory is not in this row.
    pub interrupted: u64,
    /// The largest exit status of its runs; 128 + the number of a signal.
    pub exit_code: Option<i32>,
    /// Spreads over its finished runs. Memory is that of runs that were not interrupted, and growth that of runs that are long
    /// enough for a verdict and whose capped buffers do not fill.
    #[serde(flatten)]
    pub measurements: Measurements<Spread, Spread>,
    /// The worst verdict of its runs.
    pub verdict: Option<VerdictWord>,
    /// The worst verdict on the training of its runs.
    #[serde(default)]
    pub training: Option<TrainingVerdictWord>,
    /// The table's metric at the last validation.
    pub metric: Option<Spread>,
    /// Moving average of the loss at the end.
    pub loss: Option<Spread>,
    /// Changes against the reference, by measurement.
    pub change: BTreeMap<&'static str, Change>,
    /// The Pareto fronts of speed and memory (differences below 1 % are ties) that it is on: `heap`, `rss`, `device`.
    pub pareto: Vec<&'static str>,
    /// Its runs, by repeat.
    pub runs: Vec<Measured>,
}

/// Speed and memory, of a run or over the runs of a trial. Sizes are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurements<Size, Number> {
    /// Steps per second. The time includes cleanups, and excludes validations, checkpoints and measurements.
    pub steps_per_second: Option<Number>,
    /// Seconds of all cleanups of a run.
    pub cleanup_seconds: Option<Number>,
    /// The highest heap in use.
    pub heap_peak: Option<Size>,
    /// The minimum of heap in use at sample points in the second half of a run.
    pub heap_floor: Option<Size>,
    /// The highest RSS.
    pub rss_peak: Option<Size>,
    /// The minimum of RSS at sample points in the second half of a run.
    pub rss_floor: Option<Size>,
    /// The peak of device memory in use by live tensors.
    pub device_in_use_peak: Option<Size>,
    /// The minimum of device memory in use by live tensors at sample points in the second half of a run.
    pub device_in_use_floor: Option<Size>,
    /// The peak of device memory reserved by the device's pool.
    pub device_reserved_peak: Option<Size>,
    /// The minimum of device memory reserved by the device's pool at sample points in the second half of a run.
    pub device_reserved_floor: Option<Size>,
    /// Memory growth in bytes per step, of the heap or of the device's pool, whichever is larger.
    pub growth: Option<Number>,
}

impl<Size: Copy, Number: Copy> Measurements<Size, Number> {
    /// All measurements by their names in `table.csv`, in the order of its columns.
    pub fn list<T>(&self, size: impl Fn(Size) -> T, number: impl Fn(Number) -> T) -> [(&'static str, Option<T>); 11] {
        [
            ("steps_per_second", self.steps_per_second.map(&number)),
            ("cleanup_seconds", self.cleanup_seconds.map(&number)),
            ("heap_peak", self.heap_peak.map(&size)),
            ("heap_floor", self.heap_floor.map(&size)),
            ("rss_peak", self.rss_peak.map(&size)),
            ("rss_floor", self.rss_floor.map(&size)),
            ("device_in_use_peak", self.device_in_use_peak.map(&size)),
            ("device_in_use_floor", self.device_in_use_floor.map(&size)),
            ("device_reserved_peak", self.device_reserved_peak.map(&size)),
            ("device_reserved_floor", self.device_reserved_floor.map(&size)),
            ("growth_per_step", self.growth.map(&number)),
        ]
    }
}

/// Measurements of a run. Unknown values are `null`; sizes are bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Measured {
    /// The name of its directory below `trials`.
    pub run: String,
    /// Number of the repeat, from 1.
    pub repeat: u64,
    /// `finished`, `killed`, `memory limit`, `not run`, …
    pub outcome: String,
    /// It did all its steps.
    pub finished: bool,
    /// It stopped at a rung of method `asha`, and was not promoted.
    pub at_rung: bool,
    /// It was interrupted and resumed; its memory is that of processes that began again.
    pub interrupted: bool,
    /// Exit status by the run's summary, or of its last process where it has none.
    pub exit_code: Option<i32>,
    /// Signal that killed the last process of a run without a summary.
    pub signal: Option<i32>,
    /// Message of its end, or of a damaged record.
    pub message: Option<String>,
    /// Optimiser steps done.
    pub steps: Option<u64>,
    /// Seconds of work, without the pauses between processes.
    pub seconds: Option<f64>,
    /// Speed and memory.
    #[serde(flatten)]
    pub measurements: Measurements<u64, f64>,
    /// The verdict on its memory.
    pub verdict: Option<VerdictWord>,
    /// The verdict on its training.
    #[serde(default)]
    pub training: Option<TrainingVerdictWord>,
    /// Metrics of the last validation; empty where there was none.
    pub metrics: BTreeMap<String, Option<f64>>,
    /// Losses of each kind of step.
    pub losses: Vec<KindLoss>,
    /// Further measurements. In bytes: `planned.NAME` and `actual.NAME` of each component of the plan, `part.NAME` of each part of
    /// the run, `owner.NAME` of each buffer, `step.KIND`, `validation_left`. In seconds each time: `phase.NAME`.
    pub figures: BTreeMap<String, f64>,
    /// The metric by which a checkpoint is best, and its direction.
    #[serde(skip)]
    pub best_by: Option<(String, Option<Direction>)>,
}
