//! Verdict on training, and the numbers that it follows from.

pub use crate::words::TrainingVerdictWord;

/// How a run ended, as far as it matters for its training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingEnd {
    /// All steps were done.
    Complete,
    /// The metric did not improve for some validations, and the best checkpoint counts.
    StoppedEarly,
    /// The loss or the gradients of a step were no numbers.
    NotFinite,
    /// Anything else: a signal, a limit, an error.
    Interrupted,
}

/// Whether training made a model better.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrainingVerdict {
    /// Judgement.
    #[cfg_attr(feature = "schema", schemars(schema_with = "TrainingVerdictWord::listed"))]
    pub verdict: TrainingVerdictWord,
    /// Judgement as a sentence.
    pub message: String,
    /// Loss of the kind of steps that decides, or of the one with the most steps; `null` without a loss.
    pub loss: Option<LossFindings>,
    /// Metric that selects the best checkpoint; `null` if it was not measured after a step.
    pub metric: Option<MetricFindings>,
    /// Loss on held-out data; `null` if it was not measured after a step.
    pub held_out_loss: Option<HeldOutFindings>,
    /// Last learning rate as a fraction of the highest; `null` if unknown.
    pub learning_rate_fraction: Option<f64>,
}

/// Fall of the loss of one kind of steps.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LossFindings {
    /// Kind of the steps.
    pub kind: String,
    /// Number of steps of this kind.
    pub steps: u64,
    /// Loss of the first step, before any update.
    pub first: f64,
    /// Mean loss of the last quarter of the steps.
    pub last: f64,
    /// Lower end of the 95 % interval of `first - last`; `null` for fewer than 12 steps.
    pub fall_low: Option<f64>,
    /// Upper end of that interval.
    pub fall_high: Option<f64>,
}

/// Improvement of the metric that selects the best checkpoint.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MetricFindings {
    /// Name of the metric.
    pub name: String,
    /// Unit, such as `%`; empty where there is none.
    pub unit: String,
    /// Value before the first step: of the untrained model, or where a fork begins; `null` if it was not validated.
    pub untrained: Option<f64>,
    /// Chance level, or the newest value of the baseline; `null` if unknown.
    pub chance: Option<f64>,
    /// Half width of the 95 % interval of `chance`; `null` where it is a constant.
    #[cfg_attr(feature = "serde", serde(default))]
    pub chance_half_width: Option<f64>,
    /// Value beyond which two consecutive validations together show that the model is better than chance (of fewer than four
    /// validations, any one); `null` if the chance level is unknown.
    #[cfg_attr(feature = "serde", serde(default))]
    pub needed: Option<f64>,
    /// Name of the metric that is the baseline; `null` where the chance level is a constant or unknown.
    pub baseline: Option<String>,
    /// Best value after a step.
    pub best: f64,
    /// Step of the best value.
    pub best_step: u64,
    /// Last value.
    pub last: f64,
    /// Number of validations after a step.
    pub validations: u64,
    /// Number of examples of the newest of them; `null` if unknown.
    #[cfg_attr(feature = "serde", serde(default))]
    pub examples: Option<u64>,
    /// Standard error of one value: from its interval, or from the scatter of the validations; `null` if neither is known.
    pub error: Option<f64>,
}

/// Course of the loss on held-out data.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeldOutFindings {
    /// Name of the metric.
    pub name: String,
    /// Value before the first step: of the untrained model, or where a fork begins; `null` if it was not validated.
    pub untrained: Option<f64>,
    /// Lowest value after a step.
    pub lowest: f64,
    /// Step of the lowest value.
    pub lowest_step: u64,
    /// Last value.
    pub last: f64,
}
