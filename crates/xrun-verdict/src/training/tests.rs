//! Tests of verdicts on training.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::Tone;

fn accuracy() -> JudgedMetric {
    JudgedMetric {
        name: "accuracy".into(),
        lower_is_better: false,
        unit: "share".into(),
        chance: None,
        baseline: Some("guessing".into()),
        loss: None,
    }
}

fn with_accuracy() -> TrainingContext {
    let held_out_loss = Some(("cross_entropy".into(), LossScale::Mean));
    TrainingContext { steps: None, metric: Some(accuracy()), held_out_loss }
}

fn of_losses(losses: impl IntoIterator<Item = f64>) -> TrainingVerdict {
    let mut watch = TrainingJudge::default();
    losses.into_iter().zip(1..).for_each(|(loss, step)| watch.add_step(step, "train", loss, None));
    watch.verdict(Some(TrainingEnd::Complete))
}

/// Adds a validation with accuracy, a baseline of 0.1, and cross-entropy.
fn validate(watch: &mut TrainingJudge, step: u64, accuracy: f64, cross_entropy: f64) {
    let value = |name, value| MetricValue { name, value: Some(value), half_width: None, examples: None };
    let metrics = [value("accuracy", accuracy), value("guessing", 0.1), value("cross_entropy", cross_entropy)];
    watch.add_validation(step, metrics);
}

/// Watch of 400 steps with a loss, and a validation after every 40th with accuracy and cross-entropy of the progress.
fn validated(loss: impl Fn(f64) -> f64, metrics: impl Fn(f64) -> (f64, f64)) -> TrainingJudge {
    let mut watch = TrainingJudge::new(with_accuracy());
    validate(&mut watch, 0, 0.1, 2.3);
    for step in 1..=400u64 {
        let progress = step as f64 / 400.0;
        watch.add_step(step, "train", loss(progress), Some(1e-3));
        if step % 40 == 0 {
            let (accuracy, cross_entropy) = metrics(progress);
            validate(&mut watch, step, accuracy, cross_entropy);
        }
    }
    watch
}

fn word(watch: &TrainingJudge) -> TrainingVerdictWord {
    watch.verdict(Some(TrainingEnd::Complete)).verdict
}

fn falling(progress: f64) -> f64 {
    2.3 * (-5.0 * progress).exp()
}

#[test]
fn the_loss_alone_decides_where_nothing_else_is_known() {
    // A deterministic ripple in place of noise.
    let ripple = |step: u32| 0.05 * f64::from(step).sin();
    let of =
        |loss: fn(f64) -> f64| of_losses((0..300).map(|step| loss(f64::from(step) / 300.0) + ripple(step))).verdict;
    assert_eq!(of(|progress| 0.4 + 2.0 * (-20.0 * progress).exp()), TrainingVerdictWord::Improved);
    assert_eq!(of(|progress| 2.0 - progress), TrainingVerdictWord::StillImproving);
    assert_eq!(of(|_| 2.0), TrainingVerdictWord::NoProgress);
    assert_eq!(of(|progress| 2.0 + 3.0 * progress), TrainingVerdictWord::Diverged);
    assert_eq!(of(|progress| if progress < 0.6 { 2.0 - 2.5 * progress } else { 9.0 }), TrainingVerdictWord::Diverged);
    assert_eq!(of_losses([2.0, 1.5, 1.2]).verdict, TrainingVerdictWord::Inconclusive);
    assert_eq!(of_losses([2.0; 5].into_iter().chain([f64::NAN])).verdict, TrainingVerdictWord::Diverged);
}

#[test]
fn a_model_that_learns_its_training_data_alone_is_no_better_than_chance() {
    let watch = validated(falling, |_| (0.1, 2.3));
    assert_eq!(word(&watch), TrainingVerdictWord::NoBetterThanChance);
    let watch = validated(|_| 2.3, |_| (0.1, 2.3));
    assert_eq!(word(&watch), TrainingVerdictWord::NoProgress);
}

#[test]
fn a_rise_of_the_loss_on_held_out_data_is_overfitting_unless_the_run_stopped_for_it() {
    let watch = validated(falling, |progress| (0.8, 0.5 + 2.0 * (progress - 0.2).max(0.0)));
    assert_eq!(word(&watch), TrainingVerdictWord::Overfitting);
    assert_eq!(watch.verdict(Some(TrainingEnd::StoppedEarly)).verdict, TrainingVerdictWord::Improved);
    let watch = validated(falling, |progress| (0.9 - 0.5 * (progress - 0.3).abs(), 0.5));
    assert_eq!(word(&watch), TrainingVerdictWord::Overfitting);
}

#[test]
fn the_metric_decides_where_the_loss_changes_its_meaning() {
    let loss = |progress: f64| if progress < 0.5 { falling(progress) } else { 2.0 };
    let watch = validated(loss, |progress| (0.1 + 0.8 * progress.min(0.5), 2.3 - progress));
    assert!(word(&watch).word().tone == Tone::Good, "{:?}", watch.verdict(None));
}

#[test]
fn a_late_gain_counts_for_less_when_the_learning_rate_is_spent() {
    let metrics = |progress: f64| (0.1 + 0.8 * progress.powf(0.3), 2.3 - progress.powf(0.3));
    assert_eq!(word(&validated(falling, metrics)), TrainingVerdictWord::StillImproving);
    let mut watch = validated(falling, metrics);
    watch.add_step(401, "train", 0.01, Some(1e-5));
    assert_eq!(word(&watch), TrainingVerdictWord::Improved);
}

#[test]
fn a_perfect_model_is_not_still_improving() {
    let accuracy = |progress: f64| (2.0 * progress).min(1.0);
    let late = |progress: f64| (0.1 + 0.9 * accuracy(progress), 2.3 - 2.3 * progress);
    assert_eq!(word(&validated(falling, late)), TrainingVerdictWord::Improved);
    let below = |progress: f64| (0.1 + 0.8 * progress, 2.3 - 2.2 * progress);
    assert_eq!(word(&validated(falling, below)), TrainingVerdictWord::StillImproving);
    let without_loss = |progress: f64| (0.1 + 0.8 * progress, 2.3 - 2.3 * progress);
    assert_eq!(word(&validated(falling, without_loss)), TrainingVerdictWord::Improved);
}

/// Verdict on ten validations of a metric on this many examples, beside a baseline with an interval.
fn beside(values: [f64; 2], examples: Option<u64>, half_width: Option<f64>) -> TrainingVerdict {
    let mut watch = TrainingJudge::new(with_accuracy());
    (1..=400).for_each(|step| watch.add_step(step, "train", falling(step as f64 / 400.0), None));
    for step in 1..=10u64 {
        let value = |name, value, half_width, examples| MetricValue { name, value: Some(value), half_width, examples };
        // A deterministic ripple in place of noise.
        let ripple = if step % 2 == 0 { 0.001 } else { -0.001 };
        let metrics =
            [value("accuracy", values[0] + ripple, None, examples), value("guessing", values[1], half_width, None)];
        watch.add_validation(40 * step, metrics);
    }
    watch.verdict(Some(TrainingEnd::Complete))
}

#[test]
fn a_metric_within_the_range_of_its_baseline_is_no_better_than_chance() {
    let within = beside([0.25, 0.2], None, Some(0.04));
    assert_eq!(within.verdict, TrainingVerdictWord::NoBetterThanChance, "{within:?}");
    let needed = within.metric.unwrap().needed.unwrap();
    assert!((needed - (0.2 + 3.0 * 0.04 / 1.96)).abs() < 1e-9, "{needed}");
    assert_eq!(beside([needed + 0.002, 0.2], None, Some(0.04)).verdict, TrainingVerdictWord::Improved);
    assert_eq!(beside([0.25, 0.2], None, None).verdict, TrainingVerdictWord::Improved, "a constant has no range");
    insta::assert_snapshot!(within.message);
}

#[test]
fn few_validation_examples_are_not_judged() {
    for accuracy in [0.1, 0.9] {
        let found = beside([accuracy, 0.1], Some(6), None);
        assert_eq!(found.verdict, TrainingVerdictWord::Inconclusive);
        assert!(found.message.contains('6'), "{}", found.message);
    }
    assert_eq!(beside([0.9, 0.1], Some(10), None).verdict, TrainingVerdictWord::Improved);
}

#[test]
fn an_early_phase_does_not_count_as_the_end() {
    let mut watch = TrainingJudge::default();
    (1..=200).for_each(|step| watch.add_step(step, "pretraining", falling(step as f64 / 200.0), None));
    (201..=400).for_each(|step| watch.add_step(step, "fine-tuning", 0.4 + falling(step as f64 / 200.0 - 1.0), None));
    assert!(word(&watch).word().tone == Tone::Good);
}

/// Noise never looks like learning: neither of the loss nor of the metric.
#[test]
fn noise_is_never_praised() {
    for seed in 0..400 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut noise = |scale: f64| scale * (0..6).map(|_| random.random::<f64>() - 0.5).sum::<f64>();
        let mut watch = TrainingJudge::new(with_accuracy());
        validate(&mut watch, 0, 0.1 + noise(0.02), 2.3);
        let mut losses = TrainingJudge::default();
        for step in 1..=300u64 {
            let loss = 2.3 + noise(0.3);
            watch.add_step(step, "train", loss, None);
            losses.add_step(step, "train", loss, None);
            if step % 30 == 0 {
                validate(&mut watch, step, 0.1 + noise(0.02), 2.3 + noise(0.02));
            }
        }
        for found in [watch, losses].map(|watch| watch.verdict(Some(TrainingEnd::Complete))) {
            assert!(found.verdict.word().tone != Tone::Good, "seed {seed}: {found:?}");
            assert_ne!(found.verdict, TrainingVerdictWord::Diverged, "seed {seed}: {found:?}");
        }
    }
}

proptest! {
    /// Any series has a verdict, and a loss that is no number is always a divergence.
    #[test]
    fn any_series_has_a_verdict(
        losses in prop::collection::vec(prop_oneof![10 => -1e12f64..1e12, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)], 0..300),
        metrics in prop::collection::vec(prop_oneof![5 => prop::num::f64::ANY, 5 => 0.0..1.0], 0..40)
    ) {
        let mut watch = TrainingJudge::new(with_accuracy());
        for (accuracy, at) in metrics.iter().zip(0..) {
            validate(&mut watch, at * 5, *accuracy, *accuracy);
        }
        losses.iter().zip(1..).for_each(|(loss, step)| watch.add_step(step, "train", *loss, Some(*loss)));
        let found = watch.verdict(None);
        prop_assert!(!found.message.is_empty());
        if losses.iter().any(|loss| !loss.is_finite()) {
            prop_assert_eq!(found.verdict, TrainingVerdictWord::Diverged);
        }
    }
}
