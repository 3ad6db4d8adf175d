//! The kinds of trace that once got a wrong answer, and what is said of them. Rates of error are in `benches/verdict`.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::floors::floors;

const MIB: f64 = 1024.0 * 1024.0;

fn normal(random: &mut impl Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}

/// Judges `steps` samples from `first` on, in MiB, with Gaussian noise of so many MiB.
fn judged(first: u64, steps: u64, noise: f64, seed: u64, value: impl Fn(u64) -> f64) -> Findings {
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let points = (0..steps).map(|step| (first + step, ((value(step) + noise * normal(random)) * MIB).round()));
    judge(&floors(points, 0), Series::InUse, BYTES)
}

/// Findings on eight runs of different noise.
fn always(steps: u64, noise: f64, wanted: &[Judgement], value: impl Fn(u64) -> f64 + Copy) -> Vec<Findings> {
    let runs = (0..8).map(|seed| {
        let found = judged(0, steps, noise, seed, value);
        assert!(wanted.contains(&found.verdict), "seed {seed}: {found:?}");
        found
    });
    runs.collect()
}

#[test]
fn a_leak_of_a_mebibyte_a_step_is_growing_with_its_slope_from_the_first_step_on() {
    for noise in [0.0, 0.5, 8.0] {
        for found in always(1200, noise, &[Judgement::Growing], |step| 2000.0 + step as f64) {
            let slope = found.slope.unwrap() / MIB;
            assert!((slope - 1.0).abs() < 0.1, "{slope} MiB a step");
            assert!(found.since.unwrap() < 120, "{found:?}");
        }
    }
}

#[test]
fn what_still_rises_at_half_its_speed_has_not_come_to_rest() {
    let bent = |step: u64| if step < 600 { step as f64 } else { 600.0 + 0.5 * (step - 600) as f64 };
    always(1200, 0.5, &[Judgement::Slowing], bent);
    let steeper = |step: u64| if step < 600 { 2.0 * step as f64 } else { 1200.0 + 0.9 * (step - 600) as f64 };
    always(1200, 15.0, &[Judgement::Slowing], steeper);
}

#[test]
fn a_leak_that_begins_late_is_growing_and_dated() {
    for noise in [0.0, 0.5, 8.0] {
        let late = |step: u64| 500.0 + step.saturating_sub(744) as f64;
        for found in always(1200, noise, &[Judgement::Growing], late) {
            let since = found.since.unwrap();
            assert!((624..=864).contains(&since), "since {since}, truly 744");
        }
    }
}

#[test]
fn a_run_of_many_epochs_is_judged_whole() {
    always(20_000, 0.5, &[Judgement::Growing], |step| (step / 100) as f64 * 0.6);
    always(20_000, 0.5, &[Judgement::Growing], |step| (step / 2_500) as f64 * 100.0);
    always(20_000, 0.5, &[Judgement::Growing], |step| (step / 1_200) as f64 * 50.0);
}

#[test]
fn a_log_that_begins_at_a_late_step_is_judged_from_there() {
    let found = judged(1_000_001, 1200, 0.5, 1, |step| 100.0 + 0.5 * step as f64);
    assert_eq!((found.verdict, found.since), (Judgement::Growing, Some(1_000_001)));
}

#[test]
fn two_hundred_mebibytes_of_growth_are_seen_beside_forty_gibibytes() {
    always(1200, 0.5, &[Judgement::Growing], |step| 40_960.0 + 190.0 * step as f64 / 1200.0);
}

#[test]
fn a_ramp_in_the_first_steps_of_a_long_run_is_its_start() {
    always(40_000, 0.5, &[Judgement::Bounded], |step| (step as f64).min(200.0));
}

#[test]
fn teeth_of_a_period_that_nobody_declared_are_bounded() {
    always(1200, 0.5, &[Judgement::Bounded], |step| 2.0 * (step % 100) as f64);
    always(2400, 0.5, &[Judgement::Bounded], |step| 4.0 * (step % 37) as f64);
}

#[test]
fn what_wanders_and_comes_back_does_not_grow() {
    let mut suspect = 0;
    for seed in 0..20 {
        let random = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut wander = 0.0;
        let points: Vec<(u64, f64)> = (0..1200)
            .map(|step| {
                wander = 0.95 * wander + 20.0 * (1.0 - 0.95f64.powi(2)).sqrt() * normal(random);
                (step, (1000.0 + wander) * MIB)
            })
            .collect();
        let found = judge(&floors(points.into_iter(), 0), Series::InUse, BYTES);
        assert!(matches!(found.verdict, Judgement::Bounded | Judgement::Suspect), "seed {seed}: {found:?}");
        suspect += u32::from(found.verdict == Judgement::Suspect);
    }
    assert!(suspect <= 2, "{suspect} of 20");
}

#[test]
fn rest_is_told_by_how_it_was_reached() {
    always(1200, 0.5, &[Judgement::Bounded], |_| 100.0);
    always(1200, 0.5, &[Judgement::Stepped], |step| if step < 450 { 100.0 } else { 200.0 });
    always(1200, 0.5, &[Judgement::GrewThenFlat], |step| 100.0 + 100.0 * (step as f64 / 600.0).min(1.0));
    // Flat for too short a time to be called so.
    always(1200, 0.5, &[Judgement::Suspect], |step| 100.0 + 300.0 * (step as f64 / 960.0).min(1.0));
}

#[test]
fn a_rise_that_lasted_to_the_end_never_came_to_rest() {
    for time in [0.2, 0.3, 0.5, 0.75] {
        let filling = |step: u64| 300.0 * (1.0 - (-(step as f64) / (time * 1200.0)).exp());
        for found in always(1200, 2.0, &[Judgement::Slowing, Judgement::Suspect, Judgement::GrewThenFlat], filling) {
            let late = filling(1199) - filling(800);
            assert!(found.verdict != Judgement::GrewThenFlat || late < 16.0, "{late} MiB in the last third: {found:?}");
        }
    }
}

#[test]
fn what_is_kept_beyond_what_is_in_use_is_retained() {
    let points = (0..1200u64).map(|step| (step, step as f64 * MIB));
    assert_eq!(judge(&floors(points, 0), Series::Beyond, BYTES).verdict, Judgement::Retained);
}

#[test]
fn a_short_run_says_nothing_or_raises_a_suspicion_and_how_long_it_should_be() {
    let short = judged(0, 60, 0.0, 0, |_| 100.0);
    assert_eq!((short.verdict, short.more_steps), (Judgement::Inconclusive, Some(31)));
    assert_eq!(judged(0, 85, 0.0, 0, |step| step as f64).verdict, Judgement::Suspect);
}
