//! Checks and plans every trial of a sweep before the first one runs.

use serde_json::Value;

use super::search::rungs;
use super::trials::{trials, words};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::axes::SweptValue;
use xrun_core::experiment::overrides::overridden_key;
use xrun_core::experiment::read_sweep::SweepFile;
use xrun_core::experiment::sweep::SweepMethod;
use xrun_core::problem::{PROBLEMS_MAX, Problem, Problems};
use xrun_core::task::TaskError;
use xrun_run::plan;
use xrun_run::plan::shorten;

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
pub struct Planned {
    /// The trials; of method `tpe` those that do not depend on results.
    pub trials: Vec<PlannedTrial>,
    /// Note on a swept value that does not do what its name may suggest.
    pub warning: Option<Problem>,
    /// Steps after which runs of method `asha` stop until they are promoted; the last is the end.
    pub rungs: Vec<u64>,
}

/// Settings that make every trial as short as `steps`, as `section.key=value`, and the number of steps of the experiment
/// itself. Swept keys stay swept.
///
/// # Errors
/// Data that cannot be used, or a number of steps that is swept itself.
pub fn shortened(sweep_file: &SweepFile, steps: u64, small: bool) -> Result<(Vec<String>, u64), Problems> {
    let data_error = |error: TaskError| {
        let mut problems = Problems::default();
        problems.add(Problem::new("", error.to_string()));
        problems
    };
    let swept = |key: &str| sweep_file.axes.iter().find(|axis| axis.key == key);
    if swept(shorten::MAX_STEPS).is_some() {
        let mut problems = Problems::default();
        let problem =
            Problem::new(shorten::MAX_STEPS, "is swept, and --steps and --smoke say how many steps there are");
        problems.add(problem.help("leave one of them out"));
        return Err(problems);
    }
    if let Some(set) = shorten::command_overrides(&sweep_file.base, steps) {
        let set = set.map_err(|problem| {
            let mut problems = Problems::default();
            problems.add(problem);
            problems
        })?;
        let whole = sweep_file.base.training.max_steps.unwrap_or(steps);
        return Ok((set, whole));
    }
    let (facts, _) = sweep_file.base.prepare(&Ledger::default()).map_err(data_error)?;
    let whole = plan::resolve(sweep_file.base.clone(), facts);
    let mut set = shorten::overrides(&whole.experiment, whole.steps, steps);
    if small {
        set.push(shorten::small_validations(&whole.experiment));
    }
    set.retain(|text| swept(overridden_key(text)).is_none());
    Ok((set, whole.steps))
}

/// Checks every trial that is known, without the data. Returns the number of trials that the sweep will have.
///
/// # Errors
/// As [`plan`].
pub fn check(sweep_file: &SweepFile) -> Result<usize, Problems> {
    let trials = trials(sweep_file)?;
    each(sweep_file, &trials, false)?;
    // Most trials of method tpe follow from results.
    let samples = sweep_file.sweep.trials.filter(|_| sweep_file.sweep.method == SweepMethod::Tpe);
    Ok(samples.and_then(|samples| usize::try_from(samples).ok()).unwrap_or(trials.len()))
}

/// Checks and plans every trial, without a device.
///
/// # Errors
/// Every mistake, each with the first trial that has it.
pub fn plan(sweep_file: &SweepFile) -> Result<Planned, Problems> {
    each(sweep_file, &trials(sweep_file)?, true)
}

fn each(sweep_file: &SweepFile, trials: &[Vec<SweptValue>], data: bool) -> Result<Planned, Problems> {
    let mut planned = Planned { trials: Vec::with_capacity(trials.len()), warning: None, rungs: Vec::new() };
    let mut wrong = Wrong::default();
    for (at, trial) in trials.iter().enumerate() {
        let values: Vec<Value> = trial.iter().map(|swept| swept.value.clone()).collect();
        let name =
            format!("trial {}: {}", at + 1, words(sweep_file.axes.iter().map(|axis| axis.key.as_str()), values.iter()));
        let experiment = match sweep_file.trial(trial) {
            Ok(experiment) => experiment,
            Err(problems) => {
                problems.into_iter().for_each(|problem| wrong.add(problem, &name));
                continue;
            }
        };
        if !data {
            continue;
        }
        match experiment.prepare(&Ledger::default()) {
            Ok((facts, _)) => {
                planned.warning = planned.warning.or_else(|| experiment.unset_batch_size());
                let plan = plan::resolve(experiment, facts);
                if sweep_file.sweep.method == SweepMethod::Asha {
                    match rungs::rungs_of(&sweep_file.sweep, &plan, &planned.rungs) {
                        Ok(rungs) => planned.rungs = rungs,
                        Err(problem) => {
                            let place = sweep_file.location(problem.key.strip_prefix("sweep.").unwrap_or("method"));
                            wrong.add(problem.at(place), &name);
                        }
                    }
                }
                let buffer_bytes = plan.owners.iter().map(|owner| owner.bytes).sum();
                planned.trials.push(PlannedTrial { values, steps: plan.steps, buffer_bytes });
            }
            Err(error) => {
                let place = trial.last().map(|swept| swept.location.clone());
                wrong.add(Problem::new("", error.to_string()).at(place), &name);
            }
        }
    }
    wrong.shown.into_result()?;
    Ok(planned)
}

/// Mistakes, each reported once: the same contradiction may be in hundreds of trials.
#[derive(Default)]
struct Wrong {
    seen: Vec<Problem>,
    shown: Problems,
}

impl Wrong {
    fn add(&mut self, problem: Problem, trial: &str) {
        if self.seen.contains(&problem) {
            return;
        }
        if self.seen.len() <= PROBLEMS_MAX {
            self.seen.push(problem.clone());
        }
        let message = format!("{} ({trial})", problem.message);
        self.shown.add(Problem { message, ..problem });
    }
}
