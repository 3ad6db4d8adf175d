//! `[training.schedule]`: learning-rate schedules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings;

crate::settings::kinds::kinds! {
    /// Learning-rate schedule.
    pub enum Schedule {
        "constant" => Constant(Constant),
        "cosine" => Cosine(Cosine),
        "linear" => Linear(Linear),
        "warm-up-stable-decay" => WarmUpStableDecay(WarmUpStableDecay),
    }
}

/// Constant learning rate after a linear warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Constant {
    /// Steps of linear warm-up from zero, in each stage of the pipeline.
    pub warmup_steps: u64,
}

settings! {
    /// Cosine decay after a linear warm-up (Loshchilov and Hutter 2017).
    pub struct Cosine {
        /// Steps of linear warm-up from zero, in each stage of the pipeline.
        pub warmup_steps: u64 = 0,
        /// Learning rate of the last step, as a fraction of the optimiser's.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub final_lr_fraction: f64 = 0.0,
        /// Restart the decay in each stage of the pipeline; `qat-language-model` has two, pretraining and quantised steps, and the
        /// second starts with a new optimiser. `false` decays once over all steps and repeats only the warm-up.
        pub per_stage: bool = true,
    }

    /// Linear decay after a linear warm-up.
    pub struct Linear {
        /// Steps of linear warm-up from zero, in each stage of the pipeline.
        pub warmup_steps: u64 = 0,
        /// Learning rate of the last step, as a fraction of the optimiser's.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub final_lr_fraction: f64 = 0.0,
        /// Restart the decay in each stage of the pipeline. `false` decays once over all steps and repeats only the warm-up.
        pub per_stage: bool = true,
    }

    /// Linear warm-up, constant rate, and linear decay at the end (Hu et al. 2024, MiniCPM).
    pub struct WarmUpStableDecay {
        /// Steps of linear warm-up from zero, in each stage of the pipeline.
        pub warmup_steps: u64 = 0,
        /// Fraction of the steps in the final decay.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub decay_fraction: f64 = 0.1,
        /// Learning rate of the last step, as a fraction of the optimiser's.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub final_lr_fraction: f64 = 0.0,
        /// Decay at the end of each stage of the pipeline. `false` decays once at the end of all steps and repeats only the warm-up.
        pub per_stage: bool = true,
    }
}

impl Schedule {
    /// Steps of warm-up.
    pub fn warmup_steps(&self) -> u64 {
        match self {
            Self::Constant(settings) => settings.warmup_steps,
            Self::Cosine(settings) => settings.warmup_steps,
            Self::Linear(settings) => settings.warmup_steps,
            Self::WarmUpStableDecay(settings) => settings.warmup_steps,
        }
    }
}
