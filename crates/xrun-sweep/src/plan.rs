//! Checks and plans every trial of a sweep before the first one runs.

use serde_json::Value;

use super::search::rungs;
use super::trials::{trials, words};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::axes::SweptValue;
use xrun_core::experiment::read_sweep::SweepFile;
use xrun_core::experiment::sweep::SweepMethod;
use xrun_core::problem::{PROBLEMS_MAX, Problem, Problems};
use xrun_run::plan;

/// A trial that is valid.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedTrial {
    /// Its value of each swept key, in the order of [`SweepRecord::keys`](crate::records::sweep::SweepRecord).
    pub values: Vec<Value>,
    /// Optimiser steps.
    pub steps: u64,
    /// Bytes that all buffers may hold together.
    pub buffer_bytes: u64,
}

/// The plan of a sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SweepPlan {
    /// The trials; of method `tpe` those that do not depend on results.
    pub trials: Vec<PlannedTrial>,
    /// Note on a swept value that does not do what its name may suggest.
    pub warning: Option<Problem>,
    /// Steps after which runs of method `asha` stop until they are promoted; the last is the end.
    pub rungs: Vec<u64>,
}

/// Checks every trial that is known, without the data. Returns the number of trials that the sweep will have.
///
/// # Errors
/// As [`plan`].
pub fn check(sweep_file: &SweepFile) -> Result<usize, Problems> {
    let trials = trials(sweep_file)?;
    let mut problems = DistinctProblems::default();
    trials.iter().enumerate().for_each(|(at, trial)| drop(experiment(sweep_file, at, trial, &mut problems)));
    problems.distinct.into_result()?;
    // Most trials of method tpe follow from results.
    let samples = sweep_file.sweep.trials.filter(|_| sweep_file.sweep.method == SweepMethod::Tpe);
    Ok(samples.and_then(|samples| usize::try_from(samples).ok()).unwrap_or(trials.len()))
}

/// Checks and plans every trial, without a device.
///
/// # Errors
/// Every mistake, each with the first trial that has it.
pub fn plan(sweep_file: &SweepFile) -> Result<SweepPlan, Problems> {
    let mut planned = SweepPlan::default();
    let mut problems = DistinctProblems::default();
    for (at, trial) in trials(sweep_file)?.iter().enumerate() {
        let Some((experiment, name)) = experiment(sweep_file, at, trial, &mut problems) else { continue };
        let facts = match experiment.prepare(&Ledger::default()) {
            Ok((facts, _)) => facts,
            Err(error) => {
                let place = trial.last().map(|swept| swept.location.clone());
                problems.add(Problem::new("", error.to_string()).at(place), &name);
                continue;
            }
        };
        planned.warning = planned.warning.or_else(|| experiment.unset_batch_size());
        let plan = plan::resolve(experiment, facts);
        if sweep_file.sweep.method == SweepMethod::Asha {
            match rungs::rungs_of(&sweep_file.sweep, &plan, &planned.rungs) {
                Ok(rungs) => planned.rungs = rungs,
                Err(problem) => {
                    let place = sweep_file.location(problem.key.strip_prefix("sweep.").unwrap_or("method"));
                    problems.add(problem.at(place), &name);
                }
            }
        }
        let values = trial.iter().map(|swept| swept.value.clone()).collect();
        let buffer_bytes = plan.owners.iter().map(|owner| owner.bytes).sum();
        planned.trials.push(PlannedTrial { values, steps: plan.steps, buffer_bytes });
    }
    problems.distinct.into_result()?;
    Ok(planned)
}

/// The experiment of the trial at this index, and how messages call it; `None` where it has problems.
fn experiment(
    sweep_file: &SweepFile,
    at: usize,
    trial: &[SweptValue],
    problems: &mut DistinctProblems,
) -> Option<(Experiment, String)> {
    let keys = sweep_file.axes.iter().map(|axis| axis.key.as_str());
    let name = format!("trial {}: {}", at + 1, words(keys, trial.iter().map(|swept| &swept.value)));
    match sweep_file.trial(trial) {
        Ok(experiment) => Some((experiment, name)),
        Err(of_trial) => {
            of_trial.into_iter().for_each(|problem| problems.add(problem, &name));
            None
        }
    }
}

/// Problems, each reported once: the same contradiction may be in hundreds of trials.
#[derive(Default)]
struct DistinctProblems {
    seen: Vec<Problem>,
    distinct: Problems,
}

impl DistinctProblems {
    fn add(&mut self, problem: Problem, trial: &str) {
        if self.seen.contains(&problem) {
            return;
        }
        if self.seen.len() <= PROBLEMS_MAX {
            self.seen.push(problem.clone());
        }
        let message = format!("{} ({trial})", problem.message);
        self.distinct.add(Problem { message, ..problem });
    }
}
