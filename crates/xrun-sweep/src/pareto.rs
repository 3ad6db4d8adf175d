//! Pareto front of speed and memory.

use std::cmp::Ordering;

use xrun_results::noise::{Change, Noise, Repeats};

/// Relative difference of speed or memory below which two trials are equal: less than 1 % of the level is no growth either.
pub const RESOLUTION: f64 = 0.01;

/// Speed (higher is better) and memory (lower is better) of the repeats of a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeedAndMemory {
    /// Steps a second.
    pub speed: Repeats,
    /// Bytes.
    pub memory: Repeats,
}

/// Marks the trials that no other one dominates: none is as good in both and better in one. `None` is never marked. Only
/// differences beyond the noise of speed and memory and of at least [`RESOLUTION`] count; none is marked where there is no
/// difference at all.
pub fn pareto_front(trials: &[Option<SpeedAndMemory>], noises: (Option<Noise>, Option<Noise>)) -> Vec<bool> {
    let compare = |a: &SpeedAndMemory, b: &SpeedAndMemory| {
        (compared(&a.speed, &b.speed, noises.0), compared(&b.memory, &a.memory, noises.1))
    };
    let dominates = |a: &SpeedAndMemory, b: &SpeedAndMemory| {
        let (faster, smaller) = compare(a, b);
        faster.is_ge() && smaller.is_ge() && (faster.is_gt() || smaller.is_gt())
    };
    let placed = || trials.iter().flatten();
    if !placed().any(|a| placed().any(|b| compare(a, b) != (Ordering::Equal, Ordering::Equal))) {
        return vec![false; trials.len()];
    }
    let on = |trial: &Option<SpeedAndMemory>| {
        trial.as_ref().is_some_and(|trial| !placed().any(|other| dominates(other, trial)))
    };
    trials.iter().map(on).collect()
}

/// Order of two measurements; equal without a difference that counts.
fn compared(a: &Repeats, b: &Repeats, noise: Option<Noise>) -> Ordering {
    let counts = |change: &Change| change.within_noise != Some(true) && change.change.abs() >= RESOLUTION;
    match Change::paired(a, b, noise).filter(counts) {
        Some(change) => change.change.total_cmp(&0.0),
        None => Ordering::Equal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn placed(speed: f64, memory: f64) -> Option<SpeedAndMemory> {
        let twice = |value: f64| Repeats::from([(1, value), (2, value)]);
        Some(SpeedAndMemory { speed: twice(speed), memory: twice(memory) })
    }

    #[test]
    fn differences_within_noise_put_no_trial_on_the_front() {
        let noise = Noise { deviation: 0.05, degrees_of_freedom: 10 };
        // 2.228 * 0.05 = 0.111: 10 % apart is within noise, 30 % is not.
        let near = [placed(1.0, 100.0), placed(1.1, 95.0), placed(1.05, 104.0)];
        assert_eq!(pareto_front(&near, (None, None)), [false, true, false]);
        assert_eq!(pareto_front(&near, (Some(noise), Some(noise))), [false; 3]);
        let far = [placed(1.0, 100.0), placed(1.3, 95.0), placed(1.28, 104.0), None];
        assert_eq!(pareto_front(&far, (Some(noise), Some(noise))), [false, true, true, false]);
    }

    #[test]
    fn differences_below_the_resolution_are_ties() {
        // 4 KiB of 26 MiB, and half a percent of speed.
        let trials = [placed(1.0, 26.0), placed(1.005, 26.004), placed(1.0, 26.1)];
        assert_eq!(pareto_front(&trials, (None, None)), [false; 3]);
        let trials = [placed(1.0, 26.0), placed(1.005, 26.004), placed(1.0, 27.0)];
        assert_eq!(pareto_front(&trials, (None, None)), [true, true, false]);
    }

    proptest! {
        #[test]
        fn no_trial_of_the_front_is_dominated_and_every_other_is(
            numbers in proptest::collection::vec(proptest::option::weighted(0.9, (1u8..9, 1u8..9)), 0..40),
        ) {
            let trials: Vec<Option<SpeedAndMemory>> = numbers
                .iter()
                .map(|trial| trial.and_then(|(speed, memory)| placed(f64::from(speed), f64::from(memory))))
                .collect();
            let differ = numbers.iter().flatten().any(|one| Some(*one) != numbers.iter().flatten().next().copied());
            let dominated = |trial: (u8, u8)| numbers.iter().flatten().any(|other| {
                other.0 >= trial.0 && other.1 <= trial.1 && *other != trial
            });
            for (trial, on) in numbers.iter().zip(pareto_front(&trials, (None, None))) {
                prop_assert_eq!(on, differ && trial.is_some_and(|trial| !dominated(trial)));
            }
        }
    }
}
