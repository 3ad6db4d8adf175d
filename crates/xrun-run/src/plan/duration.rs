//! Forecast of the duration of a run, or of what is left of it: steps, validations and checkpoints apart.

use super::Plan;
use super::calendar;
use xrun_core::units::{pluralize, seconds};
use xrun_results::durations::{DurationForecast, Durations, MeanDuration};

/// Relative error of a mean that its scatter does not show: a probe is short, and the machine is not always equally fast.
const UNSEEN_ERROR: f64 = 0.1;
/// Half width of an interval in standard errors.
const INTERVAL: f64 = 2.0;
/// Number of steps from which on their mean counts; before, a measurement of the probe does.
const STEPS_MIN: u64 = 3;
/// Fraction of the duration from which on validations are worth a remark.
const MANY_VALIDATIONS: f64 = 0.5;

/// Work of a plan after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Steps of each stage of the training.
    pub steps: Vec<u64>,
    /// Validations.
    pub validations: u64,
    /// Batches of one validation.
    pub batches: u64,
    /// Batches that steps validate.
    pub step_batches: u64,
    /// Steps that use data for the first time.
    pub first_use_steps: u64,
    /// Checkpoints, without those of the best validations.
    pub checkpoints: u64,
}

/// Work of the plan that is left after step `done`. `validated`: the validation that is due after it is done.
pub fn work_after(plan: &Plan, done: u64, validated: bool) -> Work {
    let ends = plan.facts.stage_ends.iter().copied().filter(|end| *end < plan.steps).chain([plan.steps]);
    let mut begin = 0;
    let steps = ends.map(|end| {
        let left = end.saturating_sub(done.max(begin));
        begin = end;
        left
    });
    let steps: Vec<u64> = steps.collect();
    let all: u64 = steps.iter().sum();
    let validations = calendar::validations(plan) - calendar::validations_until(plan, done, validated);
    let per_step = plan.facts.epoch_validation_batches as f64 / plan.steps_per_epoch.max(1) as f64;
    Work {
        validations,
        batches: plan.facts.validation_batches,
        first_use_steps: plan.facts.first_use_steps.min(all),
        step_batches: (per_step * all as f64).round() as u64,
        checkpoints: calendar::checkpoints(plan).saturating_sub(calendar::checkpoints_until(plan, done)),
        steps,
    }
}

/// Sum of parts with its variance.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    seconds: f64,
    variance: f64,
}

impl Sum {
    fn add(&mut self, count: u64, each: MeanDuration) {
        let count = count as f64;
        self.seconds += count * each.mean;
        // The error of the mean is common to all; the scatter of each is not.
        let error = count * (each.error().powi(2) + (UNSEEN_ERROR * each.mean).powi(2)).sqrt();
        self.variance += error * error + count * each.deviation * each.deviation;
    }
}

/// Forecasts the duration of the work from what was measured, or before that from `probe`; `None` while a part of the work is
/// unknown.
pub fn forecast(work: &Work, measured: &Durations, probe: Option<&Durations>) -> Option<DurationForecast> {
    let (mut steps, mut validations, mut checkpoints) = (Sum::default(), Sum::default(), Sum::default());
    for (stage, count) in work.steps.iter().enumerate().filter(|(_, count)| **count > 0) {
        steps.add(*count, step_of(stage, measured, probe)?);
    }
    if work.step_batches > 0 {
        steps.add(work.step_batches, newest(measured.step_batch, probe.map(|probe| probe.step_batch))?);
    }
    let first_uses = work.first_use_steps.saturating_sub(measured.first_use.count);
    if let Some(each) = newest(measured.first_use, probe.map(|probe| probe.first_use)).filter(|_| first_uses > 0) {
        steps.add(first_uses, each);
    }
    if work.validations > 0 {
        validations.add(work.validations, validation(work, measured, probe)?);
        // Of a run that has validated already, all data is in the cache.
        let first_use = probe.map(|probe| probe.validation_first_use).filter(|_| measured.validation.count == 0);
        validations.add(work.batches, first_use.unwrap_or_default());
    }
    // Half of the validations are the best so far and save a checkpoint.
    let saves = work.checkpoints + work.validations / 2;
    if let Some(each) = newest(measured.checkpoint, probe.map(|probe| probe.checkpoint)) {
        checkpoints.add(saves, each);
    }
    let seconds = steps.seconds + validations.seconds + checkpoints.seconds;
    let half_width = INTERVAL * (steps.variance + validations.variance + checkpoints.variance).sqrt();
    Some(DurationForecast {
        seconds,
        low: (seconds - half_width).max(0.3 * seconds),
        high: seconds + half_width,
        steps: steps.seconds,
        validations: validations.seconds,
        checkpoints: checkpoints.seconds,
    })
}

/// Duration that was measured, or that of the probe.
fn newest(measured: MeanDuration, probe: Option<MeanDuration>) -> Option<MeanDuration> {
    Some(measured).filter(|measured| measured.count > 0).or(probe.filter(|probe| probe.count > 0))
}

/// Duration of a step of a stage. That of a later stage is scaled from the probe by how fast the measured stages are.
fn step_of(stage: usize, measured: &Durations, probe: Option<&Durations>) -> Option<MeanDuration> {
    let of = |durations: &Durations, stage: usize| {
        durations.steps.get(stage).copied().filter(|step| step.count > 0 && step.mean > 0.0)
    };
    let known = of(measured, stage).filter(|step| step.count >= STEPS_MIN);
    if known.is_some() {
        return known;
    }
    let probed = probe.and_then(|probe| of(probe, stage));
    let others = (0..measured.steps.len()).rev();
    let other = others.filter_map(|at| Some((at, of(measured, at).filter(|step| step.count >= STEPS_MIN)?))).next();
    match (probed, other) {
        (Some(probed), Some((at, step))) => {
            let speed = probe.and_then(|probe| of(probe, at)).map_or(1.0, |before| step.mean / before.mean);
            Some(MeanDuration { mean: probed.mean * speed, deviation: probed.deviation * speed, ..probed })
        }
        (Some(probed), None) => Some(probed),
        (None, Some((_, step))) => Some(step),
        (None, None) => of(measured, stage),
    }
}

/// Duration of a validation.
fn validation(work: &Work, measured: &Durations, probe: Option<&Durations>) -> Option<MeanDuration> {
    if measured.validation.count > 0 {
        return Some(measured.validation);
    }
    let probe = probe?;
    if work.batches == 0 || probe.validation_batch.count == 0 {
        return Some(probe.validation).filter(|validation| validation.count > 0);
    }
    let batches = work.batches as f64;
    Some(MeanDuration {
        count: probe.validation_batch.count,
        mean: batches * probe.validation_batch.mean + probe.validation_rest.mean,
        deviation: batches * probe.validation_batch.error() + probe.validation_rest.deviation,
    })
}

/// Forecast as a sentence, with a remark where validations are most of the run.
pub fn message(plan: &Plan, work: &Work, forecast: &DurationForecast) -> String {
    let parts = [
        (pluralize(plan.steps, "step"), forecast.steps),
        (pluralize(work.validations, "validation"), forecast.validations),
        ("checkpoints".to_owned(), forecast.checkpoints),
    ];
    let shown = parts.into_iter().filter(|(_, part)| *part >= 0.01 * forecast.seconds);
    let shown: Vec<String> = shown.map(|(name, part)| format!("{name} {}", seconds(part))).collect();
    let mut text = format!(
        "time: about {} ({} to {}): {}",
        seconds(forecast.seconds),
        seconds(forecast.low),
        seconds(forecast.high),
        shown.join(", ")
    );
    let fraction = forecast.validation_fraction();
    if fraction >= MANY_VALIDATIONS {
        let cadence = if plan.experiment.validation.every_steps > 0 { "every_steps" } else { "every_epochs" };
        text.push_str(&format!(
            "; validations are about {:.0} % of the run: a smaller `validation.batches` or a larger \
             `validation.{cadence}` shortens it",
            100.0 * fraction
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan_of;

    /// Plan of 100 steps in stages of 40 and 60, with 6 validations of 8 batches and 5 checkpoints.
    fn plan() -> Plan {
        let mut plan = plan_of(
            "[pipeline.dummy]\nsteps_per_epoch = 50\n[training]\nepochs = 2\n[checkpoint]\nevery_steps = 20\n\
             [validation]\nevery_epochs = 0\nevery_steps = 20\n",
        );
        plan.facts.stage_ends = vec![40];
        plan.facts.validation_batches = 8;
        plan.facts.epoch_validation_batches = 5;
        plan.facts.first_use_steps = 6;
        plan
    }

    fn each(count: u64, mean: f64) -> MeanDuration {
        MeanDuration { count, mean, deviation: 0.0 }
    }

    fn probe() -> Durations {
        Durations {
            steps: vec![each(3, 1.0), each(4, 2.0)],
            first_step: Some(9.0),
            validation: each(1, 1.5),
            validation_batch: each(1, 0.5),
            validation_first_use: each(1, 0.75),
            validation_rest: each(1, 0.5),
            step_batch: each(2, 0.1),
            first_use: each(3, 4.0),
            checkpoint: each(1, 0.25),
            ..Durations::default()
        }
    }

    #[test]
    fn the_work_that_is_left_shrinks_with_each_step() {
        let plan = plan();
        let all = work_after(&plan, 0, false);
        let expected = Work {
            steps: vec![40, 60],
            validations: 6,
            batches: 8,
            step_batches: 10,
            first_use_steps: 6,
            checkpoints: 5,
        };
        assert_eq!(all, expected);
        let later = work_after(&plan, 60, true);
        assert_eq!((later.steps, later.validations, later.step_batches, later.checkpoints), (vec![0, 40], 2, 4, 2));
        assert_eq!(work_after(&plan, 60, false).validations, 3, "that of step 60 is due");
        let end = work_after(&plan, 100, true);
        assert_eq!((end.steps, end.validations, end.checkpoints), (vec![0, 0], 0, 0));
        assert_eq!(forecast(&work_after(&plan, 100, true), &probe(), None).unwrap().seconds, 0.0);
    }

    #[test]
    fn a_probe_is_extrapolated_to_all_batches_of_a_validation() {
        let work = work_after(&plan(), 0, false);
        let found = forecast(&work, &Durations::default(), Some(&probe())).unwrap();
        // Steps 40 + 120, ten batches and six first uses; validations of 8 batches and the rest, and the first use of 8 batches;
        // checkpoints, and half of the validations.
        assert_eq!((found.steps, found.validations, found.checkpoints), (185.0, 6.0 * 4.5 + 8.0 * 0.75, 2.0));
        assert!(found.low < found.seconds && found.seconds < found.high, "{found:?}");
        assert_eq!(forecast(&work, &Durations::default(), None), None, "nothing is known");
    }

    #[test]
    fn what_was_measured_replaces_the_probe_and_scales_later_stages() {
        let measured = Durations {
            steps: vec![each(20, 3.0), each(0, 0.0)],
            validation: each(1, 10.0),
            first_use: each(6, 1.0),
            ..Durations::default()
        };
        let work = work_after(&plan(), 20, true);
        let found = forecast(&work, &measured, Some(&probe())).unwrap();
        // Three times as slow as the probe; the second stage, too.
        assert_eq!(found.steps, 20.0 * 3.0 + 60.0 * 6.0 + 8.0 * 0.1);
        assert_eq!(found.validations, 40.0);
        let without_probe = forecast(&Work { step_batches: 0, ..work }, &measured, None).unwrap();
        assert_eq!(without_probe.steps, 80.0 * 3.0);
    }

    #[test]
    fn a_run_of_validations_names_the_keys_that_shorten_it() {
        let plan = plan();
        let work = work_after(&plan, 0, false);
        let (first_use, validation_first_use) = (MeanDuration::default(), MeanDuration::default());
        let steps = vec![each(3, 0.01), each(3, 0.01)];
        let short = Durations { steps, first_use, validation_first_use, ..probe() };
        let found = forecast(&work, &Durations::default(), Some(&short)).unwrap();
        insta::assert_snapshot!(
            message(&plan, &work, &found),
            @"time: about 31 s (25 s to 36 s): 100 steps 2.0 s, 6 validations 27 s, checkpoints 2.0 s; validations are about 87 % of the run: a smaller `validation.batches` or a larger `validation.every_steps` shortens it"
        );
    }
}
