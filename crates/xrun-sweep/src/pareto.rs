//! Pareto front of speed and memory.

use std::cmp::Ordering;

use xrun_core::task::metric::student_t_quantile;
use xrun_results::noise::Noise;

/// Median speed and memory of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialMedians {
    /// Speed; higher is better.
    pub speed: f64,
    /// Memory; lower is better.
    pub memory: f64,
    /// Numbers of runs whose speed and whose memory was measured.
    pub counts: (usize, usize),
}

/// Marks the trials that no other one dominates: none is as good in both and better in one. `None` is never marked. With the
/// noise of speed and memory, only differences beyond it count, and none is marked where there is no difference at all.
pub fn pareto_front(trials: &[Option<TrialMedians>], noises: Option<(Noise, Noise)>) -> Vec<bool> {
    let compare = |a: &TrialMedians, b: &TrialMedians| {
        let faster = compared(a.speed, b.speed, noises.map(|(speed, _)| (speed, a.counts.0, b.counts.0)));
        let smaller = compared(b.memory, a.memory, noises.map(|(_, memory)| (memory, a.counts.1, b.counts.1)));
        (faster, smaller)
    };
    let dominates = |a: &TrialMedians, b: &TrialMedians| {
        let (faster, smaller) = compare(a, b);
        faster.is_ge() && smaller.is_ge() && (faster.is_gt() || smaller.is_gt())
    };
    let placed = || trials.iter().flatten();
    let differ = || placed().any(|a| placed().any(|b| compare(a, b) != (Ordering::Equal, Ordering::Equal)));
    if noises.is_some() && !differ() {
        return vec![false; trials.len()];
    }
    let on = |trial: &Option<TrialMedians>| trial.is_some_and(|trial| !placed().any(|other| dominates(other, &trial)));
    trials.iter().map(on).collect()
}

/// Order of two positive values; equal if they differ within noise (95 %), given with the numbers of values.
fn compared(a: f64, b: f64, noise: Option<(Noise, usize, usize)>) -> Ordering {
    let within = noise.is_some_and(|(noise, here, there)| {
        let counts = 1.0 / here.max(1) as f64 + 1.0 / there.max(1) as f64;
        let half = student_t_quantile(noise.degrees_of_freedom) * noise.deviation * counts.sqrt();
        (a.ln() - b.ln()).abs() <= half
    });
    if within { Ordering::Equal } else { a.total_cmp(&b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn placed(speed: f64, memory: f64) -> Option<TrialMedians> {
        Some(TrialMedians { speed, memory, counts: (2, 2) })
    }

    #[test]
    fn differences_within_noise_put_no_trial_on_the_front() {
        let noise = Noise { deviation: 0.05, degrees_of_freedom: 10 };
        // 2.228 * 0.05 = 0.111: 10 % apart is within noise, 30 % is not.
        let near = [placed(1.0, 100.0), placed(1.1, 95.0), placed(1.05, 104.0)];
        assert_eq!(pareto_front(&near, None), [false, true, false]);
        assert_eq!(pareto_front(&near, Some((noise, noise))), [false; 3]);
        let far = [placed(1.0, 100.0), placed(1.3, 95.0), placed(1.28, 104.0), None];
        assert_eq!(pareto_front(&far, Some((noise, noise))), [false, true, true, false]);
    }

    proptest! {
        #[test]
        fn no_trial_of_the_front_is_dominated_and_every_other_is(
            trials in proptest::collection::vec(proptest::option::weighted(0.9, (0u8..8, 0u8..8)), 0..40),
        ) {
            let trials: Vec<Option<TrialMedians>> = trials
                .into_iter()
                .map(|trial| trial.and_then(|(speed, memory)| placed(f64::from(speed), f64::from(memory))))
                .collect();
            let dominated = |trial: TrialMedians| trials.iter().flatten().any(|other| {
                other.speed >= trial.speed && other.memory <= trial.memory && *other != trial
            });
            for (trial, on) in trials.iter().zip(pareto_front(&trials, None)) {
                prop_assert_eq!(on, trial.is_some_and(|trial| !dominated(trial)));
            }
        }
    }
}
