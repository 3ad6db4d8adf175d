//! The growth of a leak that is switched on: what it keeps, how much, and when.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes that a leak will have kept when the run ends. With more steps it would be more: this is no cap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keeps {
    /// Bytes, counted before the run.
    InAll(u64),
    /// Bytes, counted before the run, of what ends by itself when all the data has been seen once, and what that is.
    Filling {
        /// Bytes that it will have kept when the run ends.
        in_all: u64,
        /// Bytes that it keeps when all the data has been seen once.
        full: u64,
    },
    /// Grows linearly; the bytes of an item come from the probe.
    Growing(Growth),
}

impl Keeps {
    /// That many things each time.
    pub fn with(occasion: Occasion, each: f64) -> Self {
        Self::Growing(Growth { with: occasion, each, at_start: 0 })
    }

    /// Bytes that are known before the run.
    pub fn in_all(self) -> Option<u64> {
        match self {
            Self::InAll(bytes) | Self::Filling { in_all: bytes, .. } => Some(bytes),
            Self::Growing(_) => None,
        }
    }

    /// Where its growth ends by itself, in bytes.
    pub fn full(self) -> Option<u64> {
        match self {
            Self::Filling { full, .. } => Some(full),
            Self::InAll(_) | Self::Growing(_) => None,
        }
    }
}

/// How a leak grows: how many things it is given to keep, and when. How many bytes each has, a probe measures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// The event that it grows with.
    pub with: Occasion,
    /// Items that are added each time; the mean where it varies.
    pub each: f64,
    /// Things that it is given before the first time.
    pub at_start: u64,
}

impl Growth {
    /// Things that it has been given after that many times.
    pub fn given(&self, times: u64) -> u64 {
        // A share such as 0.7 is a little more or less in binary: 0.7 * 10 must not become 8.
        self.at_start + (times as f64 * self.each - 1e-6).ceil() as u64
    }
}

/// An event that recurs in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// A training step.
    Step,
    /// A validation.
    Validation,
    /// An episode of a validation.
    Episode,
    /// The end of an epoch.
    Epoch,
}
