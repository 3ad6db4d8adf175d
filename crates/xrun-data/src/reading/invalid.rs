//! Treatment of invalid data: all of it is counted and reported at once, and left out where the settings say so.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use xrun_core::dataset::error::{DataError, FATAL, InvalidItems};

/// The policy for data that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnInvalid {
    /// The run does not start, or ends, with the item's name.
    Fail,
    /// The item is left out, and the manifest counts how many were and why.
    Skip,
}

/// Reason under which an invalid item is counted, one of a few fixed words, and a message without the item's name.
pub type Fault = (&'static str, String);

/// The cure for one broken item.
const LEAVE_OUT: &str = "correct it, or leave it out with on_invalid = \"skip\"";

/// Collector of invalid data: counts all of it, keeps the first items by name, and reports them at once.
#[derive(Debug)]
pub struct InvalidCollector {
    policy: OnInvalid,
    /// Items that may be left out.
    pub found: InvalidItems,
    /// Items that must not.
    fatal: InvalidItems,
}

impl InvalidCollector {
    /// Makes an empty collector for the policy `on_invalid`.
    pub fn new(policy: OnInvalid) -> Self {
        Self { policy, found: InvalidItems::default(), fatal: InvalidItems::default() }
    }

    /// Adds an item that may be left out. The reason is one of a few fixed words.
    pub fn add(&mut self, reason: &'static str, path: &Path, message: String) {
        self.found.add(reason, || DataError::file(path, message));
    }

    /// Does the same as [`InvalidCollector::add`] with a message that is made only where it is shown.
    pub fn add_with(&mut self, reason: &'static str, path: &Path, message: impl FnOnce() -> String) {
        self.found.add(reason, || DataError::file(path, message()));
    }

    /// Adds an item that no policy leaves out, for one of the fatal reasons. Reading continues, and [`InvalidCollector::result`] ends it.
    pub fn add_fatal(&mut self, reason: &'static str, error: impl FnOnce() -> DataError) {
        self.fatal.add(reason, error);
    }

    /// Collects the invalid items of data that `read` opens, and reports all of them at once, if the policy does not leave them out.
    ///
    /// # Errors
    /// The data cannot be opened, or there are items that may not be left out.
    pub fn collect<T>(policy: OnInvalid, read: impl FnOnce(&mut Self) -> Result<T, DataError>) -> Result<T, DataError> {
        let mut invalid = Self::new(policy);
        match read(&mut invalid) {
            Ok(read) => invalid.result().map(|()| read),
            Err(fatal) => Err(invalid.with_error(fatal)),
        }
    }

    /// Reports all invalid items after everything was read, if the policy does not leave them out.
    ///
    /// # Errors
    /// There are items that may not be left out.
    pub fn result(&self) -> Result<(), DataError> {
        let mut all = self.fatal.clone();
        if self.policy == OnInvalid::Fail {
            all.append(&self.found);
        }
        match all.first.as_slice() {
            [] => Ok(()),
            [only] if all.total() == 1 => Err(match only.error.clone() {
                DataError::File { path, message, .. } if self.fatal.total() == 0 => {
                    DataError::File { path, message, hint: Some(LEAVE_OUT.into()) }
                }
                other => other,
            }),
            _ => Err(DataError::Several(all)),
        }
    }

    /// Joins an error that ended the reading with the items that were found before it.
    fn with_error(mut self, error: DataError) -> DataError {
        self.add_fatal(FATAL, || error.clone());
        self.result().err().unwrap_or(error)
    }
}
