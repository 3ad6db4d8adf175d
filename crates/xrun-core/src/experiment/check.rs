//! Checks of an experiment across keys: contradictions and missing sections.
//!
//! These checks apply to all experiments; those of a pipeline, model or data set are in its own module.

use super::launcher::LauncherSettings;
use super::pipeline::Model;
use super::{Experiment, INITIAL_WEIGHTS, check_search};
use crate::dataset::Dataset;
use crate::files::layout::{LATEST, REFERENCE};
use crate::problem::{Problem, Problems, nearest};
use crate::settings::backbone::{Backbone, BackboneUse};
use crate::settings::is_default;
use crate::settings::rung::Rung;
use crate::settings::sections::{Limits, MICRO_BATCH_SIZE, Optimizer};
use crate::units::{Bytes, pluralize};

/// Smallest host memory limit; the process needs more before its first step.
const HOST_MEMORY_MIN: Bytes = Bytes::mebibytes(16);

/// Adds the problems of the experiment as a whole. The caller fills in locations from the keys.
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
    model_and_dataset(experiment, problems);
    leaks(experiment, problems);
    batch_size(experiment, problems);
    limits_of_kinds(experiment, problems);
    on_pressure(experiment, problems);
    experiment.pipeline.check(experiment, problems);
    if let Some(model) = &experiment.model {
        model.check(problems);
    }
}

/// Checks that model and data set are those that the pipeline supports.
fn model_and_dataset(experiment: &Experiment, problems: &mut Problems) {
    let (facts, dataset) = (experiment.pipeline.facts(), experiment.dataset.as_ref());
    section(experiment, "model", experiment.model.as_ref().map(Model::name), facts.models, None, problems);
    let mismatch = match (facts.sample_type, dataset.map(|dataset| dataset.facts().sample_type)) {
        (Some(expected), Some(found)) if expected != found => Some((found.name, expected.name)),
        _ => None,
    };
    let known = facts.sample_type.map_or_else(Vec::new, Dataset::names_of);
    backbone(experiment, problems);
    section(experiment, "dataset", dataset.map(Dataset::name), &known, mismatch, problems);
}

/// Checks that there is a backbone if the model needs one, and none otherwise.
fn backbone(experiment: &Experiment, problems: &mut Problems) {
    let used = experiment.model.as_ref().map_or(BackboneUse::None, |model| *model.facts());
    let name = experiment.model.as_ref().map_or(experiment.pipeline.name(), |model| model.name());
    match (&experiment.backbone, used) {
        (None, BackboneUse::Required) => {
            let tables: Vec<String> = Backbone::KINDS.iter().map(|kind| format!("[backbone.{kind}]")).collect();
            let problem = Problem::new("backbone", format!("`{name}` needs a backbone"));
            problems.add(problem.help(format!("add {}", tables.join(" or "))).related("model"));
        }
        (Some(backbone), BackboneUse::None) => {
            let problem = Problem::new(format!("backbone.{}", backbone.kind()), format!("`{name}` uses no backbone"));
            let takers = experiment
                .pipeline
                .facts()
                .models
                .iter()
                .filter(|model| Model::find(model).is_some_and(|model| model.facts != BackboneUse::None));
            let takers: Vec<String> = takers.map(|model| format!("[model.{model}]")).collect();
            let help = match takers.is_empty() {
                true => "remove the table".to_owned(),
                false => format!("remove the table, or write {}", takers.join(" or ")),
            };
            problems.add(problem.help(help).related("model"));
        }
        _ => {}
    }
}

/// Checks that the kind `found` of a section is one of `known`. `mismatch` names its type of sample and the expected one.
fn section(
    experiment: &Experiment,
    section: &str,
    found: Option<&str>,
    known: &[&str],
    mismatch: Option<(&str, &str)>,
    problems: &mut Problems,
) {
    let name = experiment.pipeline.name();
    // The most similar name first.
    let similar = found.and_then(|found| nearest(found, known.iter().copied()));
    let names = similar.into_iter().chain(known.iter().copied().filter(|kind| Some(*kind) != similar));
    let tables: Vec<String> = names.map(|kind| format!("[{section}.{kind}]")).collect();
    let tables = tables.join(" or ");
    match (found, mismatch) {
        (None, _) if !known.is_empty() => {
            let problem = Problem::new(section, format!("`{name}` needs a {section}"));
            problems.add(problem.help(format!("add {tables}")).related("pipeline"));
        }
        (Some(found), _) if known.is_empty() => {
            let problem = Problem::new(format!("{section}.{found}"), format!("`{name}` uses no {section}"));
            problems.add(problem.help("remove the table").related("pipeline"));
        }
        (Some(found), Some((has, takes))) => {
            let message = format!("has {has}, but `{name}` takes {takes}");
            let problem = Problem::new(format!("{section}.{found}"), message);
            problems.add(problem.help(format!("write {tables}")).related("pipeline"));
        }
        (Some(found), None) if !known.contains(&found) => {
            let problem =
                Problem::new(format!("{section}.{found}"), format!("`{name}` does not support this {section}"));
            problems.add(problem.help(format!("write {tables}")).related("pipeline"));
        }
        _ => {}
    }
}

/// Checks that the file of initial weights exists and that the pipeline has a model to load them into.
fn initial_weights(experiment: &Experiment, problems: &mut Problems) {
    let Some(path) = &experiment.training.initial_weights else { return };
    if experiment.command().is_some() {
        let name = experiment.pipeline.name();
        let problem = Problem::new(INITIAL_WEIGHTS, format!("`{name}` has no model to load weights into"));
        problems.add(problem.help("remove it, and pass the weights as an argument of the command").related("pipeline"));
    } else if let Err(error) = std::fs::metadata(path) {
        let found = match error.kind() {
            std::io::ErrorKind::NotFound => format!("{path} does not exist"),
            _ => format!("{path} cannot be read: {error}"),
        };
        let help = "name a run, a checkpoint directory or a file of weights; relative paths start at the directory of this \
                    TOML file";
        problems.add(Problem::new(INITIAL_WEIGHTS, found).help(help).as_disk_problem());
    }
}

/// Checks that the pipeline uses `training.batch_size`.
fn batch_size(experiment: &Experiment, problems: &mut Problems) {
    if experiment.training.batch_size.is_some() && experiment.pipeline.facts().batch_size.is_none() {
        let name = experiment.pipeline.name();
        let problem =
            Problem::new("training.batch_size", format!("has no effect: keys of `{name}` set the batch size"));
        let help = "remove it; `limits.batch_size` bounds the items on the device at once";
        problems.add(problem.help(help).related("pipeline"));
    }
}

impl Experiment {
    /// Note that `limits.batch_size` was changed and does not change the size of the batches, which may be meant.
    pub fn unset_batch_size(&self) -> Option<Problem> {
        let size = self.training.batch_size.or(self.pipeline.facts().batch_size)?;
        // A command makes of the limit what it likes.
        let changed = self.limits.batch_size != Limits::default().batch_size && self.command().is_none();
        let has_no_effect = self.limits.batch_size > size;
        let may_be_meant = self.training.batch_size.is_none() || has_no_effect;
        let effect = if has_no_effect { "has no effect" } else { "splits batches on the device" };
        let message = format!("{effect}; training.batch_size is still {size}");
        let help = match self.training.batch_size {
            Some(_) => "for other batches, change `training.batch_size`".to_owned(),
            None => format!("for other batches, set `training.batch_size`; `training.batch_size = {size}` keeps them"),
        };
        (changed && may_be_meant).then(|| Problem::new("limits.batch_size", message).help(help))
    }
}

/// Checks that optional limits apply to the pipeline or the data set.
fn limits_of_kinds(experiment: &Experiment, problems: &mut Problems) {
    let of_dataset = experiment.dataset.as_ref().map_or(&[][..], |dataset| dataset.facts().limit_keys);
    let of_pipeline = experiment.pipeline.facts().limit_keys;
    for limit in
        experiment.limits.of_kinds().filter(|limit| !of_dataset.contains(limit) && !of_pipeline.contains(limit))
    {
        let name = experiment.pipeline.name();
        let message = match limit {
            MICRO_BATCH_SIZE => format!("has no effect: `{name}` computes no micro-batches"),
            _ => format!("has no effect: `{name}` has no such buffer"),
        };
        let problem = Problem::new(format!("limits.{limit}"), message);
        problems.add(problem.help("remove it").related("pipeline"));
    }
}

/// Checks that each rung of the ladder leaves the training what it is, and that each can be reached.
fn on_pressure(experiment: &Experiment, problems: &mut Problems) {
    const KEY: &str = "limits.on_pressure";
    let (ladder, pipeline) = (&experiment.limits.on_pressure, &experiment.pipeline);
    let name = pipeline.name();
    if ladder.is_empty() && experiment.limits.recover {
        let problem = Problem::new("limits.recover", "has no effect without `on_pressure`");
        problems.add(problem.help("for example `on_pressure = [\"caches\", \"prefetch\", \"park\"]`, or remove it"));
    }
    for (at, rung) in ladder.iter().enumerate() {
        let (quoted, known) = (format!("\"{}\"", rung.name()), pipeline.facts().rungs);
        let why = if ladder[..at].contains(rung) {
            Some(format!("has {quoted} twice"))
        } else if *rung == Rung::Park && at + 1 < ladder.len() {
            Some(format!("has rungs after {quoted}, which ends the run"))
        } else if *rung == Rung::ActivationCheckpointing && experiment.training.activation_checkpointing {
            Some(format!("{quoted} gives nothing: `training.activation_checkpointing` is set"))
        } else if experiment.command().is_some() {
            Some(format!("has no effect: `{name}` runs a command, which xrun only watches"))
        } else if *rung != Rung::Park && !known.contains(rung) {
            let able = known.iter().chain(&[Rung::Park]).map(|rung| format!("\"{}\"", rung.name()));
            let able = able.collect::<Vec<_>>().join(", ");
            Some(format!("{quoted} is not known to leave the training of `{name}` what it is; it has {able}"))
        } else {
            pipeline.refuses_rung(*rung).map(|why| format!("{quoted} would change the training: {why}"))
        };
        if let Some(why) = why {
            problems.add(Problem::new(KEY, why).help(format!("remove {quoted}")).related("pipeline"));
        }
    }
}

/// Checks that the pipeline has the leaks that are switched on.
fn leaks(experiment: &Experiment, problems: &mut Problems) {
    let known: Vec<&str> = experiment.pipeline.facts().leaks.iter().map(|leak| leak.key).collect();
    for key in experiment.leaks.keys().filter(|key| !known.contains(key)) {
        let name = experiment.pipeline.name();
        let problem = Problem::new(format!("leaks.{key}"), format!("`{name}` has no such leak")).related("pipeline");
        problems.add(match known.as_slice() {
            [] => problem.help("it has none; remove the key"),
            known => problem.help(format!("it has {}", known.join(", "))),
        });
    }
}

fn limits(experiment: &Experiment, problems: &mut Problems) {
    let limits = &experiment.limits;
    if let Some(host) = limits.host_memory.filter(|host| *host < HOST_MEMORY_MIN) {
        let message = format!("expected {HOST_MEMORY_MIN} or more, found {host}");
        problems.add(Problem::new("limits.host_memory", message).help("for example `host_memory = \"8 GiB\"`"));
    }
    if limits.device_memory == Some(Bytes(0)) {
        let problem = Problem::new("limits.device_memory", "expected more than 0 bytes");
        problems.add(problem.help("for example `device_memory = \"16 GiB\"`, or leave the key out"));
    }
    let cleanup = &experiment.cleanup;
    let mut actions = cleanup.actions.clone();
    actions.sort_by_key(|action| *action as u8);
    actions.dedup();
    if actions.len() < cleanup.actions.len() {
        let problem = Problem::new("cleanup.actions", "contains an action twice");
        problems.add(problem.help("keep one of them"));
    }
    if cleanup.actions.is_empty() && cleanup.every_steps > 0 {
        let every = pluralize(cleanup.every_steps, "step");
        let message = format!("is empty, so the cleanup every {every} has no effect");
        let help = "write `every_steps = 0` for no cleanup, or add actions";
        problems.add(Problem::new("cleanup.actions", message).help(help).related("cleanup.every_steps"));
    }
}

fn training(experiment: &Experiment, problems: &mut Problems) {
    let training = &experiment.training;
    let warmup = training.schedule.warmup_steps();
    if let Some(max_steps) = training.max_steps.filter(|max_steps| warmup >= *max_steps) {
        let message = format!("a warm-up of {} does not end before the last step", pluralize(warmup, "step"));
        let key = format!("training.schedule.{}.warmup_steps", training.schedule.kind());
        let problem = Problem::new(key, message);
        problems.add(problem.help(format!("write less than {max_steps}")).related("training.max_steps"));
    }
    if let Optimizer::Sgd(sgd) = &experiment.optimizer
        && sgd.nesterov
        && sgd.momentum == 0.0
    {
        let problem = Problem::new("optimizer.sgd.nesterov", "needs momentum, which is 0");
        problems.add(problem.help("write `momentum = 0.9`, or `nesterov = false`").related("optimizer.sgd.momentum"));
    }
}

/// Checks that the name does not clash with another entry of the directory of results.
fn name(experiment: &Experiment, problems: &mut Problems) {
    let reserved = [(LATEST, "the symlink to the newest run"), (REFERENCE, "committed results")];
    if let Some((name, purpose)) = reserved.iter().find(|(name, _)| experiment.experiment.name == *name) {
        let problem = Problem::new("experiment.name", format!("`{name}` is reserved for {purpose}"));
        problems.add(problem.help("choose another name"));
    }
}

fn launcher(experiment: &Experiment, problems: &mut Problems) {
    let Some(LauncherSettings::Slurm(slurm)) = &experiment.launcher else { return };
    if let Some(time) = slurm.time.filter(|time| *time <= slurm.grace) {
        let message =
            format!("{time} is not longer than the grace period of {}, so a run would stop at its start", slurm.grace);
        let problem = Problem::new("launcher.slurm.time", message);
        problems.add(problem.help("write a longer `time` or a shorter `grace`").related("launcher.slurm.grace"));
    }
    if slurm.memory == Some(Bytes(0)) {
        let problem = Problem::new("launcher.slurm.memory", "0 requests all memory of a node from Slurm");
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
        if !is_default(settings) {
            let problem = Problem::new(PATIENCE, "is missing, so the other keys of the table have no effect");
            let help = "for example `patience = 5`, or remove the table";
            problems.add(problem.help(help).related("training.early_stopping"));
        }
        return;
    }
    if experiment.validation.every_steps == 0 && experiment.validation.every_epochs == 0 {
        let problem = Problem::new(PATIENCE, "has no effect without validations");
        let help = "write `every_epochs = 1` in `[validation]`";
        problems.add(problem.help(help).related("validation.every_epochs"));
    }
    if let Some(name) = &settings.metric {
        metric(experiment, METRIC, name, problems);
    } else if settings.mode.is_some() {
        let problem = Problem::new("training.early_stopping.mode", "has no effect without `metric`");
        problems.add(problem.help("add `metric = \"…\"`, or remove `mode` to use the metric's own direction"));
    }
    if let (Some(one), Some(other)) = (&settings.metric, &experiment.checkpoint.best)
        && one != other
    {
        let problem = Problem::new(METRIC, format!("`{one}` differs from `checkpoint.best`, which is `{other}`"));
        problems.add(problem.help("name the same metric, or remove `checkpoint.best`").related("checkpoint.best"));
    }
}

/// Checks that the pipeline has this validation metric, and that it has a better direction.
pub(super) fn metric(experiment: &Experiment, key: &str, name: &str, problems: &mut Problems) {
    let known: Vec<&str> = check_search::known(experiment).into_iter().map(|(name, _)| name).collect();
    if known.contains(&name) {
        return;
    }
    let message = match experiment.pipeline.facts().metrics.iter().any(|metric| metric.name == name) {
        true => "is a constant of the data and cannot select a checkpoint".to_owned(),
        false => format!("`{}` has no validation metric of this name", experiment.pipeline.name()),
    };
    let help = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if known.is_empty() => check_search::suggestion(experiment),
        None => format!("its metrics are {}", known.join(", ")),
    };
    problems.add(Problem::new(key, message).help(help));
}
