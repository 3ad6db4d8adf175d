//! How does the learning rate change over the steps?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

crate::settings::kinds::kinds! {
    /// How the learning rate changes over the steps.
    pub enum Schedule {
        "constant" => Constant(Constant),
        "cosine" => Cosine(Cosine),
        "linear" => Linear(Linear),
        "warm-up-stable-decay" => WarmUpStableDecay(WarmUpStableDecay),
    }
}

/// The optimiser's learning rate, after a linear warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Constant {
    /// Steps over which the rate rises linearly from zero, in each phase of the pipeline.
    pub warmup_steps: u64,
}

/// A linear warm-up, then half a cosine down (Loshchilov and Hutter 2017).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cosine {
    /// Steps over which the rate rises linearly from zero, in each phase of the pipeline.
    pub warmup_steps: u64,
    /// The learning rate of the last step, as a fraction of the optimiser's.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub final_share: f64,
    /// Run the cosine once in each phase of a pipeline that has several. `qat-language-model` has two, pretraining and
    /// quantised steps, and begins the second with a new optimiser. `false` stretches one cosine over all steps, and
    /// only the warm-up is repeated.
    pub each_phase: bool,
}

impl Default for Cosine {
    fn default() -> Self {
        Self { warmup_steps: 0, final_share: 0.0, each_phase: true }
    }
}

/// A linear warm-up, then a straight line down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Linear {
    /// Steps over which the rate rises linearly from zero, in each phase of the pipeline.
    pub warmup_steps: u64,
    /// The learning rate of the last step, as a fraction of the optimiser's.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub final_share: f64,
    /// Draw the line once in each phase of a pipeline that has several. `false` draws one over all steps, and only the
    /// warm-up is repeated.
    pub each_phase: bool,
}

impl Default for Linear {
    fn default() -> Self {
        Self { warmup_steps: 0, final_share: 0.0, each_phase: true }
    }
}

/// A linear warm-up, a constant rate, and a straight line down at the end (Hu et al. 2024, MiniCPM).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WarmUpStableDecay {
    /// Steps over which the rate rises linearly from zero, in each phase of the pipeline.
    pub warmup_steps: u64,
    /// The fraction of the steps, the last ones, in which the rate falls.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub decay_share: f64,
    /// The learning rate of the last step, as a fraction of the optimiser's.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub final_share: f64,
    /// Let it fall at the end of each phase of a pipeline that has several. `false` lets it fall once, at the end of all
    /// steps, and only the warm-up is repeated.
    pub each_phase: bool,
}

impl Default for WarmUpStableDecay {
    fn default() -> Self {
        Self { warmup_steps: 0, decay_share: 0.1, final_share: 0.0, each_phase: true }
    }
}

impl Schedule {
    /// Steps over which the rate rises.
    pub fn warmup_steps(&self) -> u64 {
        match self {
            Self::Constant(settings) => settings.warmup_steps,
            Self::Cosine(settings) => settings.warmup_steps,
            Self::Linear(settings) => settings.warmup_steps,
            Self::WarmUpStableDecay(settings) => settings.warmup_steps,
        }
    }
}
