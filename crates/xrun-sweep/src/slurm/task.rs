//! A task of a job array on its node: it becomes the process of one run.

use std::path::Path;
use std::time::{Duration, Instant};

use super::super::launcher::Start;
use super::super::record::{RecordError, run_directory};
use super::super::run_status::RunStatus;
use super::super::scheduler::Job;
use super::super::search::progress;
use crate::records::sweep::SweepRecord;

/// Longest wait for an earlier process, which may be writing its checkpoint after a requeue.
const OTHER_MAX: Duration = Duration::from_secs(30);

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
) -> Result<Option<Start>, String> {
    let missing = || format!("the sweep has {} runs, and none at place {place}", record.order.len());
    let run = record.runs().nth(place).ok_or_else(missing)?;
    let directory = run_directory(sweep, run);
    let arrived = || record.search.as_ref().is_some_and(|search| progress::arrived(&directory, search, until));
    let begun = Instant::now();
    loop {
        match RunStatus::read(&directory) {
            RunStatus::Running if begun.elapsed() > OTHER_MAX => {
                return Err(format!("another process works on {run}"));
            }
            RunStatus::Running => std::thread::sleep(Duration::from_millis(200)),
            // Slurm may requeue a job that had ended.
            RunStatus::Unfinished if arrived() => return Ok(None),
            status => {
                let next = Start::next(sweep, record, Job { run, until }, status, retry_failed, allowed);
                return next.map_err(|error| error.to_string());
            }
        }
    }
}
