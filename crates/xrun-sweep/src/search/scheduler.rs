//! The schedulers of searches. They decide by the run directories, so a search that was killed continues with the same decisions.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use super::asha::{self, Choice, TrialState};
use super::progress::{Stage, cost_at_end, failed, in_flight, rungs_sent, stage, trial_state};
use super::proposals;
use super::tpe::{self, Observation};
use crate::record::run_directory;
use crate::records::search::{Search, SearchMethod};
use crate::records::sweep::SweepRecord;
use crate::run_status::RunStatus;
use crate::scheduler::{Job, Scheduler, report_if_missing};
use crate::trials::RunId;
use xrun_core::files::write::WriteError;

/// Scheduler of method `asha`.
#[derive(Debug)]
pub struct Asha<'a> {
    sweep: &'a Path,
    search: Search,
    reduction_factor: u64,
    /// Jobs that began and have not reached their rung.
    open: VecDeque<Job>,
    /// State of each trial.
    trials: Vec<TrialState>,
}

/// Scheduler of method `tpe`.
#[derive(Debug)]
pub struct Tpe<'a> {
    sweep: &'a Path,
    search: Search,
    /// Jobs that were chosen or began, and have not ended.
    open: VecDeque<Job>,
    /// Cost of each trial that has a result.
    costs: BTreeMap<u64, f64>,
    /// No different trial is left.
    exhausted: bool,
}

/// The scheduler of a search.
pub fn searcher<'a>(
    sweep: &'a Path,
    record: &SweepRecord,
    search: &Search,
    retry_failed: bool,
) -> Box<dyn Scheduler + 'a> {
    match &search.method {
        SearchMethod::Asha { reduction_factor, .. } => {
            Box::new(Asha::new(sweep, record, search.clone(), *reduction_factor, retry_failed))
        }
        SearchMethod::Tpe(_) => Box::new(Tpe::new(sweep, record, search.clone(), retry_failed)),
    }
}

fn run(trial: usize) -> RunId {
    RunId { trial: trial as u64 + 1, repeat: 1 }
}

impl<'a> Asha<'a> {
    fn new(sweep: &'a Path, record: &SweepRecord, search: Search, reduction_factor: u64, retry_failed: bool) -> Self {
        let count = record.trials.len();
        let mut asha =
            Self { sweep, search, reduction_factor, open: VecDeque::new(), trials: vec![TrialState::default(); count] };
        for trial in 0..count {
            let directory = run_directory(sweep, run(trial));
            let mut found = trial_state(&directory, &asha.search, false);
            let goes_on = match stage(&directory, asha.search.rungs()) {
                Stage::Open { .. } => true,
                Stage::Over(outcome) => {
                    report_if_missing(&directory);
                    retry_failed && outcome.is_resumable()
                }
                Stage::New => false,
                // A signal came after the step of the rung, and before its validation.
                Stage::Waits => found.costs.len() < found.sent,
            };
            if goes_on {
                // A run that failed has not reached its rung.
                found.costs.truncate(found.sent - 1);
                found.over = false;
                asha.open.push_back(asha.job(trial, found.sent - 1));
            }
            asha.trials[trial] = found;
        }
        asha
    }

    /// The job of a trial to a rung, both counted from 0; the last rung is the end of a run.
    fn job(&self, trial: usize, rung: usize) -> Job {
        let rungs = self.search.rungs();
        Job { run: run(trial), until: rungs.get(rung).copied().filter(|_| rung + 1 < rungs.len()) }
    }
}

impl Scheduler for Asha<'_> {
    fn left(&self, _: &SweepRecord) -> usize {
        self.open.len() + self.trials.iter().filter(|trial| trial.sent == 0).count()
    }

    fn next(&mut self, _: &mut SweepRecord) -> Result<Option<Job>, WriteError> {
        if let Some(job) = self.open.pop_front() {
            return Ok(Some(job));
        }
        match asha::choose(&self.trials, self.search.rungs().len(), self.reduction_factor) {
            Choice::Nothing => Ok(None),
            Choice::Train { trial, rung } => {
                self.trials[trial].sent = rung + 1;
                Ok(Some(self.job(trial, rung)))
            }
        }
    }

    fn put_back(&mut self, job: Job) {
        self.open.push_front(job);
    }

    fn adopt(&mut self, job: Job) {
        self.open.retain(|open| open.run != job.run);
        let found = in_flight(&run_directory(self.sweep, job.run), &self.search, job.until);
        self.trials[job.run.trial as usize - 1] = found;
    }

    fn ended(&mut self, job: Job, stopping: bool) {
        let directory = run_directory(self.sweep, job.run);
        let rungs = self.search.rungs();
        let lost = matches!(stage(&directory, rungs), Stage::New | Stage::Open { .. });
        // Another process works on the run, whose result is not known yet.
        let busy = RunStatus::read(&directory) == RunStatus::Running;
        if lost && (stopping || busy) {
            let until = rungs_sent(rungs, job.until);
            self.trials[job.run.trial as usize - 1].sent = until;
            return self.open.push_back(job);
        }
        let (found, target) = (trial_state(&directory, &self.search, lost), rungs_sent(rungs, job.until));
        // A process that failed before it could resume leaves no trace: without an end the run would be tried for ever.
        let lost = !stopping && found.sent < target;
        self.trials[job.run.trial as usize - 1] = if lost { failed(&directory, &self.search, target) } else { found };
    }
}

impl<'a> Tpe<'a> {
    fn new(sweep: &'a Path, record: &SweepRecord, search: Search, retry_failed: bool) -> Self {
        let mut tpe = Self { sweep, search, open: VecDeque::new(), costs: BTreeMap::new(), exhausted: false };
        for trial in 0..record.trials.len() {
            let directory = run_directory(sweep, run(trial));
            match stage(&directory, &[]) {
                Stage::Over(outcome) if outcome.is_complete() || !(retry_failed && outcome.is_resumable()) => {
                    report_if_missing(&directory);
                    tpe.observe(run(trial));
                }
                _ => tpe.open.push_back(Job { run: run(trial), until: None }),
            }
        }
        tpe
    }

    /// Records the result of a run. One that failed has infinite cost.
    fn observe(&mut self, run: RunId) {
        let directory = run_directory(self.sweep, run);
        let cost = match stage(&directory, &[]) {
            Stage::Over(outcome) if outcome.is_complete() => cost_at_end(&directory, &self.search),
            _ => f64::INFINITY,
        };
        self.costs.insert(run.trial, cost);
    }
}

impl Scheduler for Tpe<'_> {
    fn left(&self, record: &SweepRecord) -> usize {
        let chosen = record.trials.len() as u64;
        let rest = if self.exhausted { 0 } else { self.search.trials.saturating_sub(chosen) };
        self.open.len() + usize::try_from(rest).unwrap_or(usize::MAX)
    }

    fn next(&mut self, record: &mut SweepRecord) -> Result<Option<Job>, WriteError> {
        if let Some(job) = self.open.pop_front() {
            return Ok(Some(job));
        }
        let Some(search) = self.search.tpe() else { return Ok(None) };
        let trial = record.trials.len() as u64 + 1;
        if trial > self.search.trials {
            return Ok(None);
        }
        let observe =
            |(&trial, &cost): (&u64, &f64)| Observation { trial, values: record.values(trial).to_vec(), cost };
        let observations: Vec<Observation> = self.costs.iter().map(observe).collect();
        let Some((values, by_results)) = tpe::propose(search, record.seed, trial, &observations, &record.trials) else {
            self.exhausted = true;
            return Ok(None);
        };
        let by = observations.iter().filter(|_| by_results).map(|observation| observation.trial).collect();
        proposals::append(self.sweep, record, values, by)?;
        Ok(Some(Job { run: RunId { trial, repeat: 1 }, until: None }))
    }

    fn put_back(&mut self, job: Job) {
        self.open.push_front(job);
    }

    fn adopt(&mut self, job: Job) {
        self.open.retain(|open| open.run != job.run);
        self.costs.remove(&job.run.trial);
    }

    fn ended(&mut self, job: Job, stopping: bool) {
        let directory = run_directory(self.sweep, job.run);
        let over = matches!(stage(&directory, &[]), Stage::Over(_));
        if (stopping || RunStatus::read(&directory) == RunStatus::Running) && !over {
            return self.open.push_back(job);
        }
        self.observe(job.run);
    }
}
