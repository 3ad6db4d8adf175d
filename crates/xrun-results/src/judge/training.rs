//! Verdict on the training of a run, from its losses and validations.

use xrun_verdict::training::{
    JudgedMetric, LossScale, MetricValue, TrainingContext, TrainingEnd, TrainingJudge, TrainingVerdict,
    TrainingVerdictWord,
};

use crate::format::{MetricsLine, Outcome, PlanFile};
use crate::read::ReadError;
use xrun_core::settings::sections::TrainingFailOn;
use xrun_core::task::metric::{Direction, HeldOutLoss, PlannedMetric};

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

/// Adds a line of `metrics.jsonl` to a judge.
pub fn add_metrics(judge: &mut TrainingJudge, line: &MetricsLine) {
    match line {
        MetricsLine::Train { step, batch, loss, learning_rate, .. } => {
            judge.add_step(*step, batch, *loss, *learning_rate);
        }
        MetricsLine::Validation { step, metrics, intervals, .. } => {
            let values = metrics.iter().map(|(name, value)| MetricValue {
                name,
                value: *value,
                half_width: intervals.get(name).map(|interval| interval.half_width),
                examples: intervals.get(name).map(|interval| interval.episodes),
            });
            judge.add_validation(*step, values);
        }
    }
}

/// How a run with this outcome ended, as far as it matters for its training.
pub fn training_end(outcome: Outcome) -> TrainingEnd {
    match outcome {
        Outcome::Finished | Outcome::MemoryGrew | Outcome::DidNotLearn => TrainingEnd::Complete,
        Outcome::StoppedEarly => TrainingEnd::StoppedEarly,
        Outcome::Diverged => TrainingEnd::NotFinite,
        Outcome::Interrupted
        | Outcome::TimeLimit
        | Outcome::MemoryLimit
        | Outcome::Parked
        | Outcome::Failed
        | Outcome::Panicked => TrainingEnd::Interrupted,
    }
}

/// Judges a run from its metrics; `end`: how it ended, `None` while it is running. `None` without a readable line.
pub fn judge_training(
    lines: impl Iterator<Item = Result<MetricsLine, ReadError>>,
    plan: Option<&PlanFile>,
    end: Option<TrainingEnd>,
) -> Option<TrainingVerdict> {
    let mut judge = TrainingJudge::new(training_context(plan));
    let readable = lines.take_while(|line| matches!(line, Ok(_) | Err(ReadError::Content { .. })));
    readable.flatten().for_each(|line| add_metrics(&mut judge, &line));
    (!judge.is_empty()).then(|| judge.verdict(end))
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
