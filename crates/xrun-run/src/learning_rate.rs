//! Learning rate at a step. A pure function: a resumed run continues with the same rates.

use xrun_core::settings::sections::Schedule;

/// Steps of a run and its stages. A new stage starts with a new optimiser.
#[derive(Clone, Copy, Debug)]
pub struct Steps<'a> {
    /// Optimiser steps of the whole run.
    pub count: u64,
    /// Last step of each stage except the final one, ascending.
    pub stage_ends: &'a [u64],
}

impl Steps<'_> {
    /// Number of steps before the stage of step `step`, and the last step of that stage.
    fn stage(&self, step: u64) -> (u64, u64) {
        let before = self.stage_ends.iter().copied().filter(|end| *end < step).max().unwrap_or(0);
        let last = self.stage_ends.iter().copied().find(|end| *end >= step).unwrap_or(self.count);
        (before, last.min(self.count))
    }
}

/// Learning rate at step `step` (from 1); `base` is that of the optimiser.
pub fn learning_rate(schedule: &Schedule, base: f64, step: u64, steps: Steps<'_>) -> f64 {
    let (before, last) = steps.stage(step);
    // Fraction of the warm-up that is done, while the stage warms up.
    let warming_up = |warmup: u64| (step - before <= warmup).then(|| (step - before) as f64 / warmup as f64);
    let span = |per_stage: bool| if per_stage { (before, last) } else { (0, steps.count) };
    // Fraction of the steps after the warm-up that is done.
    let progress = |per_stage: bool, warmup: u64| {
        let (from, to) = span(per_stage);
        let rest = (to - from).saturating_sub(warmup).max(1) as f64;
        ((step - from).saturating_sub(warmup) as f64 / rest).min(1.0)
    };
    let warmup = warming_up(schedule.warmup_steps()).unwrap_or(1.0);
    let decay_to = |fraction: f64, progress: f64| 1.0 - (1.0 - fraction) * progress;
    match schedule {
        Schedule::Constant(_) => base * warmup,
        Schedule::Linear(linear) => {
            base * warmup * decay_to(linear.final_lr_fraction, progress(linear.per_stage, linear.warmup_steps))
        }
        Schedule::WarmUpStableDecay(stable) => {
            let (from, to) = span(stable.per_stage);
            let decay = (to - from) as f64 * stable.decay_fraction;
            let decayed = (step as f64 - (to as f64 - decay)) / decay.max(f64::MIN_POSITIVE);
            base * warmup * decay_to(stable.final_lr_fraction, if decay > 0.0 { decayed.clamp(0.0, 1.0) } else { 0.0 })
        }
        Schedule::Cosine(cosine) => {
            let progress = progress(cosine.per_stage, cosine.warmup_steps);
            let fraction = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
            let fraction = cosine.final_lr_fraction + (1.0 - cosine.final_lr_fraction) * fraction;
            base * warmup * fraction
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::settings::sections::{Constant, Cosine, Linear, WarmUpStableDecay};

    const WHOLE: Steps<'static> = Steps { count: 110, stage_ends: &[] };
    const TWO: Steps<'static> = Steps { count: 170, stage_ends: &[110] };

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found}, expected {expected}");
    }

    #[test]
    fn constant_stays_after_a_warm_up_in_each_stage() {
        let schedule = Schedule::Constant(Constant::default());
        assert_eq!([1, 50, 110].map(|step| learning_rate(&schedule, 0.1, step, WHOLE)), [0.1; 3]);
        let schedule = Schedule::Constant(Constant { warmup_steps: 4 });
        let found = [1, 4, 5, 110, 111, 114, 170].map(|step| learning_rate(&schedule, 1.0, step, TWO));
        assert_eq!(found, [0.25, 1.0, 1.0, 1.0, 0.25, 1.0, 1.0]);
    }

    #[test]
    fn cosine_and_linear_warm_up_and_end_at_their_final_lr_fraction() {
        let (warmup_steps, final_lr_fraction) = (10, 0.1);
        for schedule in [
            Schedule::Cosine(Cosine { warmup_steps, final_lr_fraction, ..Cosine::default() }),
            Schedule::Linear(Linear { warmup_steps, final_lr_fraction, ..Linear::default() }),
        ] {
            let at = |step| learning_rate(&schedule, 1.0, step, WHOLE);
            assert_eq!([1, 10].map(at), [0.1, 1.0]);
            near(at(60), 0.55); // half of the decay: 0.1 + 0.9 / 2
            near(at(110), 0.1);
            near(learning_rate(&schedule, 1.0, 170, TWO), 0.1);
        }
    }

    #[test]
    fn a_stable_rate_decays_in_the_last_fraction_of_the_steps() {
        let stable =
            WarmUpStableDecay { warmup_steps: 10, decay_fraction: 0.2, final_lr_fraction: 0.5, per_stage: true };
        let schedule = Schedule::WarmUpStableDecay(stable.clone());
        let at = |step| learning_rate(&schedule, 2.0, step, WHOLE);
        assert_eq!([5, 10, 50, 88].map(at), [1.0, 2.0, 2.0, 2.0]);
        near(at(99), 1.5); // half of the last 22 steps
        near(at(110), 1.0);
        let never = Schedule::WarmUpStableDecay(WarmUpStableDecay { decay_fraction: 0.0, ..stable.clone() });
        near(learning_rate(&never, 2.0, 110, WHOLE), 2.0);
        let once = Schedule::WarmUpStableDecay(WarmUpStableDecay { per_stage: false, ..stable });
        near(learning_rate(&once, 2.0, 110, TWO), 2.0);
        near(learning_rate(&once, 2.0, 170, TWO), 1.0);
    }

    #[test]
    fn a_new_stage_warms_up_again_and_has_a_cosine_of_its_own() {
        let schedule = Schedule::Cosine(Cosine { warmup_steps: 10, final_lr_fraction: 0.1, ..Cosine::default() });
        let at = |step| learning_rate(&schedule, 1.0, step, TWO);
        for step in 1..=110 {
            assert_eq!(at(step), learning_rate(&schedule, 1.0, step, WHOLE), "the first stage is a run of its own");
        }
        assert_eq!([111, 120].map(at), [0.1, 1.0]);
        near(at(145), 0.55);
        near(at(170), 0.1);
    }

    #[test]
    fn one_cosine_over_all_stages_still_warms_up_each_new_optimiser() {
        let cosine = Cosine { warmup_steps: 10, final_lr_fraction: 0.0, per_stage: false };
        let schedule = Schedule::Cosine(cosine);
        let at = |step| learning_rate(&schedule, 1.0, step, TWO);
        let whole = |step| learning_rate(&schedule, 1.0, step, Steps { stage_ends: &[], ..TWO });
        for step in [1, 10, 60, 110, 120, 121, 170] {
            near(at(step), whole(step));
        }
        near(at(111), 0.1 * whole(111));
        near(at(115), 0.5 * whole(115));
    }

    #[test]
    fn a_stage_shorter_than_its_warm_up_ends_during_the_warm_up() {
        let schedule = Schedule::Cosine(Cosine { warmup_steps: 10, ..Cosine::default() });
        let steps = Steps { count: 40, stage_ends: &[3] };
        let at = |step| learning_rate(&schedule, 1.0, step, steps);
        near(at(3), 0.3);
        near(at(4), 0.1);
        assert!((1..=40).all(|step| at(step).is_finite() && at(step) >= 0.0));
    }
}
