//! State of the training loop at a checkpoint.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::loss::KindLoss;
use xrun_core::files::checksum::LineSum;
use xrun_core::settings::rung::{Bits, Rung};
use xrun_core::task::metric::{Direction, Interval};
use xrun_core::units::Bytes;

/// The checkpoint with the best validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Best {
    /// The metric's name.
    pub metric: String,
    /// Its value.
    pub value: f64,
    /// Number of optimiser steps for which the checkpoint had been trained.
    pub step: u64,
}

/// Lines that all processes of a run wrote, by which readers notice missing ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WrittenLines {
    /// Lines of `metrics.jsonl`.
    pub metrics: LineSum,
    /// Lines of `memory.jsonl`.
    pub memory: LineSum,
}

/// State of early stopping.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EarlyStopping {
    /// Last value that improved by enough; `null` before the first.
    pub best: Option<f64>,
    /// Number of validations since then.
    pub validations: u64,
}

/// `checkpoints/step_…/state.json`: state of the loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopState {
    /// The version of this record's format.
    pub version: u32,
    /// Number of steps done.
    pub step: u64,
    /// Number of steps done at the checkpoint that a fork began from; absent in other runs.
    #[serde(default, skip_serializing_if = "xrun_core::settings::is_default")]
    pub began_at: u64,
    /// The epoch of that step, from 1; 0 before the first step.
    pub epoch: u64,
    /// `true` if the validation due after this step is already in the metrics.
    pub validated: bool,
    /// Newest gradient norms, oldest first: at most `limits.gradient_norm_window`.
    pub gradient_norms: Vec<f64>,
    /// The loss of the first step; `null` before it.
    pub loss_first: Option<f64>,
    /// The loss of the newest step; `null` before the first.
    pub loss_last: Option<f64>,
    /// The loss of each kind of step.
    pub losses: Vec<KindLoss>,
    /// The best validation so far; `null` before the first.
    pub best: Option<Best>,
    /// State of early stopping; absent before the first validation after a step, or if it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_stopping: Option<EarlyStopping>,
    /// Metrics of the validation before the first step.
    pub metrics_first: BTreeMap<String, Option<f64>>,
    /// Metrics of the newest validation after a step; empty before it.
    pub metrics_last: BTreeMap<String, Option<f64>>,
    /// 95 % intervals of those metrics that are means over episodes.
    pub intervals_last: BTreeMap<String, Interval>,
    /// Number of images, sequences or clips trained on.
    pub items: u64,
    /// Working time in seconds before this checkpoint.
    pub seconds: f64,
    /// Run that wrote it: `experiment`, `/` and `run` of `manifest.json`.
    pub run: String,
    /// `fingerprint` of `manifest.json`.
    pub fingerprint: String,
    /// Rungs of `limits.on_pressure` that were taken and climbed back, in order, at most 64: the oldest that a newer one of the
    /// same name follows are dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rungs: Vec<RungTaken>,
    /// Lines written up to here; absent in checkpoints of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<WrittenLines>,
    /// SHA-256 of each file of the checkpoint, by its path relative to this one.
    pub files: BTreeMap<String, String>,
}

/// Rung of `limits.on_pressure` that was taken or climbed back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RungTaken {
    /// Number of steps done.
    pub step: u64,
    /// The rung.
    pub rung: Rung,
    /// Number of times that it is taken from now on: each halves what is left. 0: all that it gave was taken back.
    pub level: u32,
    /// Effect on the numbers of later steps.
    pub bits: Bits,
    /// `true` if room was back and the run climbed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub climbed: bool,
    /// Reason, for people.
    pub because: String,
    /// Bytes that it was to give, by the contents of the buffers or half of the memory of a step; `null` if unknown.
    pub gives: Option<u64>,
    /// Bytes by which the peak of the heap, or the reserved memory of the device, fell up to the step after it; negative if it
    /// rose, `null` before that step and for all but the last of several rungs at one step.
    pub gave: Option<i64>,
}

impl RungTaken {
    /// Message such as "took `caches` (same bits), to give 4.0 MiB: RSS is 2 GiB, above `limits.host_memory` = 1 GiB".
    pub fn message(&self) -> String {
        let (verb, gives) = if self.climbed { ("climbed", "taking") } else { ("took", "to give") };
        let gives = self.gives.map(|bytes| format!(", {gives} {}", Bytes(bytes))).unwrap_or_default();
        format!("{verb} `{}` ({}){gives}: {}", self.rung.name(), self.bits.words(), self.because)
    }
}

/// Largest number of rungs in a record.
const RUNGS_MAX: usize = 64;

impl LoopState {
    /// Adds a rung.
    pub fn add_rung(&mut self, taken: RungTaken) {
        if self.rungs.len() >= RUNGS_MAX {
            // The newest entry of each rung is its level.
            let later = |at: usize| self.rungs[at + 1..].iter().any(|other| other.rung == self.rungs[at].rung);
            let oldest = (0..self.rungs.len()).find(|at| later(*at)).unwrap_or(0);
            self.rungs.remove(oldest);
        }
        self.rungs.push(taken);
    }
}

impl EarlyStopping {
    /// Counts a validation. A metric that could not be measured is no improvement.
    pub fn count(&mut self, value: Option<f64>, direction: Direction, min_delta: f64) {
        let enough = |best: f64| match direction {
            Direction::Higher => best + min_delta,
            Direction::Lower => best - min_delta,
        };
        match value {
            Some(value) if self.best.is_none_or(|best| direction.prefers(value, enough(best))) => {
                *self = Self { best: Some(value), validations: 0 };
            }
            _ => self.validations += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(values: &[Option<f64>], direction: Direction, min_delta: f64) -> Vec<u64> {
        let mut waiting = EarlyStopping::default();
        let count = |value: &Option<f64>| {
            waiting.count(*value, direction, min_delta);
            waiting.validations
        };
        values.iter().map(count).collect()
    }

    #[test]
    fn only_a_sufficient_improvement_resets_the_count() {
        let values = [Some(0.5), Some(0.55), Some(0.61), Some(0.7), Some(0.7), Some(0.9)];
        assert_eq!(waits(&values, Direction::Higher, 0.1), [0, 1, 0, 1, 2, 0]);
        assert_eq!(waits(&values, Direction::Lower, 0.0), [0, 1, 2, 3, 4, 5]);
        assert_eq!(waits(&[Some(3.0), Some(2.9), Some(2.0)], Direction::Lower, 0.5), [0, 1, 0]);
    }

    #[test]
    fn small_improvements_accumulate() {
        assert_eq!(waits(&[Some(0.0), Some(0.06), Some(0.12)], Direction::Higher, 0.1), [0, 1, 0]);
    }

    #[test]
    fn a_missing_value_is_no_improvement() {
        assert_eq!(waits(&[None, Some(1.0), None, Some(2.0)], Direction::Higher, 0.0), [1, 0, 1, 0]);
    }
}
