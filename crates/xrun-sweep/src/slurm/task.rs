//! A task of a job array on its node: it becomes the process of one run.

use std::path::Path;
use std::time::{Duration, Instant};

use super::super::launcher::Start;
use super::super::record::{RecordError, run_directory};
use super::super::run_status::RunStatus;
use super::super::scheduler::Job;
use super::super::search::progress;
use crate::records::sweep::SweepRecord;
use xrun_core::files::write::WriteError;

/// Longest wait for an earlier process, which may be writing its checkpoint after a requeue.
const OTHER_MAX: Duration = Duration::from_secs(30);

/// A task cannot start its run.
#[derive(Debug, thiserror::Error)]
pub enum RunStartError {
    /// The sweep has no run at this place.
    #[error("the sweep has {runs} runs, and none at place {place}")]
    Place {
        /// The place in the order of the sweep, from 0.
        place: usize,
        /// Number of runs.
        runs: usize,
    },
    /// Another process works on the run.
    #[error("another process works on {run}")]
    Busy {
        /// The run.
        run: String,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Reads the record of the sweep. A node may see a trial that a search added only after a while.
///
/// # Errors
/// The record cannot be read.
pub fn record(sweep: &Path, place: usize) -> Result<SweepRecord, RecordError> {
    let begun = Instant::now();
    loop {
        let record = SweepRecord::read(sweep)?;
        if place < record.order.len() || place >= record.runs_at_most() || begun.elapsed() > OTHER_MAX {
            return Ok(record);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Returns how to start the run at this place of the order, to stop after a step or at its end; `None` when it is done or
/// there already.
///
/// # Errors
/// The sweep has no such run, or another process works on it.
pub fn start(
    sweep: &Path,
    record: &SweepRecord,
    place: usize,
    until: Option<u64>,
    retry_failed: bool,
    allowed: bool,
) -> Result<Option<Start>, RunStartError> {
    let run = record.runs().nth(place).ok_or(RunStartError::Place { place, runs: record.order.len() })?;
    let directory = run_directory(sweep, run);
    let arrived = || record.search.as_ref().is_some_and(|search| progress::arrived(&directory, search, until));
    let begun = Instant::now();
    loop {
        match RunStatus::read(&directory) {
            RunStatus::Running if begun.elapsed() > OTHER_MAX => {
                return Err(RunStartError::Busy { run: run.to_string() });
            }
            RunStatus::Running => std::thread::sleep(Duration::from_millis(200)),
            // Slurm may requeue a job that had ended.
            RunStatus::Unfinished if arrived() => return Ok(None),
            status => return Ok(Start::next(sweep, record, Job { run, until }, status, retry_failed, allowed)?),
        }
    }
}
