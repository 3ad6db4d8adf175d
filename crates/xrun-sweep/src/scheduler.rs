//! Scheduler of a sweep: a fixed list, or a search that chooses by results. Both read the run directories only, so a sweep that was
//! killed continues with the same decisions.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use super::journal::{Histories, History};
use super::record::run_directory;
use super::run_status::RunStatus;
use super::search::asha::{self, Choice, TrialState};
use super::search::progress::{RunStage, cost_at_end, failed, in_flight, rungs_sent, stage, trial_state};
use super::search::proposals;
use super::search::tpe::{self, Observation};
use super::trials::RunId;
use crate::records::search::{Search, SearchMethod};
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
#[derive(Debug)]
pub struct Scheduler<'a> {
    sweep: &'a Path,
    /// Jobs that are to begin or to continue.
    waiting: VecDeque<Job>,
    method: Method,
}

/// Method that chooses further jobs.
#[derive(Debug)]
enum Method {
    /// There are none: methods `grid`, `zip` and `random`.
    List,
    /// Method `asha`, with the state of each trial.
    Asha { search: Search, reduction_factor: u64, trials: Vec<TrialState> },
    /// Method `tpe`, with the cost of each trial that has a result. `exhausted`: no different trial is left.
    Tpe { search: Search, costs: BTreeMap<u64, f64>, exhausted: bool },
}

impl<'a> Scheduler<'a> {
    /// Scheduler of a sweep, restored from the run directories.
    pub fn new(sweep: &'a Path, record: &SweepRecord, histories: &Histories, retry_failed: bool) -> Self {
        let method = match record.search.clone().map(|search| (search.method.clone(), search)) {
            None => Method::List,
            Some((SearchMethod::Asha { reduction_factor, .. }, search)) => {
                let trials = vec![TrialState::default(); record.trials.len()];
                Method::Asha { search, reduction_factor, trials }
            }
            Some((SearchMethod::Tpe(_), search)) => Method::Tpe { search, costs: BTreeMap::new(), exhausted: false },
        };
        let mut scheduler = Self { sweep, waiting: VecDeque::new(), method };
        for run in record.runs() {
            // A retry that was decided on and has not begun, because the sweep was stopped.
            let retried = histories.get(run).is_some_and(History::is_retry_to_come);
            scheduler.restore(run, retry_failed, retried);
        }
        scheduler
    }

    /// Adds a run in the state that its directory records.
    fn restore(&mut self, run: RunId, retry_failed: bool, retried: bool) {
        let directory = run_directory(self.sweep, run);
        let status = RunStatus::read(&directory);
        if matches!(status, RunStatus::Done(_)) {
            report_if_missing(&directory);
        }
        let is_resumable = matches!(status, RunStatus::Done(outcome) if outcome.is_resumable());
        let is_open = !matches!(status, RunStatus::Done(_));
        match &mut self.method {
            Method::List if is_open || (is_resumable && (retry_failed || retried)) => {
                self.waiting.push_back(Job { run, until: None });
            }
            Method::List => {}
            Method::Asha { search, trials, .. } => {
                let mut found = trial_state(&directory, search, false);
                let goes_on = match stage(&directory, search.rungs()) {
                    RunStage::Open { .. } => true,
                    RunStage::Over(_) => retry_failed && is_resumable,
                    RunStage::New => false,
                    // Stopped between the last step of the rung and its validation: the result is missing.
                    RunStage::Waits => found.costs.len() < found.rungs_assigned,
                };
                if goes_on {
                    // A run that failed has not reached its rung.
                    found.costs.truncate(found.rungs_assigned - 1);
                    found.is_over = false;
                    self.waiting.push_back(job(search, at(run), found.rungs_assigned - 1));
                }
                trials[at(run)] = found;
            }
            Method::Tpe { .. } if is_open || (is_resumable && retry_failed) => {
                self.waiting.push_back(Job { run, until: None });
            }
            Method::Tpe { search, costs, .. } => {
                costs.insert(run.trial, cost(&directory, search));
            }
        }
    }

    /// The number of runs that have not begun or are to continue, besides the active ones. A search may add some later.
    pub fn left(&self, record: &SweepRecord) -> usize {
        let to_choose = match &self.method {
            Method::List | Method::Tpe { exhausted: true, .. } => 0,
            Method::Asha { trials, .. } => trials.iter().filter(|trial| trial.rungs_assigned == 0).count(),
            Method::Tpe { search, .. } => {
                usize::try_from(search.trials.saturating_sub(record.trials.len() as u64)).unwrap_or(usize::MAX)
            }
        };
        self.waiting.len() + to_choose
    }

    /// Returns the next job; `None` while there is none. There may be one again when a run has ended. Method `tpe` adds its trial
    /// to the record.
    ///
    /// # Errors
    /// The choice cannot be written down.
    pub fn next(&mut self, record: &mut SweepRecord) -> Result<Option<Job>, WriteError> {
        if let Some(job) = self.waiting.pop_front() {
            return Ok(Some(job));
        }
        match &mut self.method {
            Method::List => Ok(None),
            Method::Asha { search, reduction_factor, trials } => {
                let Choice::Train { trial, rung } = asha::choose(trials, search.rungs().len(), *reduction_factor)
                else {
                    return Ok(None);
                };
                trials[trial].rungs_assigned = rung + 1;
                Ok(Some(job(search, trial, rung)))
            }
            Method::Tpe { search, costs, exhausted } => {
                let trial = record.trials.len() as u64 + 1;
                let Some(tpe) = search.tpe().filter(|_| trial <= search.trials) else { return Ok(None) };
                let observe =
                    |(&trial, &cost): (&u64, &f64)| Observation { trial, values: record.values(trial).to_vec(), cost };
                let observations: Vec<Observation> = costs.iter().map(observe).collect();
                let proposed = tpe::propose(tpe, record.seed, trial, &observations, &record.trials);
                let Some((values, by_results)) = proposed else {
                    *exhausted = true;
                    return Ok(None);
                };
                let based_on =
                    observations.iter().filter(|_| by_results).map(|observation| observation.trial).collect();
                proposals::append(self.sweep, record, values, based_on)?;
                Ok(Some(Job { run: RunId { trial, repeat: 1 }, until: None }))
            }
        }
    }

    /// Takes back a job that was not started: it is the next one.
    pub fn put_back(&mut self, job: Job) {
        self.waiting.push_front(job);
    }

    /// Takes out a job that an earlier process started and that is still active, whatever the run's directory says.
    pub fn adopt(&mut self, job: Job) {
        self.waiting.retain(|waiting| waiting.run != job.run);
        match &mut self.method {
            Method::List => {}
            Method::Asha { search, trials, .. } => {
                trials[at(job.run)] = in_flight(&run_directory(self.sweep, job.run), search, job.until);
            }
            Method::Tpe { costs, .. } => {
                costs.remove(&job.run.trial);
            }
        }
    }

    /// Updates the schedule after the process of a job has ended, or that of another program that worked on the run. `stopping` is
    /// true if the sweep asked it to stop.
    pub fn on_job_end(&mut self, job: Job, stopping: bool) {
        let directory = run_directory(self.sweep, job.run);
        let status = RunStatus::read(&directory);
        let is_over = matches!(status, RunStatus::Done(_));
        // Another process works on the run, whose result is not known yet.
        let continues = stopping || status == RunStatus::Running;
        match &mut self.method {
            Method::List if stopping && !is_over => self.waiting.push_back(job),
            Method::List => {}
            Method::Asha { search, trials, .. } => {
                let (trial, target) = (&mut trials[at(job.run)], rungs_sent(search.rungs(), job.until));
                let lost = matches!(stage(&directory, search.rungs()), RunStage::New | RunStage::Open { .. });
                if lost && continues {
                    trial.rungs_assigned = target;
                    return self.waiting.push_back(job);
                }
                let found = trial_state(&directory, search, lost);
                // A process that failed before it could resume leaves no trace: without an end the run would be tried for ever.
                let has_failed = !stopping && found.rungs_assigned < target;
                *trial = if has_failed { failed(&directory, search, target) } else { found };
            }
            Method::Tpe { .. } if continues && !is_over => self.waiting.push_back(job),
            Method::Tpe { search, costs, .. } => {
                costs.insert(job.run.trial, cost(&directory, search));
            }
        }
    }
}

/// The job of a trial of method `asha` to a rung, both counted from 0; the last rung is the end of a run.
fn job(search: &Search, trial: usize, rung: usize) -> Job {
    let rungs = search.rungs();
    let run = RunId { trial: trial as u64 + 1, repeat: 1 };
    Job { run, until: rungs.get(rung).copied().filter(|_| rung + 1 < rungs.len()) }
}

/// Index of the trial of a run.
fn at(run: RunId) -> usize {
    run.trial as usize - 1
}

/// Cost of a run of method `tpe` that has ended; infinite where it failed.
fn cost(run: &Path, search: &Search) -> f64 {
    match RunStatus::read(run) {
        RunStatus::Done(outcome) if outcome.is_complete() => cost_at_end(run, search),
        _ => f64::INFINITY,
    }
}

/// Writes the report of a run that was killed after its summary and before its report.
fn report_if_missing(run: &Path) {
    if !run.join(layout::REPORT).is_file() {
        let _ = report::write(run);
    }
}
