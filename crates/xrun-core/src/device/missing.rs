//! Why can a kind of device not be used, and what would help?

use std::fmt;

/// What is missing, and its cure in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What is missing, for people: a fragment in lower case.
    pub what: String,
    /// What to do; empty where nothing can be done.
    pub cure: String,
    /// Whether the machine has such a device as far as can be seen, so that going on without it is worth a word.
    pub device_is_there: bool,
}

impl Missing {
    /// There is no sign of such a device.
    pub fn absent(what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { what: what.into(), cure: cure.into(), device_is_there: false }
    }

    /// The device is there and cannot be used.
    pub fn unusable(what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { what: what.into(), cure: cure.into(), device_is_there: true }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)?;
        match self.cure.is_empty() {
            true => Ok(()),
            false => write!(formatter, "; {}", self.cure),
        }
    }
}
