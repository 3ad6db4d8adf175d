//! Settings that the run lowers because the data has too few items.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A setting lowered to what the data allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoweredSetting {
    /// Dotted key of the setting.
    pub key: String,
    /// Value in the experiment, in the unit of the key.
    pub asked: u64,
    /// Value that the run uses.
    pub used: u64,
    /// Reason: what the data lacks.
    pub because: String,
}

impl LoweredSetting {
    /// Returns the lowered setting, or `None` where `used` reaches `asked`.
    pub fn detect(key: &str, asked: u64, used: u64, because: impl Into<String>) -> Option<Self> {
        (used < asked).then(|| Self { key: key.into(), asked, used, because: because.into() })
    }
}

/// Prints `n_way 4 -> 2: the data has 2 classes to train on`.
impl fmt::Display for LoweredSetting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.key.rsplit('.').next().unwrap_or(&self.key);
        write!(formatter, "{name} {} -> {}: {}", self.asked, self.used, self.because)
    }
}
