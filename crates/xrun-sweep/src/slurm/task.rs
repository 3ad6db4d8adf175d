//! What a task of the job array does on its node: it becomes the process of one run.

use std::path::Path;
use std::time::{Duration, Instant};

use super::super::launcher::Start;
use super::super::record::{RecordError, run_folder};
use super::super::run_status::{self, RunStatus};
use super::super::scheduler::Job;
use super::super::search::progress;
use crate::records::sweep::Record;
use xrun_core::files::write::WriteError;

/// After a requeue the earlier process may still be writing its checkpoint.
const OTHER_MAX: Duration = Duration::from_secs(30);

/// A task has nothing that it can do.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("the sweep has {runs} runs, and none at place {place}")]
    Place { place: usize, runs: usize },
    #[error("another process works on {run}")]
    Busy { run: String },
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What is to do. A node may see only a while later that a search has added a point.
pub fn record(sweep: &Path, place: usize) -> Result<Record, RecordError> {
    let begun = Instant::now();
    loop {
        let record = Record::read(sweep)?;
        if place < record.order.len() || place >= record.runs_at_most() || begun.elapsed() > OTHER_MAX {
            return Ok(record);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// How the run at this place of the order is to be started, to stop after a step or to go to its end; `None` when it is done,
/// or stands there already.
pub fn start(
    sweep: &Path,
    record: &Record,
    place: usize,
    until: Option<u64>,
    retry_failed: bool,
    allowed: bool,
) -> Result<Option<Start>, TaskError> {
    let run = record.runs().nth(place).ok_or(TaskError::Place { place, runs: record.order.len() })?;
    let folder = run_folder(sweep, run);
    let arrived = || record.search.as_ref().is_some_and(|search| progress::arrived(&folder, search, until));
    let begun = Instant::now();
    loop {
        match RunStatus::read(&folder) {
            RunStatus::Running if begun.elapsed() > OTHER_MAX => return Err(TaskError::Busy { run: run.to_string() }),
            RunStatus::Running => std::thread::sleep(Duration::from_millis(200)),
            RunStatus::Missing => {
                run_status::clear(&folder)?;
                return Ok(Some(Start::new(sweep, record, Job { run, until })));
            }
            RunStatus::Done(outcome) if !(retry_failed && outcome.resumable()) => return Ok(None),
            // Slurm may start a job again that had come to its end.
            RunStatus::Unfinished if arrived() => return Ok(None),
            RunStatus::Unfinished | RunStatus::Done(_) => {
                return Ok(Some(Start::resume(sweep, Job { run, until }, allowed)));
            }
        }
    }
}
