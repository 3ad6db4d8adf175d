//! How far is a run of a sweep? Derived from its folder, whatever happened to the process that wrote it.

use std::io;
use std::path::Path;

use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::printable;
use xrun_results::format::Outcome;
use xrun_results::{index, read};

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

/// Removes the folder of a run that was killed before its first step.
///
/// # Errors
/// It is a symlink, has files that no run has before its first step, or cannot be removed.
pub fn clear(run: &Path) -> Result<(), WriteError> {
    if run.is_symlink() {
        return write::at(run, Err(io::Error::other("is a symlink, where the folder of a run is to be")));
    }
    if !run.exists() || of(run) != Standing::Missing {
        return Ok(());
    }
    for entry in write::at(run, std::fs::read_dir(run))? {
        let name = write::at(run, entry)?.file_name().to_string_lossy().into_owned();
        if !BEFORE_THE_FIRST_STEP.contains(&name.as_str()) && !name.starts_with(write::WRITING) {
            let why = format!(
                "has no {}, so it is not known as a run, and `{}`, so it is not removed; move it away, and the sweep runs this \
                 point again",
                layout::MANIFEST,
                printable::line(&name, 100)
            );
            return write::at(run, Err(io::Error::other(why)));
        }
    }
    write::at(run, std::fs::remove_dir_all(run))
}

/// The files that a run has when it is killed before its manifest is written.
const BEFORE_THE_FIRST_STEP: &[&str] =
    &[layout::LOCK, layout::RESERVE, layout::PROCESS, layout::EXPERIMENT, layout::RESOLVED, layout::PLAN];
