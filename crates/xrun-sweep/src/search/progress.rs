//! How far did a run of a search come, and what did it measure there? Read from its folder.

use std::path::Path;

use super::asha::TrialState;
use crate::records::search::Search;
use crate::run_status::RunStatus;
use xrun_results::format::{MetricsLine, Outcome};
use xrun_results::read;

/// How far a run of a search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    New,
    /// It was begun and has not come to where it was sent; the step is that, or `None` of the end.
    Open {
        until: Option<u64>,
    },
    /// It stopped where it was told to.
    Waits,
    Over(Outcome),
}

/// Looks at a run's folder. `rungs` are the steps at which runs of the sweep wait.
pub fn stage(run: &Path, rungs: &[u64]) -> Stage {
    match RunStatus::read(run) {
        RunStatus::Missing => Stage::New,
        RunStatus::Done(outcome) => Stage::Over(outcome),
        RunStatus::Running => Stage::Open { until: until(run, rungs) },
        // One that somebody stopped elsewhere goes on to the rung after that.
        RunStatus::Unfinished => match stopped_at(run).filter(|step| rungs.contains(step)) {
            Some(_) => Stage::Waits,
            None => Stage::Open { until: until(run, rungs) },
        },
    }
}

/// The step that the newest process was sent to; of one that has not written it yet the first rung, where all begin.
fn until(run: &Path, rungs: &[u64]) -> Option<u64> {
    match read::manifest(run) {
        Ok(manifest) => manifest.until,
        Err(_) => rungs.first().copied().filter(|_| rungs.len() > 1),
    }
}

/// The step at which a run stopped because it was told to (`--until`), if that is where it stands.
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

/// The costs of the validations after these steps, which ascend: as many as there are, one after another.
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

/// What halving has to know of a run. `lost` says that its process ended and left nothing to go on with.
pub fn trial_state(run: &Path, search: &Search, lost: bool) -> TrialState {
    let rungs = search.rungs();
    let sent = |until| rungs_sent(rungs, until);
    match stage(run, rungs) {
        Stage::New if lost => TrialState { costs: vec![f64::INFINITY], sent: 1, over: true },
        Stage::New => TrialState::default(),
        Stage::Waits => {
            let sent = sent(until(run, rungs));
            TrialState { costs: costs_at(run, search, &rungs[..sent]), sent, over: false }
        }
        Stage::Open { until } if lost => failed(run, search, sent(until)),
        Stage::Open { until } => {
            let sent = sent(until);
            // Where it was sent to, it has not come yet: a checkpoint may be older than its last validation.
            TrialState { costs: costs_at(run, search, &rungs[..sent - 1]), sent, over: false }
        }
        Stage::Over(outcome) if outcome.is_done() => {
            // One that stopped early stays as good as it was.
            let mut costs = costs_at(run, search, rungs);
            costs.resize(rungs.len(), cost_at_end(run, search));
            TrialState { costs, sent: rungs.len(), over: true }
        }
        Stage::Over(_) => failed(run, search, sent(until(run, rungs))),
    }
}

/// To how many rungs a run was sent that was to stop after this step.
pub fn rungs_sent(rungs: &[u64], until: Option<u64>) -> usize {
    let place = until.and_then(|until| rungs.iter().position(|rung| *rung >= until));
    place.map_or(rungs.len(), |place| place + 1)
}

/// A run that was sent to this step and has not come there, whatever its folder says.
pub fn in_flight(run: &Path, search: &Search, until: Option<u64>) -> TrialState {
    let sent = rungs_sent(search.rungs(), until);
    let before = sent.saturating_sub(1).min(search.rungs().len());
    TrialState { costs: costs_at(run, search, &search.rungs()[..before]), sent, over: false }
}

/// Whether a run stands where it was sent to, and was validated there. One that is over has not stopped anywhere.
pub fn arrived(run: &Path, search: &Search, until: Option<u64>) -> bool {
    let Some(step) = until else { return false };
    let aim = rungs_sent(search.rungs(), Some(step));
    stage(run, search.rungs()) == Stage::Waits && {
        let known = trial_state(run, search, false);
        known.sent >= aim && known.costs.len() >= aim
    }
}

/// Of what failed on its way to a rung: it came there, as the worst.
pub fn failed(run: &Path, search: &Search, sent: usize) -> TrialState {
    let mut costs = costs_at(run, search, &search.rungs()[..sent - 1]);
    costs.push(f64::INFINITY);
    TrialState { costs, sent, over: true }
}
