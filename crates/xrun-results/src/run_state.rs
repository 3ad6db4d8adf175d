//! State of a run, and whether a process holds its lock.

use std::fs::TryLockError;
use std::path::Path;

use super::format::Outcome;
use xrun_core::files::{file, layout};

/// State of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunState {
    /// A process holds the directory's lock.
    Running,
    /// The run has a summary, with this outcome.
    Ended(Outcome),
    /// No process holds the lock and there is no summary: the process was killed or the machine went down.
    Killed,
    /// The manifest, the summary, or the end of another record is missing or damaged; with the reason.
    Unreadable(String),
}

impl RunState {
    /// The state as it is displayed: `running`, `time limit`, `killed`.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ended(outcome) => outcome.label(),
            Self::Killed => "killed",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

/// Returns `true` if a process holds the run's lock. Takes a shared lock, so that concurrent callers do not see each
/// other.
pub fn is_locked(run: &Path) -> bool {
    let Ok(file) = file::open(&run.join(layout::LOCK)) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}
