//! Rungs of the ladder `limits.on_pressure`: what a run gives up, one after another, when memory gets short.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// Rung of the ladder that a run descends when memory gets short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Rung {
    /// The caches halve, down to nothing.
    Caches,
    /// The queue of prepared batches halves, down to one batch for each worker.
    Prefetch,
    /// Half of the workers end, down to one with one batch.
    Workers,
    /// The micro-batch halves, down to one item; the batch stays.
    MicroBatch,
    /// The backward pass recomputes activations.
    ActivationCheckpointing,
    /// The run saves a checkpoint and ends with exit code 75.
    Park,
}

/// Rungs of a pipeline that reads its data through caches and a feed, and whose gradients are sums over micro-batches.
pub const DATA_AND_MICRO_BATCH: &[Rung] = &[Rung::Caches, Rung::Prefetch, Rung::Workers, Rung::MicroBatch];

/// Effect of a rung on the numbers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Bits {
    /// The numbers are bit-identical on the CPU.
    Same,
    /// The numbers are equal up to rounding.
    Rounding,
}

impl Rung {
    /// All rungs, in the recommended order.
    pub const ALL: [Self; 6] =
        [Self::Caches, Self::Prefetch, Self::Workers, Self::MicroBatch, Self::ActivationCheckpointing, Self::Park];

    /// Name in an experiment.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Effect on the numbers of the run.
    pub fn bits(self) -> Bits {
        match self {
            Self::Caches | Self::Prefetch | Self::Workers | Self::Park => Bits::Same,
            // Gradients are summed in another order.
            Self::MicroBatch | Self::ActivationCheckpointing => Bits::Rounding,
        }
    }
}

impl Bits {
    /// The words for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Same => "same bits",
            Self::Rounding => "rounding",
        }
    }
}
