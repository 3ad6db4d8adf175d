//! How far is a run of a sweep? Derived from its folder, whatever happened to the process that wrote it.

use std::path::Path;

use crate::results::format::Outcome;
use crate::results::write::{self, WriteError};
use crate::results::{index, layout, read};

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing that could be continued.
    Missing,
    /// Stopped or killed: `xrun resume` goes on with it.
    Begun,
    /// A process works on it.
    Running,
    Done(Outcome),
}

/// How far the run in this folder is.
pub fn of(run: &Path) -> Standing {
    if !run.exists() {
        return Standing::Missing;
    }
    if index::is_locked(run) {
        return Standing::Running;
    }
    match read::summary(run) {
        Ok(Some(summary)) if summary.outcome != Outcome::Interrupted => Standing::Done(summary.outcome),
        _ if run.join(layout::MANIFEST).is_file() => Standing::Begun,
        _ => Standing::Missing,
    }
}

/// Takes away what a run left that was killed before its first step.
pub fn clear(run: &Path) -> Result<(), WriteError> {
    match run.exists() && of(run) == Standing::Missing {
        true => write::at(run, std::fs::remove_dir_all(run)),
        false => Ok(()),
    }
}
