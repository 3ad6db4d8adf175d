//! How did a run end?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All planned steps were done.
    Finished,
    /// Validations no longer got better, as `training.early_stopping` asks; a success.
    StoppedEarly,
    /// Stopped by a signal; can be resumed.
    Interrupted,
    /// `training.time_limit` was reached; can be resumed.
    TimeLimit,
    /// The run came to its end, and the verdict on memory is one that `memory.fail_on` names.
    MemoryGrew,
    /// The loss was not a number.
    Diverged,
    /// `limits.host_memory` or `limits.device_memory` was reached; can be resumed with a higher limit.
    MemoryLimit,
    /// An error of the data, the device or the disk.
    Failed,
    /// A panic, of the backend or of xrun itself.
    Panicked,
}

impl Outcome {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::StoppedEarly => "stopped early",
            Self::MemoryGrew => "memory grew",
            Self::Interrupted => "interrupted",
            Self::TimeLimit => "time limit",
            Self::Diverged => "diverged",
            Self::MemoryLimit => "memory limit",
            Self::Failed => "failed",
            Self::Panicked => "panicked",
        }
    }

    /// The run came to its end: there is nothing to go on with.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Finished | Self::StoppedEarly | Self::MemoryGrew)
    }

    /// The run did what it was asked to do.
    pub fn is_whole(self) -> bool {
        self.is_done() || self == Self::Interrupted
    }

    /// Whether `xrun resume` can go on with it.
    pub fn resumable(self) -> bool {
        !self.is_done() && self != Self::Diverged
    }
}
