//! Which keys, each allowed by itself, contradict each other?
//!
//! What a kind asks for stands in the kind's own folder; here is what all experiments share.

use super::launcher::Launcher;
use super::pipeline::Model;
use super::read::INITIAL_WEIGHTS;
use super::{Experiment, check_search};
use crate::dataset::Dataset;
use crate::problem::{Problem, Problems, nearest};
use crate::settings::sections::{CleanupAction, Optimizer, PART_SIZE};
use crate::units::Bytes;

/// Less than this, the process holds before its first step.
const HOST_MEMORY_MIN: Bytes = Bytes::mebibytes(16);

/// Adds what is wrong with the experiment as a whole. Places are filled in by the caller, from the keys.
pub fn check(experiment: &Experiment, problems: &mut Problems) {
    name(experiment, problems);
    limits(experiment, problems);
    training(experiment, problems);
    initial_weights(experiment, problems);
    checkpoint(experiment, problems);
    early_stopping(experiment, problems);
    launcher(experiment, problems);
    check_search::check(experiment, problems);
    if let Some(dataset) = &experiment.dataset {
        dataset.check(problems);
    }
    needs(experiment, problems);
    leaks(experiment, problems);
    gradients(experiment, problems);
    batch_size(experiment, problems);
    limits_of_kinds(experiment, problems);
    experiment.pipeline.kind().check(experiment.pipeline.any(), experiment, problems);
    if let Some(model) = &experiment.model {
        model.check(problems);
    }
}

/// The pipeline has the model and the data that it can work with.
fn needs(experiment: &Experiment, problems: &mut Problems) {
    let kind = experiment.pipeline.kind();
    let (samples, dataset) = (kind.samples(), experiment.dataset.as_ref());
    need(experiment, "model", experiment.model.as_ref().map(Model::name), kind.models(), None, problems);
    let other = match (samples, dataset.map(Dataset::samples)) {
        (Some(asked), Some(found)) if asked != found => Some((found.name(), asked.name())),
        _ => None,
    };
    let known = samples.map_or_else(Vec::new, Dataset::names_of);
    need(experiment, "dataset", dataset.map(Dataset::name), &known, other, problems);
}

/// The table `found` is one of `known`. `other` is what samples it has, and what the pipeline takes.
fn need(
    experiment: &Experiment,
    section: &str,
    found: Option<&str>,
    known: &[&str],
    other: Option<(&str, &str)>,
    problems: &mut Problems,
) {
    let name = experiment.pipeline.name();
    // The one whose name is nearest comes first.
    let meant = found.and_then(|found| nearest(found, known.iter().copied()));
    let names = meant.into_iter().chain(known.iter().copied().filter(|kind| Some(*kind) != meant));
    let tables: Vec<String> = names.map(|kind| format!("[{section}.{kind}]")).collect();
    let tables = tables.join(" or ");
    match (found, other) {
        (None, _) if !known.is_empty() => {
            let problem = Problem::new(section, format!("`{name}` needs a {section}, and there is none"));
            problems.add(problem.help(format!("add {tables}")).related("pipeline"));
        }
        (Some(found), _) if known.is_empty() => {
            let problem = Problem::new(format!("{section}.{found}"), format!("`{name}` uses no {section}"));
            problems.add(problem.help("take the table out").related("pipeline"));
        }
        (Some(found), Some((has, takes))) => {
            let message = format!("it has {has}, and `{name}` takes {takes}");
            let problem = Problem::new(format!("{section}.{found}"), message);
            problems.add(problem.help(format!("write {tables}")).related("pipeline"));
        }
        (Some(found), None) if !known.contains(&found) => {
            let problem = Problem::new(format!("{section}.{found}"), format!("`{name}` cannot use this {section}"));
            problems.add(problem.help(format!("write {tables}")).related("pipeline"));
        }
        _ => {}
    }
}

/// Weights to start from are there, and there is a model of xrun's that takes them.
fn initial_weights(experiment: &Experiment, problems: &mut Problems) {
    let Some(path) = &experiment.training.initial_weights else { return };
    if experiment.command().is_some() {
        let name = experiment.pipeline.name();
        let problem = Problem::new(INITIAL_WEIGHTS, format!("the model of `{name}` is its command's own"));
        problems.add(problem.help("take it out, and name the weights among the command's words").related("pipeline"));
    } else if let Err(error) = std::fs::metadata(path) {
        let found = match error.kind() {
            std::io::ErrorKind::NotFound => format!("{path} is not there"),
            _ => format!("{path} cannot be read: {error}"),
        };
        let help = "name the folder of a run or of a checkpoint, or a file of weights; a relative path is meant from the \
                    folder of the file that names it";
        problems.add(Problem::new(INITIAL_WEIGHTS, found).help(help).of_disk());
    }
}

/// The pipeline takes its batches as large as the file says.
fn batch_size(experiment: &Experiment, problems: &mut Problems) {
    if experiment.training.batch_size.is_some() && experiment.pipeline.kind().batch_size().is_none() {
        let name = experiment.pipeline.name();
        let problem = Problem::new("training.batch_size", format!("keys of `{name}` say what a batch is"));
        let help = "take it out; `limits.batch_size` says how much of a batch is on the device at once";
        problems.add(problem.help(help).related("pipeline"));
    }
}

/// A limit bounds a buffer that there is.
fn limits_of_kinds(experiment: &Experiment, problems: &mut Problems) {
    let of_data = experiment.dataset.as_ref().map_or(&[][..], Dataset::limits);
    let of_pipeline = experiment.pipeline.kind().limits();
    for limit in experiment.limits.of_kinds().filter(|limit| !of_data.contains(limit) && !of_pipeline.contains(limit)) {
        let name = experiment.pipeline.name();
        let message = match limit {
            PART_SIZE => format!("`{name}` computes no parts of a batch side by side: it would bound nothing"),
            _ => format!("`{name}` has no such buffer: it would bound nothing"),
        };
        let problem = Problem::new(format!("limits.{limit}"), message);
        problems.add(problem.help("take it out").related("pipeline"));
    }
}

/// A cleanup gives back what is held.
fn gradients(experiment: &Experiment, problems: &mut Problems) {
    if experiment.cleanup.actions.contains(&CleanupAction::Gradients) && !experiment.pipeline.kind().holds_gradients() {
        let name = experiment.pipeline.name();
        let message = format!("`{name}` holds no gradients between steps: \"gradients\" would give nothing back");
        problems.add(Problem::new("cleanup.actions", message).help("take it out of the list").related("pipeline"));
    }
}

/// The pipeline has the leaks that are switched on.
fn leaks(experiment: &Experiment, problems: &mut Problems) {
    let known: Vec<&str> = experiment.pipeline.kind().leaks().iter().map(|leak| leak.key).collect();
    for key in experiment.leaks.keys().filter(|key| !known.contains(key)) {
        let name = experiment.pipeline.name();
        let problem = Problem::new(format!("leaks.{key}"), format!("`{name}` has no such leak")).related("pipeline");
        problems.add(match known.as_slice() {
            [] => problem.help("it has none: take the key out"),
            known => problem.help(format!("it has {}", known.join(", "))),
        });
    }
}

fn limits(experiment: &Experiment, problems: &mut Problems) {
    let limits = &experiment.limits;
    if limits.prefetch < limits.workers {
        let message = format!(
            "{} batches ahead cannot keep {} workers busy: each works on a batch of its own",
            limits.prefetch, limits.workers
        );
        let help = format!("write `prefetch = {}` or more, or fewer workers", limits.workers);
        problems.add(Problem::new("limits.prefetch", message).help(help).related("limits.workers"));
    }
    if let Some(host) = limits.host_memory.filter(|host| *host < HOST_MEMORY_MIN) {
        let message = format!("a process does not start in {host}");
        problems.add(Problem::new("limits.host_memory", message).help("for example `host_memory = \"8 GiB\"`"));
    }
    if limits.device_memory == Some(Bytes(0)) {
        let problem = Problem::new("limits.device_memory", "nothing fits on the device in 0 bytes");
        problems.add(problem.help("for example `device_memory = \"16 GiB\"`, or leave the key out"));
    }
    let cleanup = &experiment.cleanup;
    let mut actions = cleanup.actions.clone();
    actions.sort_by_key(|action| *action as u8);
    actions.dedup();
    if actions.len() < cleanup.actions.len() {
        let problem = Problem::new("cleanup.actions", "the same action is written twice");
        problems.add(problem.help("keep one of them"));
    }
    if cleanup.actions.is_empty() && cleanup.every_steps > 0 {
        let message = format!("no actions: a cleanup every {} steps would do nothing", cleanup.every_steps);
        let help = "write `every_steps = 0` for no cleanup, or name actions";
        problems.add(Problem::new("cleanup.actions", message).help(help).related("cleanup.every_steps"));
    }
}

fn training(experiment: &Experiment, problems: &mut Problems) {
    let training = &experiment.training;
    let warmup = training.schedule.warmup_steps();
    if let Some(max_steps) = training.max_steps.filter(|max_steps| warmup >= *max_steps) {
        let message = format!("a warm-up of {warmup} steps does not end before the last step");
        let key = format!("training.schedule.{}.warmup_steps", training.schedule.kind());
        let problem = Problem::new(key, message);
        problems.add(problem.help(format!("write less than {max_steps}")).related("training.max_steps"));
    }
    if let Optimizer::Sgd(sgd) = &experiment.optimizer
        && sgd.nesterov
        && sgd.momentum == 0.0
    {
        let problem =
            Problem::new("optimizer.sgd.nesterov", "Nesterov's step looks ahead along a momentum, which is 0");
        problems.add(problem.help("write `momentum = 0.9`, or `nesterov = false`").related("optimizer.sgd.momentum"));
    }
}

/// The link to the newest run stands beside the experiments' folders.
fn name(experiment: &Experiment, problems: &mut Problems) {
    if experiment.experiment.name == crate::files::layout::LATEST {
        let problem = Problem::new("experiment.name", "`latest` is the name of the link to the newest run");
        problems.add(problem.help("choose another name"));
    }
}

fn launcher(experiment: &Experiment, problems: &mut Problems) {
    let Some(Launcher::Slurm(slurm)) = &experiment.launcher else { return };
    if let Some(time) = slurm.time.filter(|time| *time <= slurm.grace) {
        let message = format!("a run of {time} would be told to stop {} before its end, at its start", slurm.grace);
        let problem = Problem::new("launcher.slurm.time", message);
        problems.add(problem.help("give it more time, or write a shorter `grace`").related("launcher.slurm.grace"));
    }
    if slurm.memory == Some(Bytes(0)) {
        let problem = Problem::new("launcher.slurm.memory", "Slurm takes 0 for all memory of a node");
        problems.add(problem.help("for example `memory = \"8 GiB\"`, or leave the key out"));
    }
}

fn checkpoint(experiment: &Experiment, problems: &mut Problems) {
    if let Some(best) = &experiment.checkpoint.best {
        metric(experiment, "checkpoint.best", best, problems);
    }
}

fn early_stopping(experiment: &Experiment, problems: &mut Problems) {
    const PATIENCE: &str = "training.early_stopping.patience";
    const METRIC: &str = "training.early_stopping.metric";
    let settings = &experiment.training.early_stopping;
    if settings.patience.is_none() {
        if !settings.is_default() {
            let problem =
                Problem::new(PATIENCE, "without a patience the run never stops early, and the rest says nothing");
            problems.add(
                problem.help("for example `patience = 5`, or take the table out").related("training.early_stopping"),
            );
        }
        return;
    }
    if experiment.validation.every_steps == 0 && experiment.validation.every_epochs == 0 {
        let problem = Problem::new(PATIENCE, "nothing is validated, so no validation can be better");
        let help = "write `every_epochs = 1` in `[validation]`";
        problems.add(problem.help(help).related("validation.every_epochs"));
    }
    if let Some(name) = &settings.metric {
        metric(experiment, METRIC, name, problems);
    } else if settings.mode.is_some() {
        let problem = Problem::new("training.early_stopping.mode", "which metric it speaks of is not said");
        problems
            .add(problem.help("name it, `metric = \"…\"`, or take `mode` out: each metric says which way is better"));
    }
    if let (Some(one), Some(other)) = (&settings.metric, &experiment.checkpoint.best)
        && one != other
    {
        let problem =
            Problem::new(METRIC, format!("a checkpoint is best by `{other}`, and cannot be best by `{one}` too"));
        problems.add(problem.help("name the same metric, or take `checkpoint.best` out").related("checkpoint.best"));
    }
}

/// The pipeline has a validation metric of this name, and training moves it.
fn metric(experiment: &Experiment, key: &str, best: &str, problems: &mut Problems) {
    let all = experiment.pipeline.kind().metrics();
    let metrics: Vec<&str> = all.iter().filter(|metric| metric.better.is_some()).map(|metric| metric.name).collect();
    if !metrics.contains(&best) {
        let name = experiment.pipeline.name();
        let message = match all.iter().any(|metric| metric.name == best) {
            true => "training does not move this metric, so no checkpoint is best by it".to_owned(),
            false => format!("`{name}` has no validation metric of this name"),
        };
        let problem = Problem::new(key, message);
        problems.add(problem.help(match nearest(best, metrics.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("its metrics are {}", metrics.join(", ")),
        }));
    }
}
