//! Outcome of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Outcome of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All planned steps were done.
    #[default]
    Finished,
    /// Validations stopped improving, as `training.early_stopping` defines; a success.
    StoppedEarly,
    /// Stopped by a signal; resumable.
    Interrupted,
    /// `training.time_limit` was reached; resumable.
    TimeLimit,
    /// All steps were done, and the verdict on memory is one that `memory.fail_on` names.
    MemoryGrew,
    /// All steps were done, and the verdict on training is one that `training.fail_on` names.
    DidNotLearn,
    /// The loss was not a number.
    Diverged,
    /// `limits.host_memory` or `limits.device_memory` was reached; resumable with a higher limit.
    MemoryLimit,
    /// The rung `park` of `limits.on_pressure` was reached; resumable where there is more memory.
    Parked,
    /// An error of the data, the device or the disk.
    Failed,
    /// A panic, of the backend or of xrun itself.
    Panicked,
}

impl Outcome {
    /// The outcome as it is displayed.
    pub fn label(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::StoppedEarly => "stopped early",
            Self::MemoryGrew => "memory grew",
            Self::DidNotLearn => "did not learn",
            Self::Interrupted => "interrupted",
            Self::TimeLimit => "time limit",
            Self::Diverged => "diverged",
            Self::MemoryLimit => "memory limit",
            Self::Parked => "parked",
            Self::Failed => "failed",
            Self::Panicked => "panicked",
        }
    }

    /// Returns `true` if the run completed: nothing is left to resume.
    pub fn is_complete(self) -> bool {
        matches!(self, Self::Finished | Self::StoppedEarly | Self::MemoryGrew | Self::DidNotLearn)
    }

    /// Returns `true` if the run completed or a signal stopped it, neither of which is an error.
    pub fn is_orderly(self) -> bool {
        self.is_complete() || self == Self::Interrupted
    }

    /// Returns `true` if `xrun resume` can continue the run.
    pub fn is_resumable(self) -> bool {
        !self.is_complete() && self != Self::Diverged
    }
}
