//! How is a checkpoint of a run validated once more, without touching the run?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::clock::Clock;
use super::prepare::{NotStarted, Opened, not_opened};
use super::{checkpoint, manifest, pictures};
use crate::plan::Plan;
use xrun_core::files::{layout, write};
use xrun_core::heap;
use xrun_core::panics;
use xrun_core::task::Task;
use xrun_core::task::metric::PlannedMetric;
use xrun_results::built::code_digest;
use xrun_results::command_line;
use xrun_results::evaluation::Evaluation;
use xrun_results::format::{Manifest, MetricsLine, VERSION};
use xrun_results::read;
use xrun_results::timestamp;
use xrun_watch::memory::sources;

/// Which checkpoint of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The best, by what the run chose; the newest where it chose none.
    Best,
    /// The newest one.
    Last,
    /// The one after this step.
    Step(u64),
}

/// A checkpoint that is whole, and the steps that it was trained for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Optimiser steps that it had been trained for.
    pub step: u64,
    /// The checkpoint's folder.
    pub path: PathBuf,
}

/// Finds it.
///
/// # Errors
/// For people: the run has no such checkpoint, or it is damaged.
pub fn choose(run: &Path, manifest: &Manifest, which: Which) -> Result<Chosen, String> {
    let all = read::checkpoints(run);
    let Some((last, _)) = all.last() else {
        return Err(format!("{}: this run has no checkpoint; `checkpoint.every_steps` writes some", run.display()));
    };
    // Each knows the best so far.
    let best = || all.iter().rev().find_map(|(_, path)| read::loop_state(path).ok()?.best).map(|best| best.step);
    let step = match which {
        Which::Last => *last,
        Which::Step(step) => step,
        Which::Best => best().filter(|best| all.iter().any(|(step, _)| step == best)).unwrap_or(*last),
    };
    let Some((_, path)) = all.iter().find(|(one, _)| *one == step) else {
        let steps: Vec<String> = all.iter().map(|(step, _)| step.to_string()).collect();
        let message = format!("there is no checkpoint after step {step}; there are those after {}", steps.join(", "));
        return Err(format!("{}: {message}", run.display()));
    };
    checkpoint::sound(path, step, manifest)?;
    Ok(Chosen { step, path: path.clone() })
}

/// Refuses other data where the model depends on what was learned from the run's own.
///
/// # Errors
/// For people: which data, and what to do.
pub fn fits(plan: &Plan, manifest: &Manifest) -> Result<bool, String> {
    let same = plan.facts.data_digests.iter().all(|(name, digest)| manifest.data.get(name) == Some(digest));
    match plan.facts.learned_from_data {
        Some(what) if !same => {
            Err(format!("the data is not what the run was trained on, and {what}: this model cannot read other data"))
        }
        _ => Ok(same),
    }
}

/// Loads the checkpoint, validates, and writes `evaluation.json` and what the task leaves into a new folder of the run;
/// gives that folder.
///
/// # Errors
/// The checkpoint cannot be loaded, the task fails, or the disk does.
pub fn evaluate(
    opened: &Opened,
    mut task: Box<dyn Task>,
    run: &Path,
    of_run: &Manifest,
    chosen: &Chosen,
    overrides: &[String],
    same_data: bool,
) -> Result<(PathBuf, Evaluation), NotStarted> {
    let (began, started) = (Instant::now(), timestamp::now());
    let folder = new_folder(&run.join(layout::EVALUATIONS))?;
    let validated = panics::caught(|| {
        task.load(&chosen.path)?;
        task.leave_files_in(&folder);
        let report = task.validate(&mut Clock::default())?;
        task.synchronise()?;
        Ok(report)
    });
    let report = validated
        .map_err(|panic| not_opened(&opened.chosen, &panic))
        .and_then(|report: Result<_, xrun_core::task::TaskError>| report.map_err(NotStarted::failed))
        .inspect_err(|_| drop(std::fs::remove_dir(&folder)))?;
    pictures::keep(&report, &folder).map_err(NotStarted::failed)?;
    let device = manifest::device(&opened.chosen, &opened.plan.experiment.device);
    let evaluation = Evaluation {
        version: VERSION,
        experiment: of_run.experiment.clone(),
        run: of_run.run.clone(),
        step: chosen.step,
        started,
        seconds: began.elapsed().as_secs_f64(),
        command: command_line::command(),
        overrides: overrides.to_vec(),
        device: device.chosen,
        device_name: device.name,
        source_digest: Some(code_digest()),
        data: opened.plan.facts.data_digests.iter().cloned().collect(),
        same_data,
        planned: opened.plan.facts.metrics.iter().map(PlannedMetric::from).collect(),
        metrics: report
            .metrics
            .into_iter()
            .map(|(name, value)| (name, value.filter(|value| value.is_finite())))
            .collect(),
        intervals: report.intervals.into_iter().collect(),
        in_training: in_training(run, chosen.step),
        heap_peak: heap::read().peak,
        resident_peak: sources::rss_peak(),
    };
    write::replace_json(&folder.join(layout::EVALUATION), &evaluation).map_err(NotStarted::failed)?;
    Ok((folder, evaluation))
}

/// Named by the time, as runs are.
pub(super) fn new_folder(parent: &Path) -> Result<PathBuf, NotStarted> {
    let base = timestamp::time().format("%Y-%m-%dT%H-%M-%S").to_string();
    write::own_folder(parent).map_err(NotStarted::failed)?;
    let mut names = std::iter::once(base.clone()).chain((2_u32..).map(|number| format!("{base}_{number}")));
    loop {
        let folder = parent.join(names.next().unwrap_or_default());
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return write::at(&folder, made).map(|()| folder).map_err(NotStarted::failed),
        }
    }
}

/// The validation that the run made after a step; the newest, where a resume made it again.
fn in_training(run: &Path, asked: u64) -> BTreeMap<String, Option<f64>> {
    let lines = read::metrics(run).into_iter().flatten().flatten();
    let of_step = lines.filter_map(|line| match line {
        MetricsLine::Validation { step, metrics, .. } if step == asked => Some(metrics),
        _ => None,
    });
    of_step.last().unwrap_or_default()
}
