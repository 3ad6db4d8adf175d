//! Expected growth of a leak that is switched on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Expected contents of a leak when the run ends. It grows with the number of steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeakGrowth {
    /// Total bytes, known before the run.
    Total(u64),
    /// Bytes, known before the run, of a leak that stops growing once all the data has been seen.
    Filling {
        /// Bytes when the run ends.
        total: u64,
        /// Bytes once all the data has been seen.
        plateau_bytes: u64,
    },
    /// Linear growth; a probe measures the bytes of an item.
    Linear(LinearGrowth),
}

impl LeakGrowth {
    /// Growth by `each` items at every `event`.
    pub fn with(event: GrowthEvent, each: f64) -> Self {
        Self::Linear(LinearGrowth { with: event, each, at_start: 0 })
    }

    /// Bytes at the end of the run, where known beforehand.
    pub fn total(self) -> Option<u64> {
        match self {
            Self::Total(bytes) | Self::Filling { total: bytes, .. } => Some(bytes),
            Self::Linear(_) => None,
        }
    }

    /// Bytes at which the growth stops; `None` where it does not.
    pub fn plateau_bytes(self) -> Option<u64> {
        match self {
            Self::Filling { plateau_bytes, .. } => Some(plateau_bytes),
            Self::Total(_) | Self::Linear(_) => None,
        }
    }
}

/// Linear growth of a leak, in items. A probe measures the bytes of an item.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinearGrowth {
    /// Event at which items are added.
    pub with: GrowthEvent,
    /// Items added at each event; the mean where it varies.
    pub each: f64,
    /// Items before the first event.
    pub at_start: u64,
}

impl LinearGrowth {
    /// Number of items after that many events.
    pub fn given(&self, event_count: u64) -> u64 {
        // A fraction such as 0.7 is inexact in binary: 0.7 * 10 must not become 8.
        self.at_start + (event_count as f64 * self.each - 1e-6).ceil() as u64
    }
}

/// An event that recurs in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrowthEvent {
    /// A training step.
    Step,
    /// A validation.
    Validation,
    /// An episode of a validation.
    Episode,
    /// The end of an epoch.
    Epoch,
}
