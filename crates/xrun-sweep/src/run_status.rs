//! The status of a run of a sweep, read from its directory, whatever happened to the process that wrote it.

use std::io;
use std::path::Path;

use super::record::run_directory;
use super::trials::RunId;
use xrun_core::experiment::command::Placeholders;
use xrun_core::experiment::read::read_resolved;
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::printable;
use xrun_results::format::{Manifest, Outcome};
use xrun_results::{read, run_state};

/// Status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// There is nothing to resume: no directory, or one without a manifest.
    NotStarted,
    /// It was stopped or killed: `xrun resume` continues it.
    Unfinished,
    /// A process works on it.
    Running,
    /// It ended, not by a request to stop.
    Done(Outcome),
}

impl RunStatus {
    /// Reads the status of the run in this directory.
    pub fn read(run: &Path) -> Self {
        if !run.exists() {
            return Self::NotStarted;
        }
        if run_state::is_locked(run) {
            return Self::Running;
        }
        match read::summary(run) {
            Ok(Some(summary)) if summary.outcome != Outcome::Interrupted => Self::Done(summary.outcome),
            _ if run.join(layout::MANIFEST).is_file() => Self::Unfinished,
            _ => Self::NotStarted,
        }
    }
}

/// Returns `false` if the run is of a command that cannot continue: its experiment says not how, or it has saved no checkpoint.
pub fn can_resume(run: &Path) -> bool {
    // What cannot be read is reported by the resume.
    let Ok(read) = read_resolved(&run.join(layout::RESOLVED), &[]) else { return true };
    let Some(command) = read.experiment.command() else { return true };
    let absolute = std::path::absolute(run).unwrap_or_else(|_| run.to_path_buf());
    let placeholders = Placeholders::new(&read.experiment, command, Some(&absolute));
    let checkpoint = command.checkpoint.as_ref().and_then(|text| placeholders.fill(text).ok());
    let manifest = read::manifest(run).ok();
    let recorded = manifest.as_ref().and_then(Manifest::existing_working_directory);
    let directory = command.working_directory.as_ref().map(Path::new).or(recorded).unwrap_or(Path::new(""));
    command.resume.is_some() && checkpoint.is_none_or(|path| directory.join(path).exists())
}

/// Moves the directory of a run to the sweep's `interrupted`, so that the run can begin anew.
///
/// # Errors
/// It cannot be moved.
pub fn move_aside(sweep: &Path, run: RunId) -> Result<(), WriteError> {
    let directory = sweep.join(layout::INTERRUPTED);
    write::create_directory(&directory)?;
    let names = (1..).map(|number| if number == 1 { run.to_string() } else { format!("{run}_{number}") });
    let free = names.map(|name| directory.join(name)).find(|path| path.symlink_metadata().is_err());
    let from = run_directory(sweep, run);
    free.map_or(Ok(()), |free| write::with_path(&from, std::fs::rename(&from, free)))
}

/// Removes the directory of a run that was killed before its manifest was written.
///
/// # Errors
/// It is a symlink, has files that no run has before its manifest, or cannot be removed.
pub fn remove_unstarted(run: &Path) -> Result<(), WriteError> {
    if run.is_symlink() {
        return write::with_path(run, Err(io::Error::other("is a symlink, and a run needs a directory here")));
    }
    if !run.exists() || RunStatus::read(run) != RunStatus::NotStarted {
        return Ok(());
    }
    for entry in write::with_path(run, std::fs::read_dir(run))? {
        let name = write::with_path(run, entry)?.file_name().to_string_lossy().into_owned();
        if !FILES_BEFORE_MANIFEST.contains(&name.as_str()) && !name.starts_with(write::WRITING) {
            let why = format!(
                "has `{}` and no {}, so it may not be a run, and is not removed; move it away, then resume the sweep",
                printable::line(&name, 100),
                layout::MANIFEST
            );
            return write::with_path(run, Err(io::Error::other(why)));
        }
    }
    write::with_path(run, std::fs::remove_dir_all(run))
}

/// Files of a run that was killed before its manifest was written.
const FILES_BEFORE_MANIFEST: &[&str] =
    &[layout::LOCK, layout::DISK_RESERVE, layout::PROCESS, layout::EXPERIMENT, layout::RESOLVED, layout::PLAN];
