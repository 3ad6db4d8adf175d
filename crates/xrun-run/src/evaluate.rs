//! Evaluation of a checkpoint of a run: validates it without changing the run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::clock::Clock;
use super::prepare::{Opened, StartError, device_error};
use super::{checkpoint, images, manifest};
use crate::directory;
use crate::memory::sources;
use crate::plan::Plan;
use xrun_core::files::{layout, write};
use xrun_core::heap;
use xrun_core::panics;
use xrun_core::task::Task;
use xrun_core::task::metric::PlannedMetric;
use xrun_results::build_info::code_digest;
use xrun_results::checkpoint_use::CheckpointUse;
use xrun_results::command_line;
use xrun_results::evaluation::Evaluation;
use xrun_results::format::{Manifest, MetricsLine, VERSION};
use xrun_results::read;
use xrun_results::timestamp;

/// Choice of a checkpoint of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointChoice {
    /// The best by the run's metric; the newest if the run has no best.
    Best,
    /// The newest.
    Last,
    /// The one after this step.
    Step(u64),
}

/// Checkpoint that was selected and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedCheckpoint {
    /// Optimiser steps done.
    pub step: u64,
    /// Directory of the checkpoint.
    pub path: PathBuf,
}

/// Start of the use of a checkpoint.
pub(super) struct UseStart(Instant, String);

impl UseStart {
    /// Start now.
    pub fn now() -> Self {
        Self(Instant::now(), timestamp::now())
    }

    /// Record of the use until now.
    pub fn record(
        self,
        opened: &Opened,
        manifest: &Manifest,
        checkpoint: &SelectedCheckpoint,
        overrides: &[String],
        same_data: bool,
    ) -> CheckpointUse {
        let device = manifest::device(&opened.chosen, &opened.plan.experiment.device);
        CheckpointUse {
            version: VERSION,
            experiment: manifest.experiment.clone(),
            run: manifest.run.clone(),
            step: checkpoint.step,
            started: self.1,
            seconds: self.0.elapsed().as_secs_f64(),
            command: command_line::command(),
            overrides: overrides.to_vec(),
            device: device.chosen,
            device_name: device.name,
            source_digest: Some(code_digest()),
            data: opened.plan.facts.data_digests.iter().cloned().collect(),
            same_data,
            heap_peak: heap::read().peak,
            rss_peak: sources::rss_peak(),
        }
    }
}

/// Selects and verifies a checkpoint.
///
/// # Errors
/// The run has no such checkpoint, or it is damaged.
pub fn select_checkpoint(
    run: &Path,
    manifest: &Manifest,
    choice: CheckpointChoice,
) -> Result<SelectedCheckpoint, String> {
    let all = read::checkpoints(run).map_err(|error| error.to_string())?;
    let Some((last, _)) = all.last() else {
        return Err(format!(
            "{}: the run has no checkpoint; set `checkpoint.every_steps` to write some",
            run.display()
        ));
    };
    // Each checkpoint records the best so far.
    let best = || {
        let states = all.iter().rev().map(|(_, path)| read::loop_state(path));
        let mut steps = states.filter_map(|state| match state {
            Err(error) if error.may_be_intact() => Some(Err(error.to_string())),
            state => state.ok()?.best.map(|best| Ok(best.step)),
        });
        steps.next().transpose()
    };
    let step = match choice {
        CheckpointChoice::Last => *last,
        CheckpointChoice::Step(step) => step,
        CheckpointChoice::Best => best()?.filter(|best| all.iter().any(|(step, _)| step == best)).unwrap_or(*last),
    };
    let Some((_, path)) = all.iter().find(|(one, _)| *one == step) else {
        let steps: Vec<String> = all.iter().map(|(step, _)| step.to_string()).collect();
        return Err(format!("{}: no checkpoint of step {step}; available: {}", run.display(), steps.join(", ")));
    };
    checkpoint::verify(path, step, manifest).map_err(|error| error.to_string())?;
    Ok(SelectedCheckpoint { step, path: path.clone() })
}

/// Returns whether the data is the run's own.
///
/// # Errors
/// It is not, and the model depends on the run's own data, for example by its tokenizer.
pub fn check_data(plan: &Plan, manifest: &Manifest) -> Result<bool, String> {
    let same = plan.facts.data_digests.iter().all(|(name, digest)| manifest.data.get(name) == Some(digest));
    match plan.facts.learned_from_data {
        Some(what) if !same => {
            Err(format!("the model works only with the data it was trained on ({what}), and this is other data"))
        }
        _ => Ok(same),
    }
}

/// Loads and validates a checkpoint, and writes `evaluation.json` and the files of the task into a new directory of the run.
/// Returns that directory.
///
/// # Errors
/// The checkpoint cannot be loaded, the task fails, or the disk does.
pub fn evaluate(
    opened: &Opened,
    mut task: Box<dyn Task>,
    run: &Path,
    manifest: &Manifest,
    checkpoint: &SelectedCheckpoint,
    overrides: &[String],
    same_data: bool,
) -> Result<(PathBuf, Evaluation), StartError> {
    let start = UseStart::now();
    let directory = create_dated_directory(&run.join(layout::EVALUATIONS))?;
    let validated = panics::caught(|| {
        task.load(&checkpoint.path)?;
        task.set_run_directory(&directory);
        let report = task.validate(&mut Clock::default())?;
        task.synchronise()?;
        Ok(report)
    });
    let report = validated
        .map_err(|panic| device_error(&opened.chosen, &panic))
        .and_then(|report: Result<_, xrun_core::task::TaskError>| report.map_err(StartError::failed))
        .inspect_err(|_| drop(std::fs::remove_dir(&directory)))?;
    images::write(&report, &directory).map_err(StartError::failed)?;
    let evaluation = Evaluation {
        used: start.record(opened, manifest, checkpoint, overrides, same_data),
        planned: opened.plan.facts.metrics.iter().map(PlannedMetric::from).collect(),
        metrics: report
            .metrics
            .into_iter()
            .map(|(name, value)| (name, value.filter(|value| value.is_finite())))
            .collect(),
        intervals: report.intervals.into_iter().collect(),
        classes: report.classes,
        in_training: training_metrics(run, checkpoint.step),
    };
    write::replace_json(&directory.join(layout::EVALUATION), &evaluation).map_err(StartError::failed)?;
    Ok((directory, evaluation))
}

/// Creates a directory that is named by the time, as runs are.
pub(super) fn create_dated_directory(parent: &Path) -> Result<PathBuf, StartError> {
    write::create_directory(parent).map_err(StartError::failed)?;
    let name = timestamp::time().format("%Y-%m-%dT%H-%M-%S").to_string();
    directory::create_numbered(parent, &name).map_err(StartError::failed)
}

/// Metrics of the run's own validation after `wanted` steps; the last one if a resume repeated it.
pub(super) fn training_metrics(run: &Path, wanted: u64) -> BTreeMap<String, Option<f64>> {
    let lines = read::metrics(run).into_iter().flatten().flatten();
    let of_step = lines.filter_map(|line| match line {
        MetricsLine::Validation { step, metrics, .. } if step == wanted => Some(metrics),
        _ => None,
    });
    of_step.last().unwrap_or_default()
}
