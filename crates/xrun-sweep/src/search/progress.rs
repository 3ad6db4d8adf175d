//! The progress of a run of a search and its results at the rungs, read from its directory.

use std::path::Path;

use super::asha::TrialState;
use crate::records::search::Search;
use crate::run_status::RunStatus;
use xrun_results::format::{MetricsLine, Outcome};
use xrun_results::read;

/// Stage of a run of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStage {
    /// It has not begun.
    New,
    /// It has begun and has not reached the step that it was sent to.
    Open {
        /// That step; `None` is its end.
        until: Option<u64>,
    },
    /// It waits at the rung that it was sent to.
    Waits,
    /// It finished or failed.
    Over(Outcome),
}

/// Reads the stage of a run. `rungs` are the steps at which runs of the sweep wait.
pub fn stage(run: &Path, rungs: &[u64]) -> RunStage {
    match RunStatus::read(run) {
        RunStatus::NotStarted => RunStage::New,
        RunStatus::Done(outcome) => RunStage::Over(outcome),
        RunStatus::Running => RunStage::Open { until: until(run, rungs) },
        // A run that the user stopped elsewhere continues to the next rung.
        RunStatus::Unfinished => match stopped_at(run).filter(|step| rungs.contains(step)) {
            Some(_) => RunStage::Waits,
            None => RunStage::Open { until: until(run, rungs) },
        },
    }
}

/// The step that the newest process was sent to; the first rung where it has not written that yet.
fn until(run: &Path, rungs: &[u64]) -> Option<u64> {
    match read::manifest(run) {
        Ok(manifest) => manifest.until,
        Err(_) => rungs.first().copied().filter(|_| rungs.len() > 1),
    }
}

/// The step at which a run stopped by `--until`; `None` if it did not.
pub fn stopped_at(run: &Path) -> Option<u64> {
    let summary = read::summary(run).ok().flatten().filter(|summary| summary.outcome == Outcome::Interrupted)?;
    until(run, &[]).filter(|until| summary.steps >= *until)
}

/// The last validation of a run, as a cost.
pub fn cost_at_end(run: &Path, search: &Search) -> f64 {
    let summary = read::summary(run).ok().flatten();
    let value = summary.as_ref().and_then(|summary| summary.metrics_last.get(&search.metric).copied().flatten());
    search.cost(value)
}

/// The costs of the validations after these ascending steps, up to the first one that is missing.
fn costs_at(run: &Path, search: &Search, steps: &[u64]) -> Vec<f64> {
    let mut costs = Vec::with_capacity(steps.len());
    let Ok(lines) = read::metrics(run) else { return costs };
    for line in lines.map_while(Result::ok) {
        let Some(next) = steps.get(costs.len()) else { break };
        match line {
            MetricsLine::Validation { step, metrics, .. } if step == *next => {
                costs.push(search.cost(metrics.get(&search.metric).copied().flatten()));
            }
            _ => {}
        }
    }
    costs
}

/// The state of a trial of method `asha`. `lost`: its process ended and left nothing to resume.
pub fn trial_state(run: &Path, search: &Search, lost: bool) -> TrialState {
    let rungs = search.rungs();
    let sent = |until| rungs_sent(rungs, until);
    match stage(run, rungs) {
        RunStage::New if lost => TrialState { costs: vec![f64::INFINITY], rungs_assigned: 1, is_over: true },
        RunStage::New => TrialState::default(),
        RunStage::Waits => {
            let sent = sent(until(run, rungs));
            TrialState { costs: costs_at(run, search, &rungs[..sent]), rungs_assigned: sent, is_over: false }
        }
        RunStage::Open { until } if lost => failed(run, search, sent(until)),
        RunStage::Open { until } => {
            let sent = sent(until);
            // A checkpoint may be older than the last validation: the run has not arrived.
            TrialState { costs: costs_at(run, search, &rungs[..sent - 1]), rungs_assigned: sent, is_over: false }
        }
        RunStage::Over(outcome) if outcome.is_complete() => {
            // A run that stopped early keeps its cost.
            let mut costs = costs_at(run, search, rungs);
            costs.resize(rungs.len(), cost_at_end(run, search));
            TrialState { costs, rungs_assigned: rungs.len(), is_over: true }
        }
        RunStage::Over(_) => failed(run, search, sent(until(run, rungs))),
    }
}

/// Number of rungs of a run that is to stop after this step.
pub fn rungs_sent(rungs: &[u64], until: Option<u64>) -> usize {
    let place = until.and_then(|until| rungs.iter().position(|rung| *rung >= until));
    place.map_or(rungs.len(), |place| place + 1)
}

/// The state of a trial with an active job to this step, whatever its directory says.
pub fn in_flight(run: &Path, search: &Search, until: Option<u64>) -> TrialState {
    let sent = rungs_sent(search.rungs(), until);
    let before = sent.saturating_sub(1).min(search.rungs().len());
    TrialState { costs: costs_at(run, search, &search.rungs()[..before]), rungs_assigned: sent, is_over: false }
}

/// Returns whether a run waits at this step and was validated there; false for a run that is over.
pub fn arrived(run: &Path, search: &Search, until: Option<u64>) -> bool {
    let Some(step) = until else { return false };
    let aim = rungs_sent(search.rungs(), Some(step));
    stage(run, search.rungs()) == RunStage::Waits && {
        let known = trial_state(run, search, false);
        known.rungs_assigned >= aim && known.costs.len() >= aim
    }
}

/// The state of a trial that failed before a rung: it counts as the worst there.
pub fn failed(run: &Path, search: &Search, sent: usize) -> TrialState {
    let mut costs = costs_at(run, search, &search.rungs()[..sent - 1]);
    costs.push(f64::INFINITY);
    TrialState { costs, rungs_assigned: sent, is_over: true }
}
