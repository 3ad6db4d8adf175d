//! What is the learning rate at step n? Pure, so that a resumed run goes on with the same rates.

use crate::settings::sections::Schedule;

/// The steps of a run, and the phases that they fall into. A new phase begins with a new optimiser.
#[derive(Clone, Copy, Debug)]
pub struct Steps<'a> {
    pub count: u64,
    /// The last step of each phase but the last one, ascending.
    pub phase_ends: &'a [u64],
}

impl Steps<'_> {
    /// Steps before the phase of step `step`, and its last step.
    fn phase(&self, step: u64) -> (u64, u64) {
        let before = self.phase_ends.iter().copied().filter(|end| *end < step).max().unwrap_or(0);
        let last = self.phase_ends.iter().copied().find(|end| *end >= step).unwrap_or(self.count);
        (before, last.min(self.count))
    }
}

/// The rate at step `step` (from 1); `base` is the optimiser's.
pub fn learning_rate(schedule: &Schedule, base: f64, step: u64, steps: Steps<'_>) -> f64 {
    let (before, last) = steps.phase(step);
    // Whether the phase is still warming up, and how far.
    let rising = |warmup: u64| (step - before <= warmup).then(|| (step - before) as f64 / warmup as f64);
    match schedule {
        Schedule::Constant(constant) => base * rising(constant.warmup_steps).unwrap_or(1.0),
        Schedule::Cosine(cosine) => {
            let (from, to) = if cosine.each_phase { (before, last) } else { (0, steps.count) };
            let rest = (to - from).saturating_sub(cosine.warmup_steps).max(1) as f64;
            let done = ((step - from).saturating_sub(cosine.warmup_steps) as f64 / rest).min(1.0);
            let share = 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
            let share = cosine.final_share + (1.0 - cosine.final_share) * share;
            base * rising(cosine.warmup_steps).unwrap_or(1.0) * share
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::sections::{Constant, Cosine};

    const WHOLE: Steps<'static> = Steps { count: 110, phase_ends: &[] };
    const TWO: Steps<'static> = Steps { count: 170, phase_ends: &[110] };

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found}, expected {expected}");
    }

    #[test]
    fn constant_stays_after_a_warm_up_in_each_phase() {
        let schedule = Schedule::Constant(Constant::default());
        assert_eq!([1, 50, 110].map(|step| learning_rate(&schedule, 0.1, step, WHOLE)), [0.1; 3]);
        let schedule = Schedule::Constant(Constant { warmup_steps: 4 });
        let found = [1, 4, 5, 110, 111, 114, 170].map(|step| learning_rate(&schedule, 1.0, step, TWO));
        assert_eq!(found, [0.25, 1.0, 1.0, 1.0, 0.25, 1.0, 1.0]);
    }

    #[test]
    fn cosine_rises_linearly_and_ends_at_its_share() {
        let schedule = Schedule::Cosine(Cosine { warmup_steps: 10, final_share: 0.1, ..Cosine::default() });
        let at = |step| learning_rate(&schedule, 1.0, step, WHOLE);
        assert_eq!([1, 10].map(at), [0.1, 1.0]);
        near(at(60), 0.55); // half way down: 0.1 + 0.9 / 2
        near(at(110), 0.1);
    }

    #[test]
    fn a_new_phase_warms_up_again_and_has_a_cosine_of_its_own() {
        let schedule = Schedule::Cosine(Cosine { warmup_steps: 10, final_share: 0.1, ..Cosine::default() });
        let at = |step| learning_rate(&schedule, 1.0, step, TWO);
        for step in 1..=110 {
            assert_eq!(at(step), learning_rate(&schedule, 1.0, step, WHOLE), "the first phase is a run of its own");
        }
        assert_eq!([111, 120].map(at), [0.1, 1.0]);
        near(at(145), 0.55);
        near(at(170), 0.1);
    }

    #[test]
    fn one_cosine_over_all_phases_still_warms_up_each_new_optimiser() {
        let cosine = Cosine { warmup_steps: 10, final_share: 0.0, each_phase: false };
        let schedule = Schedule::Cosine(cosine);
        let at = |step| learning_rate(&schedule, 1.0, step, TWO);
        let whole = |step| learning_rate(&schedule, 1.0, step, Steps { phase_ends: &[], ..TWO });
        for step in [1, 10, 60, 110, 120, 121, 170] {
            near(at(step), whole(step));
        }
        near(at(111), 0.1 * whole(111));
        near(at(115), 0.5 * whole(115));
    }

    #[test]
    fn a_phase_shorter_than_its_warm_up_ends_while_the_rate_rises() {
        let schedule = Schedule::Cosine(Cosine { warmup_steps: 10, ..Cosine::default() });
        let steps = Steps { count: 40, phase_ends: &[3] };
        let at = |step| learning_rate(&schedule, 1.0, step, steps);
        near(at(3), 0.3);
        near(at(4), 0.1);
        assert!((1..=40).all(|step| at(step).is_finite() && at(step) >= 0.0));
    }
}
