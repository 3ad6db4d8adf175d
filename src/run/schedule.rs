//! What is the learning rate at step n? Pure.

use crate::experiment::sections::Schedule;

/// The rate at step `step` (from 1) of `steps`; `base` is the optimiser's.
pub fn learning_rate(schedule: &Schedule, base: f64, step: u64, steps: u64) -> f64 {
    match schedule {
        Schedule::Constant(_) => base,
        Schedule::Cosine(cosine) => {
            if step <= cosine.warmup_steps {
                return base * step as f64 / cosine.warmup_steps as f64;
            }
            let rest = steps.saturating_sub(cosine.warmup_steps).max(1) as f64;
            let done = ((step - cosine.warmup_steps) as f64 / rest).min(1.0);
            let share = 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
            base * (cosine.final_share + (1.0 - cosine.final_share) * share)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::sections::{Constant, Cosine};

    #[test]
    fn constant_stays() {
        let schedule = Schedule::Constant(Constant::default());
        assert_eq!([1, 50, 100].map(|step| learning_rate(&schedule, 0.1, step, 100)), [0.1; 3]);
    }

    #[test]
    fn cosine_rises_linearly_and_ends_at_its_share() {
        let schedule = Schedule::Cosine(Cosine { warmup_steps: 10, final_share: 0.1 });
        let at = |step| learning_rate(&schedule, 1.0, step, 110);
        assert_eq!(at(1), 0.1);
        assert_eq!(at(10), 1.0);
        assert!((at(60) - 0.55).abs() < 1e-12, "half way down: 0.1 + 0.9 / 2, found {}", at(60));
        assert!((at(110) - 0.1).abs() < 1e-12);
    }
}
