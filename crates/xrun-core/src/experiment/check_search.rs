//! Can a sweep of mode `asha` or `tpe` search? It needs a metric and a number of points, and one run of each.

use super::Experiment;
use super::sweep::{Mode, Sweep};
use crate::problem::{Problem, Problems, nearest};
use crate::task::metric::Better;

/// More points than this are not chosen one by one: each is chosen by all before it.
const TPE_POINTS_MAX: u64 = 1000;

/// Adds what is wrong with the section as a search, and keys of a mode that is not chosen.
pub fn check(experiment: &Experiment, problems: &mut Problems) {
    let Some(sweep) = &experiment.sweep else { return };
    of_other_modes(sweep, problems);
    if !sweep.mode.is_search() {
        return;
    }
    let mode = sweep.mode.word();
    match &sweep.metric {
        None => {
            let problem = Problem::new("sweep.metric", format!("mode {mode} needs the metric that is made better"));
            problems.add(problem.help(known_words(experiment)).related("sweep.mode"));
        }
        Some(name) => metric(experiment, name, problems),
    }
    if sweep.repeats > 1 {
        let problem = Problem::new("sweep.repeats", format!("mode {mode} runs each point once"));
        problems.add(problem.help("take it out; repeat the best point afterwards").related("sweep.mode"));
    }
    let validation = &experiment.validation;
    if validation.every_steps == 0 && validation.every_epochs == 0 && experiment.command().is_none() {
        let problem = Problem::new("sweep.metric", "nothing is validated, so no point is better than another");
        problems.add(problem.help("write `every_epochs = 1` in `[validation]`").related("validation.every_epochs"));
    }
    match sweep.mode {
        Mode::Asha if experiment.command().is_some() => {
            let message =
                "mode asha stops runs at a step and continues them, and a command cannot be stopped exactly there";
            problems.add(Problem::new("sweep.mode", message).help("write mode = \"tpe\"").related("pipeline"));
        }
        Mode::Asha if sweep.asha.min_steps.is_none() => {
            let problem = Problem::new("sweep.asha.min_steps", "mode asha needs the step of its first rung");
            let help = "write `min_steps = 100` in `[sweep.asha]`, or what is enough to tell good points from bad ones";
            problems.add(problem.help(help).related("sweep.mode"));
        }
        Mode::Tpe if sweep.samples.is_some_and(|samples| samples > TPE_POINTS_MAX) => {
            let message = format!("mode tpe chooses at most {TPE_POINTS_MAX} points, each by all before it");
            problems.add(Problem::new("sweep.samples", message).help("write fewer").related("sweep.mode"));
        }
        _ => {}
    }
}

/// What would have no effect.
fn of_other_modes(sweep: &Sweep, problems: &mut Problems) {
    let mode = sweep.mode.word();
    let set = [
        ("sweep.asha", !sweep.asha.is_default() && sweep.mode != Mode::Asha, "asha"),
        ("sweep.tpe", !sweep.tpe.is_default() && sweep.mode != Mode::Tpe, "tpe"),
        ("sweep.metric", sweep.metric.is_some() && !sweep.mode.is_search(), "asha\" or \"tpe"),
        ("sweep.better", sweep.better.is_some() && !sweep.mode.is_search(), "asha\" or \"tpe"),
    ];
    for (key, _, of) in set.into_iter().filter(|(_, wrong, _)| *wrong) {
        let problem = Problem::new(key, format!("has no effect in mode {mode}"));
        problems.add(problem.help(format!("take it out, or write mode = \"{of}\"")));
    }
}

/// The validation metrics that training moves, and which way each is better.
fn known(experiment: &Experiment) -> Vec<(&str, Better)> {
    let declared = experiment.command().into_iter().flat_map(|command| &command.metrics);
    let declared = declared.map(|(name, better)| (name.as_str(), *better));
    let own = experiment.pipeline.kind().metrics().iter();
    own.filter_map(|metric| Some((metric.name, metric.better?))).chain(declared).collect()
}

fn known_words(experiment: &Experiment) -> String {
    match known(experiment).first() {
        Some((name, _)) => format!("for example `metric = \"{name}\"`"),
        None => "this pipeline reports none; name those of a command in its `metrics`".into(),
    }
}

fn metric(experiment: &Experiment, name: &str, problems: &mut Problems) {
    let known = known(experiment);
    if known.iter().any(|(known, _)| *known == name) {
        return;
    }
    let message = format!("`{}` has no validation metric of this name that can get better", experiment.pipeline.name());
    let names = || known.iter().map(|(name, _)| *name);
    let help = match (nearest(name, names()), known.is_empty()) {
        (Some(near), _) => format!("did you mean \"{near}\"?"),
        (None, false) => format!("its metrics are {}", names().collect::<Vec<_>>().join(", ")),
        (None, true) => known_words(experiment),
    };
    problems.add(Problem::new("sweep.metric", message).help(help));
}

/// Which values of a search's metric are better; `None` of a metric that there is not.
pub fn better(experiment: &Experiment, sweep: &Sweep) -> Option<Better> {
    let name = sweep.metric.as_deref()?;
    if let Some(better) = sweep.better {
        return Some(better);
    }
    // Whoever says for early stopping which way is better says it for the search, too.
    let stopping = &experiment.training.early_stopping;
    let said = stopping.mode.filter(|_| stopping.metric.as_deref() == Some(name));
    said.or_else(|| known(experiment).into_iter().find(|(known, _)| *known == name).map(|(_, better)| better))
}
