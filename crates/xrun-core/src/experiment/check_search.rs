//! Checks of `[sweep]` for the search methods `asha` and `tpe`.

use super::Experiment;
use super::check::metric;
use super::sweep::{Sweep, SweepMethod};
use crate::problem::{Problem, Problems};
use crate::settings::is_default;
use crate::task::metric::Direction;

/// Maximum number of trials of method `tpe`; the cost of a proposal grows with the number of earlier trials.
const TPE_TRIALS_MAX: u64 = 1000;

/// Adds problems of a search, and keys of methods that are not selected.
pub fn check(experiment: &Experiment, problems: &mut Problems) {
    let Some(sweep) = &experiment.sweep else { return };
    keys_of_other_modes(sweep, problems);
    if !sweep.method.is_search() {
        return;
    }
    let method = sweep.method.as_str();
    match &sweep.metric {
        None => {
            let problem = Problem::new("sweep.metric", format!("method {method} needs a metric to optimise"));
            problems.add(problem.help(suggestion(experiment)).related("sweep.method"));
        }
        Some(name) => metric(experiment, "sweep.metric", name, problems),
    }
    if sweep.repeats > 1 {
        let problem = Problem::new("sweep.repeats", format!("method {method} runs each trial once"));
        problems.add(problem.help("remove it, and repeat the best trial afterwards").related("sweep.method"));
    }
    let validation = &experiment.validation;
    if validation.every_steps == 0 && validation.every_epochs == 0 && experiment.command().is_none() {
        let problem = Problem::new("sweep.metric", "the search needs validations, and there are none");
        problems.add(problem.help("write `every_epochs = 1` in `[validation]`").related("validation.every_epochs"));
    }
    match sweep.method {
        SweepMethod::Asha if experiment.command().is_some() => {
            let message = "method asha pauses runs at exact steps, which is not possible for a command";
            problems.add(Problem::new("sweep.method", message).help("write method = \"tpe\"").related("pipeline"));
        }
        SweepMethod::Asha if sweep.asha.min_steps.is_none() => {
            let problem = Problem::new("sweep.asha.min_steps", "method asha needs the step of its first rung");
            let help =
                "for example `min_steps = 100` in `[sweep.asha]`: enough steps to tell good trials from bad ones";
            problems.add(problem.help(help).related("sweep.method"));
        }
        SweepMethod::Tpe if sweep.trials.is_some_and(|samples| samples > TPE_TRIALS_MAX) => {
            let message = format!(
                "expected at most {TPE_TRIALS_MAX} trials with method tpe, found {}",
                sweep.trials.unwrap_or(0)
            );
            problems.add(Problem::new("sweep.trials", message).related("sweep.method"));
        }
        _ => {}
    }
}

/// Adds keys without an effect with the method.
fn keys_of_other_modes(sweep: &Sweep, problems: &mut Problems) {
    let method = sweep.method.as_str();
    let set = [
        ("sweep.asha", !is_default(&sweep.asha) && sweep.method != SweepMethod::Asha, "asha"),
        ("sweep.tpe", !is_default(&sweep.tpe) && sweep.method != SweepMethod::Tpe, "tpe"),
        ("sweep.metric", sweep.metric.is_some() && !sweep.method.is_search(), "asha\" or \"tpe"),
        ("sweep.direction", sweep.direction.is_some() && !sweep.method.is_search(), "asha\" or \"tpe"),
    ];
    for (key, _, methods) in set.into_iter().filter(|(_, wrong, _)| *wrong) {
        let problem = Problem::new(key, format!("has no effect with method {method}"));
        problems.add(problem.help(format!("remove it, or write method = \"{methods}\"")));
    }
}

/// Validation metrics that can be optimised, with their better direction.
pub(super) fn known(experiment: &Experiment) -> Vec<(&str, Direction)> {
    let declared = experiment.command().into_iter().flat_map(|command| &command.metrics);
    let declared = declared.map(|(name, direction)| (name.as_str(), *direction));
    let own = experiment.pipeline.facts().metrics.iter();
    own.filter_map(|metric| Some((metric.name, metric.direction?))).chain(declared).collect()
}

pub(super) fn suggestion(experiment: &Experiment) -> String {
    match known(experiment).first() {
        Some((name, _)) => format!("for example `metric = \"{name}\"`"),
        None => "this pipeline declares none; declare those of a command in its `metrics`".into(),
    }
}

/// Better direction of a search's metric; `None` for an unknown metric.
pub fn direction(experiment: &Experiment, sweep: &Sweep) -> Option<Direction> {
    let name = sweep.metric.as_deref()?;
    if let Some(direction) = sweep.direction {
        return Some(direction);
    }
    // The direction set for early stopping holds for the search, too.
    let stopping = &experiment.training.early_stopping;
    let mode = stopping.mode.filter(|_| stopping.metric.as_deref() == Some(name));
    mode.or_else(|| known(experiment).into_iter().find(|(known, _)| *known == name).map(|(_, direction)| direction))
}
