//! Durations of the parts of a run, measured and forecast, in seconds.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xrun_core::settings::rung::Rung;

/// Number, mean and standard deviation of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeanDuration {
    /// Number of durations.
    pub count: u64,
    /// Mean in seconds. Recent durations weigh more: the newest half has three quarters of the weight.
    pub mean: f64,
    /// Standard deviation in seconds.
    pub deviation: f64,
}

impl MeanDuration {
    /// Adds a duration.
    pub fn add(&mut self, seconds: f64) {
        self.count += 1;
        let weight = 2.0 / (self.count as f64 + 1.0);
        let difference = seconds - self.mean;
        self.mean += weight * difference;
        let variance = (1.0 - weight) * (self.deviation * self.deviation + weight * difference * difference);
        self.deviation = variance.sqrt();
    }

    /// Standard error of the mean.
    pub fn error(&self) -> f64 {
        self.deviation / (self.count.max(1) as f64).sqrt()
    }
}

/// Measured durations of the parts of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Durations {
    /// Step of each stage of the training, the final stage last, without the first step of the process and of each stage,
    /// validations and checkpoints.
    pub steps: Vec<MeanDuration>,
    /// First step of the process, which may tune kernels and fill caches; `null` without a step.
    pub first_step: Option<f64>,
    /// Whole validation. That of an untrained model counts only until there is another.
    pub validation: MeanDuration,
    /// Batch of a validation.
    pub validation_batch: MeanDuration,
    /// Part of a batch of the first validation that a cache saves later; in no other duration.
    #[serde(default)]
    pub validation_first_use: MeanDuration,
    /// Part of a validation after its last batch.
    pub validation_rest: MeanDuration,
    /// Batch that a step validates.
    pub step_batch: MeanDuration,
    /// Part of a step that uses data for the first time, which a cache saves later.
    #[serde(default)]
    pub first_use: MeanDuration,
    /// Checkpoint.
    pub checkpoint: MeanDuration,
    /// Duration of a step with a rung of `limits.on_pressure` taken once, relative to one without; measured by the probe.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rungs: BTreeMap<Rung, f64>,
}

/// Forecast of the duration of a run, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DurationForecast {
    /// Whole duration.
    pub seconds: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Duration of the training steps.
    pub steps: f64,
    /// Duration of the validations.
    pub validations: f64,
    /// Duration of the checkpoints.
    pub checkpoints: f64,
}

impl DurationForecast {
    /// Fraction of the whole duration that validations take.
    pub fn validation_fraction(&self) -> f64 {
        if self.seconds > 0.0 { self.validations / self.seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_durations_weigh_more() {
        let mut mean = MeanDuration::default();
        (0..50).for_each(|_| mean.add(2.0));
        assert_eq!((mean.count, mean.mean, mean.deviation), (50, 2.0, 0.0));
        (0..50).for_each(|_| mean.add(1.0));
        assert!((mean.mean - 1.25).abs() < 0.01, "{mean:?}");
    }
}
