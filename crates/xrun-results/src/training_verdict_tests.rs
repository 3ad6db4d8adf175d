//! Verdicts on recorded trainings of the pipelines with good and bad settings, and on invented ones.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;
use xrun_core::task::metric::{Interval, PlannedMetric};

/// A recorded training: losses by kind, the first one and then means of neighbouring steps, at most 128, and the validations. The expected words were
/// written before the verdict, and the thresholds were chosen on the cases whose `half` is `tune` alone.
#[derive(Deserialize)]
struct Case {
    name: String,
    expected: Vec<TrainingVerdictWord>,
    diverged: bool,
    metric: Option<String>,
    direction: Option<Direction>,
    chance: Option<f64>,
    losses: BTreeMap<String, Vec<f64>>,
    /// Step, value, half width of the 95 % interval.
    validations: Vec<(u64, f64, Option<f64>)>,
    rates: Option<(f64, f64)>,
}

impl Case {
    fn verdict(&self) -> TrainingVerdict {
        let mut history = TrainingHistory {
            metric: self.metric.clone().zip(self.direction),
            chance: self.chance,
            keep_every: 1,
            ..TrainingHistory::default()
        };
        for (kind, losses) in &self.losses {
            losses.iter().for_each(|loss| history.add_loss(kind, *loss));
        }
        for &(step, value, half_width) in &self.validations {
            history.add_validation(Validation { step, value, half_width });
        }
        if let Some((peak, last)) = self.rates {
            (history.rate_peak, history.rate_last) = (peak, Some(last));
        }
        history.verdict(self.diverged.then_some(Outcome::Diverged))
    }
}

fn cases() -> Vec<Case> {
    let text = include_str!("training_verdict_cases.jsonl");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn recorded_trainings_have_the_expected_verdicts() {
    use TrainingVerdictWord::{Diverged, NoBetterThanChance, NoBetterThanUntrained, NoProgress};
    let (mut wrong, mut green) = (Vec::new(), Vec::new());
    for case in cases() {
        let verdict = case.verdict();
        if !case.expected.contains(&verdict.verdict) {
            wrong.push(case.name.clone());
        }
        let nothing = [NoProgress, NoBetterThanUntrained, NoBetterThanChance, Diverged];
        if case.expected.iter().all(|word| nothing.contains(word)) && verdict.verdict.learnt() == Some(true) {
            green.push(case.name);
        }
    }
    assert!(green.is_empty(), "nothing was learnt: {green:?}");
    // Memorised data whose accuracy does not fall, a loss that rises by a twentieth, and a drop between two validations: 1 of 18 and
    // 3 of 19 in the two halves.
    assert_eq!(wrong, ["stage2_lr50", "images_small_data", "images_small_data4", "images_4epochs"]);
}

fn plan() -> PlanFile {
    let metric = PlannedMetric::plain("accuracy", Direction::Higher);
    let chance = PlannedMetric {
        direction: None,
        family: "accuracy".into(),
        ..PlannedMetric::plain("largest_class", Direction::Higher)
    };
    serde_json::from_value(serde_json::json!({
        "version": 1, "epochs": 1, "steps_per_epoch": 1, "steps": 1, "validations": 1, "parameters": 1, "trained_parameters": null,
        "owners": [], "metrics": [metric, chance], "best_by": "accuracy", "images": "", "forecast": null,
    }))
    .unwrap()
}

fn train(step: u64, loss: f64) -> MetricsLine {
    MetricsLine::Train {
        step,
        epoch: 1,
        batch: "train".into(),
        loss,
        learning_rate: Some(0.1),
        gradient_norm: None,
        gradient_norm_median: None,
        values: BTreeMap::new(),
    }
}

fn validation(step: u64, accuracy: f64) -> MetricsLine {
    MetricsLine::Validation {
        step,
        epoch: 1,
        metrics: [("accuracy".to_owned(), Some(accuracy)), ("largest_class".to_owned(), Some(0.25))].into(),
        intervals: [("accuracy".to_owned(), Interval { half_width: 0.02, episodes: 10 })].into(),
    }
}

fn judged(losses: impl Iterator<Item = f64>, accuracies: &[f64]) -> TrainingVerdictWord {
    let plan = plan();
    let mut history = TrainingHistory::new(Some(&plan));
    let losses: Vec<f64> = losses.collect();
    let steps = losses.len() as u64;
    losses.iter().zip(1..).for_each(|(loss, step)| history.add(&train(step, *loss)));
    let last = accuracies.len().saturating_sub(1).max(1) as u64;
    accuracies.iter().zip(0..).for_each(|(accuracy, index)| history.add(&validation(index * steps / last, *accuracy)));
    history.verdict(None).verdict
}

/// Loss with a deterministic ripple in place of noise.
fn decaying(steps: u64, scale: f64) -> impl Iterator<Item = f64> {
    (0..steps)
        .map(move |step| 0.5 + 2.0 * (-(step as f64) / scale).exp() + 0.05 * ((step * 7 % 11) as f64 / 11.0 - 0.5))
}

#[test]
fn metric_decides_where_there_is_one() {
    use TrainingVerdictWord::*;
    assert_eq!(judged(decaying(400, 30.0), &[0.2, 0.7, 0.8, 0.8, 0.8]), Improved);
    assert_eq!(judged(decaying(400, 30.0), &[0.2, 0.4, 0.5, 0.6, 0.7]), StillImproving);
    assert_eq!(judged(decaying(400, 30.0), &[0.1, 0.1, 0.11, 0.11, 0.11]), NoBetterThanUntrained);
    assert_eq!(judged(decaying(400, 30.0), &[0.1, 0.15, 0.2, 0.22, 0.22]), NoBetterThanChance);
    assert_eq!(judged(decaying(400, 30.0), &[0.2, 0.8, 0.7, 0.6, 0.5]), Overfitting);
    assert_eq!(judged(decaying(400, 1e9), &[0.3, 0.3, 0.3]), NoProgress);
    assert_eq!(judged(decaying(8, 3.0), &[0.2, 0.3]), Inconclusive);
}

#[test]
fn loss_alone_decides_without_validations() {
    use TrainingVerdictWord::*;
    assert_eq!(judged(decaying(400, 30.0), &[]), Improved);
    assert_eq!(judged(decaying(400, 300.0), &[]), StillImproving);
    assert_eq!(judged(decaying(400, 1e9), &[]), NoProgress);
    // A loss of 8.7 that jumps to 67,769 and comes back to 388, as with a learning rate of 500.
    let spike = (0..200).map(|step| if step == 0 { 8.7 } else { 388.0 + 67_000.0 * (-f64::from(step) / 10.0).exp() });
    assert_eq!(judged(spike, &[0.0, 0.0]), Diverged);
}

#[test]
fn memory_of_a_history_is_bounded() {
    let plan = plan();
    let mut history = TrainingHistory::new(Some(&plan));
    for step in 0..100_000 {
        history.add(&train(step, 1.0 / (step + 1) as f64));
        history.add(&validation(step, 0.5));
    }
    assert!(history.series[0].means.len() < MEANS_MAX && history.validations.len() < VALIDATIONS_MAX);
    assert_eq!(history.series[0].steps, 100_000);
    assert_eq!(history.newest.map(|last| last.step), Some(99_999));
}
