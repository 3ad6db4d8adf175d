//! Verdict on the training of a run, from its losses and validations.

use std::path::Path;

use xrun_verdict::training::{
    JudgedMetric, LossScale, MetricValue, TrainingContext, TrainingEnd, TrainingVerdict, TrainingVerdictWord,
    TrainingWatch,
};

use crate::format::{MetricsLine, Outcome, PlanFile, Summary};
use crate::read;
use crate::read::ReadError;
use xrun_core::files::layout;
use xrun_core::settings::sections::TrainingFailOn;
use xrun_core::task::metric::{Direction, HeldOutLoss, PlannedMetric};

/// Largest metrics file that a listing judges, in bytes.
const LISTED_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Facts for the judgement, from the plan of a run; a watched command may have none.
pub fn training_context(plan: Option<&PlanFile>) -> TrainingContext {
    let Some(plan) = plan else { return TrainingContext::default() };
    let scale = |metric: &PlannedMetric| {
        metric.loss.map(|scale| match scale {
            HeldOutLoss::Mean => LossScale::Mean,
            HeldOutLoss::Perplexity => LossScale::Perplexity,
        })
    };
    let best_by = plan.metrics.iter().find(|metric| plan.best_by.as_deref() == Some(&metric.name));
    TrainingContext {
        steps: plan.known_steps(),
        metric: best_by.map(|metric| JudgedMetric {
            name: metric.name.clone(),
            lower_is_better: metric.direction == Some(Direction::Lower),
            unit: metric.unit.clone(),
            chance: metric.chance,
            baseline: metric.baseline.clone(),
            loss: scale(metric),
        }),
        held_out_loss: plan.metrics.iter().find_map(|metric| Some((metric.name.clone(), scale(metric)?))),
    }
}

/// Adds a line of `metrics.jsonl` to a watch.
pub fn add_metrics(watch: &mut TrainingWatch, line: &MetricsLine) {
    match line {
        MetricsLine::Train { step, batch, loss, learning_rate, .. } => {
            watch.add_step(*step, batch, *loss, *learning_rate);
        }
        MetricsLine::Validation { step, metrics, intervals, .. } => {
            let values = metrics.iter().map(|(name, value)| MetricValue {
                name,
                value: *value,
                half_width: intervals.get(name).map(|interval| interval.half_width),
                examples: intervals.get(name).map(|interval| interval.episodes),
            });
            watch.add_validation(*step, values);
        }
    }
}

/// How a run with this outcome ended, as far as it matters for its training.
pub fn training_end(outcome: Outcome) -> TrainingEnd {
    match outcome {
        Outcome::Finished | Outcome::MemoryGrew | Outcome::DidNotLearn => TrainingEnd::Complete,
        Outcome::StoppedEarly => TrainingEnd::StoppedEarly,
        Outcome::Diverged => TrainingEnd::NotFinite,
        Outcome::Interrupted | Outcome::TimeLimit | Outcome::MemoryLimit | Outcome::Failed | Outcome::Panicked => {
            TrainingEnd::Interrupted
        }
    }
}

/// Judges a run from its metrics; `end`: how it ended, `None` while it is running. `None` without a readable line.
pub fn training(run: &Path, plan: Option<&PlanFile>, end: Option<TrainingEnd>) -> Option<TrainingVerdict> {
    let mut watch = TrainingWatch::new(training_context(plan));
    let mut lines = 0u64;
    for line in read::metrics(run).ok()? {
        match line {
            Ok(line) => add_metrics(&mut watch, &line),
            Err(ReadError::Content { .. }) => continue,
            Err(_) => break,
        }
        lines += 1;
    }
    (lines > 0).then(|| watch.verdict(end))
}

/// Verdict that a summary records, or for an older summary or none one from the metrics, unless they are long.
pub fn recorded_training(run: &Path, summary: Option<&Summary>) -> Option<TrainingVerdict> {
    if let Some(verdict) = summary.and_then(|summary| summary.training.clone()) {
        return Some(verdict);
    }
    let is_short = || run.join(layout::METRICS).metadata().is_ok_and(|file| file.len() <= LISTED_BYTES_MAX);
    let end = summary.map(|summary| training_end(summary.outcome));
    is_short().then(|| training(run, read::plan(run).ok().as_ref(), end)).flatten()
}

/// Returns `true` if a run with this verdict on its training fails.
pub fn training_fails(on: TrainingFailOn, verdict: TrainingVerdictWord) -> bool {
    match on {
        TrainingFailOn::Never => false,
        TrainingFailOn::Diverged => verdict >= TrainingVerdictWord::Diverged,
        TrainingFailOn::NoProgress => verdict >= TrainingVerdictWord::NoProgress,
        TrainingFailOn::NoBetterThanChance => verdict >= TrainingVerdictWord::NoBetterThanChance,
        TrainingFailOn::Overfitting => verdict >= TrainingVerdictWord::Overfitting,
    }
}
