//! Reasons why a kind of device cannot be used, with their cures.

use std::fmt;

/// Reason why a device cannot be used, and its cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Cause, human-readable: a fragment in lower case.
    pub what: String,
    /// Cure; empty where there is none.
    pub cure: String,
    /// `true` if the machine seems to have such a device, so that running without it deserves a notice.
    pub device_is_there: bool,
}

impl Unavailable {
    /// The machine has no such device, as far as can be seen.
    pub fn absent(what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { what: what.into(), cure: cure.into(), device_is_there: false }
    }

    /// The machine has such a device, but it cannot be used.
    pub fn unusable(what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { what: what.into(), cure: cure.into(), device_is_there: true }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)?;
        match self.cure.is_empty() {
            true => Ok(()),
            false => write!(formatter, "; {}", self.cure),
        }
    }
}
