//! Which run comes next? All of a list, one after another; a search decides by results ([`super::search::course`]).

use std::collections::VecDeque;
use std::path::Path;

use super::needs::tried_again;
use super::points::RunId;
use super::record::run_folder;
use super::standing::{self, Standing};
use crate::records::sweep::Record;
use xrun_core::files::layout;
use xrun_core::files::write::WriteError;
use xrun_results::report;

/// A run, and how far it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    pub run: RunId,
    /// It stops after this step; `None` is its end.
    pub until: Option<u64>,
}

/// Hands out the runs of a sweep.
pub trait Course {
    /// Runs that have not begun or are to go on, besides those that run now. A search may add some later.
    fn left(&self, record: &Record) -> usize;
    /// The next one; `None` while there is none. Another one may be there when a run has ended.
    ///
    /// # Errors
    /// What was chosen cannot be written down.
    fn next(&mut self, record: &mut Record) -> Result<Option<Job>, WriteError>;
    /// It was not started after all.
    fn put_back(&mut self, job: Job);
    /// An earlier process sent it on its way, and it is still there, whatever its folder says: it is not handed out.
    fn adopt(&mut self, job: Job);
    /// Its process ended, or that of somebody else who worked on it. `stopping` says that it was asked to.
    fn ended(&mut self, job: Job, stopping: bool);
}

/// All runs of a list.
#[derive(Debug)]
pub struct List<'a> {
    sweep: &'a Path,
    waiting: VecDeque<RunId>,
}

impl<'a> List<'a> {
    /// What is not done of a sweep.
    pub fn new(sweep: &'a Path, record: &Record, retry_failed: bool) -> Self {
        Self { sweep, waiting: to_do(sweep, record, retry_failed) }
    }
}

impl Course for List<'_> {
    fn left(&self, _: &Record) -> usize {
        self.waiting.len()
    }

    fn next(&mut self, _: &mut Record) -> Result<Option<Job>, WriteError> {
        Ok(self.waiting.pop_front().map(|run| Job { run, until: None }))
    }

    fn put_back(&mut self, job: Job) {
        self.waiting.push_front(job.run);
    }

    fn adopt(&mut self, job: Job) {
        self.waiting.retain(|run| *run != job.run);
    }

    fn ended(&mut self, job: Job, stopping: bool) {
        if stopping && !matches!(standing::of(&run_folder(self.sweep, job.run)), Standing::Done(_)) {
            self.waiting.push_back(job.run);
        }
    }
}

/// The runs that are not done, in their order.
pub fn to_do(sweep: &Path, record: &Record, retry_failed: bool) -> VecDeque<RunId> {
    let mut runs = VecDeque::with_capacity(record.order.len());
    // Decided on, and not begun: whoever was to do it was stopped.
    let retries = tried_again(sweep, record);
    let is_retried = |run: &RunId| retries.get(run).is_some_and(|retry| retry.to_come);
    for run in record.runs() {
        let folder = run_folder(sweep, run);
        match standing::of(&folder) {
            Standing::Done(outcome) if outcome.resumable() && (retry_failed || is_retried(&run)) => runs.push_back(run),
            Standing::Done(_) => report_if_missing(&folder),
            Standing::Missing | Standing::Begun | Standing::Running => runs.push_back(run),
        }
    }
    runs
}

/// Writes the report of a run that was killed between its summary and its report.
pub fn report_if_missing(run: &Path) {
    if !run.join(layout::REPORT).is_file() {
        let _ = report::write(run);
    }
}
