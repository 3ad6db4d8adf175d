//! The interface between a sweep's loop and what starts its runs, and the command line of a run's process.
//!
//! [`super::local::Local`] starts processes on this machine, [`super::slurm::launcher::SlurmLauncher`] submits jobs to a cluster.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::journal::Histories;
use super::measure::Queued;
use super::record::run_directory;
use super::schedule::{Event, SweepError};
use super::scheduler::Job;
use super::trials::RunId;
use crate::records::sweep::{Process, SweepRecord};
use crate::run_status::{self, RunStatus};
use xrun_core::files::write::WriteError;
use xrun_core::files::{file, layout};
use xrun_core::printable;
use xrun_run::child;
use xrun_run::stop::StopSignal;

/// The option that starts the programs that a directory names, whoever created it.
pub const ALLOW_COMMAND: &str = "--allow-command";

/// The sweep that a launcher works for.
pub struct SweepContext<'a> {
    /// The sweep.
    pub record: &'a SweepRecord,
    /// The processes of its runs that ended.
    pub histories: &'a Histories,
    /// The signal that stops it.
    pub stop: &'a StopSignal,
    /// Its progress.
    pub report: &'a mut dyn FnMut(Event<'_>),
}

/// Answer to the start of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The job is active.
    Active,
    /// It does not fit beside the active jobs, or a signal came: it stays with the scheduler.
    Later,
    /// The run is done.
    Done,
}

/// News of a job.
#[derive(Clone, Debug)]
pub enum JobOutcome {
    /// The run reached the step that the job was to stop after, ended, or failed.
    Ended(Process),
    /// The run's process died, and the run is tried again. The job stays active, unless [`JobOutcome::Returned`] follows.
    Retried(Process),
    /// The job was not started after all: it goes back to the scheduler.
    Returned,
    /// The user cancelled it.
    Cancelled,
}

/// Starts the runs of a sweep and reports their ends.
pub trait Launcher {
    /// The largest number of active jobs.
    fn slots(&self) -> usize;

    /// The number of jobs that were started or adopted and have not ended.
    fn active(&self) -> usize;

    /// Takes over the jobs of an earlier process of the sweep, and waits until no other process works on a run whose state a
    /// search has to know.
    ///
    /// # Errors
    /// The cluster does not answer.
    fn adopt(&mut self, context: &mut SweepContext<'_>) -> Result<Vec<Job>, SweepError>;

    /// Starts a job, or prepares it for the next [`Launcher::poll`].
    ///
    /// # Errors
    /// The process cannot be started.
    fn start(&mut self, job: Job, context: &mut SweepContext<'_>) -> Result<Started, SweepError>;

    /// Returns what happened since the last call, or nothing after a wait.
    ///
    /// # Errors
    /// The cluster refuses a job, and no other is active.
    fn poll(&mut self, context: &mut SweepContext<'_>) -> Result<Vec<(Job, JobOutcome)>, SweepError>;

    /// Asks all processes to stop with a checkpoint; they are waited for. Returns the jobs that continue instead, on a cluster.
    fn interrupt(&mut self, report: &mut dyn FnMut(Event<'_>)) -> Option<Vec<u64>>;

    /// State of the runs in a cluster's queue, for the table.
    fn queued(&self, _: &SweepRecord) -> BTreeMap<RunId, Queued> {
        BTreeMap::new()
    }
}

/// The command line of a run's process.
#[derive(Clone, Debug)]
pub struct Start {
    /// The run, and the step that it stops after.
    pub job: Job,
    /// Arguments of `xrun`.
    pub arguments: Vec<OsString>,
    /// File for its standard error.
    pub stderr: PathBuf,
    /// It resumes a run that an earlier process began.
    pub resumes: bool,
}

impl Start {
    /// The first process of a run.
    pub fn new(sweep: &Path, record: &SweepRecord, job: Job) -> Self {
        let mut arguments: Vec<OsString> = vec!["run".into(), sweep.join(layout::BASE).into()];
        arguments.extend(record.overrides(job.run).into_iter().flat_map(|text| ["-s".into(), text.into()]));
        arguments.extend(["--directory".into(), run_directory(sweep, job.run).into()]);
        Self::quiet(sweep, job, arguments, false)
    }

    /// A process that resumes a run that was stopped or killed. `allowed`: it starts the programs that the run names, whoever
    /// created its directory.
    pub fn resume(sweep: &Path, job: Job, allowed: bool) -> Self {
        let mut arguments: Vec<OsString> = vec!["resume".into(), run_directory(sweep, job.run).into()];
        arguments.extend(allowed.then(|| ALLOW_COMMAND.into()));
        Self::quiet(sweep, job, arguments, true)
    }

    /// The next process of a run that no process works on; `None` for a run that is done and not to be retried. A run that
    /// cannot be resumed is moved aside and begins anew.
    ///
    /// # Errors
    /// The remains of an interrupted start cannot be removed, or those of a run cannot be moved.
    pub fn next(
        sweep: &Path,
        record: &SweepRecord,
        job: Job,
        status: RunStatus,
        retry_failed: bool,
        allowed: bool,
    ) -> Result<Option<Self>, WriteError> {
        Ok(match status {
            RunStatus::NotStarted => {
                run_status::remove_unstarted(&run_directory(sweep, job.run))?;
                Some(Self::new(sweep, record, job))
            }
            RunStatus::Done(outcome) if !(retry_failed && outcome.is_resumable()) => None,
            RunStatus::Unfinished | RunStatus::Done(_) if !run_status::can_resume(&run_directory(sweep, job.run)) => {
                run_status::move_aside(sweep, job.run)?;
                Some(Self::new(sweep, record, job))
            }
            RunStatus::Running | RunStatus::Unfinished | RunStatus::Done(_) => Some(Self::resume(sweep, job, allowed)),
        })
    }

    /// The command, not yet started.
    ///
    /// # Errors
    /// The file for its standard error cannot be opened.
    pub fn command(&self, program: &Path) -> io::Result<Command> {
        let stderr = file::open_own(&self.stderr, OpenOptions::new().create(true).append(true))?;
        let mut command = child::command_of(program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        // The base has all settings: a variable that has changed since must not change half of the trials.
        let names = std::env::vars_os().map(|(name, _)| name);
        names.filter(|name| name.to_string_lossy().starts_with("XRUN__")).for_each(|name| {
            command.env_remove(name);
        });
        Ok(command)
    }

    fn quiet(sweep: &Path, job: Job, mut arguments: Vec<OsString>, resumes: bool) -> Self {
        arguments.extend(job.until.into_iter().flat_map(|step| ["--until".into(), step.to_string().into()]));
        arguments.extend(["--quiet", "--progress", "none"].map(OsString::from));
        Self { job, arguments, stderr: stderr_of(sweep, job.run), resumes }
    }
}

/// File of a run's standard error.
pub fn stderr_of(sweep: &Path, run: RunId) -> PathBuf {
    run_directory(sweep, run).with_extension("txt")
}

/// Only this many bytes at the end of a file are searched for its last line.
const TAIL_BYTES: u64 = 64 * 1024;

/// Returns the last line of a file, `None` where it has none. Removes an empty file.
pub fn last_line(path: &Path) -> Option<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = file::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    if length == 0 {
        let _ = std::fs::remove_file(path);
        return None;
    }
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let line = line.strip_prefix("error: ").unwrap_or(line);
    Some(printable::line(line, 400))
}
