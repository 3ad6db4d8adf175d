//! The order of a sweep's runs: a list one after another, or a search that decides by results ([`super::search::scheduler`]).

use std::collections::VecDeque;
use std::path::Path;

use super::journal::{Histories, History};
use super::record::run_directory;
use super::run_status::RunStatus;
use super::search::scheduler::searcher;
use super::trials::RunId;
use crate::records::sweep::SweepRecord;
use xrun_core::files::layout;
use xrun_core::files::write::WriteError;
use xrun_results::report;

/// A run, and the step that it stops after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The run.
    pub run: RunId,
    /// It stops after this step; `None` means at its end.
    pub until: Option<u64>,
}

/// Hands out the runs of a sweep.
pub trait Scheduler {
    /// The number of runs that have not begun or are to continue, besides the active ones. A search may add some later.
    fn left(&self, record: &SweepRecord) -> usize;

    /// Returns the next job; `None` while there is none. There may be one again when a run has ended.
    ///
    /// # Errors
    /// The choice cannot be written down.
    fn next(&mut self, record: &mut SweepRecord) -> Result<Option<Job>, WriteError>;

    /// Takes back a job that was not started: it is the next one.
    fn put_back(&mut self, job: Job);

    /// Takes out a job that an earlier process started and that is still active, whatever the run's directory says.
    fn adopt(&mut self, job: Job);

    /// Takes note that the job's process ended, or that of another program that worked on the run. `stopping`: it was asked to
    /// stop.
    fn ended(&mut self, job: Job, stopping: bool);
}

/// The scheduler of a sweep, which continues where the run directories are.
pub fn scheduler<'a>(
    sweep: &'a Path,
    record: &SweepRecord,
    histories: &Histories,
    retry_failed: bool,
) -> Box<dyn Scheduler + 'a> {
    match &record.search {
        Some(search) => searcher(sweep, record, search, retry_failed),
        None => Box::new(List { sweep, waiting: to_do(sweep, record, histories, retry_failed) }),
    }
}

/// The runs of methods `grid`, `zip` and `random`, in their order.
#[derive(Debug)]
struct List<'a> {
    sweep: &'a Path,
    waiting: VecDeque<RunId>,
}

impl Scheduler for List<'_> {
    fn left(&self, _: &SweepRecord) -> usize {
        self.waiting.len()
    }

    fn next(&mut self, _: &mut SweepRecord) -> Result<Option<Job>, WriteError> {
        Ok(self.waiting.pop_front().map(|run| Job { run, until: None }))
    }

    fn put_back(&mut self, job: Job) {
        self.waiting.push_front(job.run);
    }

    fn adopt(&mut self, job: Job) {
        self.waiting.retain(|run| *run != job.run);
    }

    fn ended(&mut self, job: Job, stopping: bool) {
        if stopping && !matches!(RunStatus::read(&run_directory(self.sweep, job.run)), RunStatus::Done(_)) {
            self.waiting.push_back(job.run);
        }
    }
}

/// The runs that are not done, in their order.
fn to_do(sweep: &Path, record: &SweepRecord, histories: &Histories, retry_failed: bool) -> VecDeque<RunId> {
    let mut runs = VecDeque::with_capacity(record.order.len());
    // A retry that was decided on and has not begun, because the sweep was stopped.
    let is_retried = |run: &RunId| histories.of(*run).is_some_and(History::is_retry_to_come);
    for run in record.runs() {
        let directory = run_directory(sweep, run);
        match RunStatus::read(&directory) {
            RunStatus::Done(outcome) if outcome.is_resumable() && (retry_failed || is_retried(&run)) => {
                runs.push_back(run)
            }
            RunStatus::Done(_) => report_if_missing(&directory),
            RunStatus::NotStarted | RunStatus::Unfinished | RunStatus::Running => runs.push_back(run),
        }
    }
    runs
}

/// Writes the report of a run that was killed after its summary and before its report.
pub fn report_if_missing(run: &Path) {
    if !run.join(layout::REPORT).is_file() {
        let _ = report::write(run);
    }
}
