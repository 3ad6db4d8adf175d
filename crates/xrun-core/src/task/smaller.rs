//! What is smaller in a run than its experiment asks, since the data is?

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number of the experiment that the data does not reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Smaller {
    /// The key that asks for more.
    pub key: String,
    /// What the experiment asks for, in whatever the key counts.
    pub asked: u64,
    /// What the run has instead.
    pub used: u64,
    /// Of what the data has no more.
    pub because: String,
}

impl Smaller {
    /// `None` where as much is used as was asked.
    pub fn than_asked(key: &str, asked: u64, used: u64, because: impl Into<String>) -> Option<Self> {
        (used < asked).then(|| Self { key: key.into(), asked, used, because: because.into() })
    }
}

/// `n_way 4 -> 2: the data has 2 classes to train on`.
impl fmt::Display for Smaller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.key.rsplit('.').next().unwrap_or(&self.key);
        write!(formatter, "{name} {} -> {}: {}", self.asked, self.used, self.because)
    }
}
