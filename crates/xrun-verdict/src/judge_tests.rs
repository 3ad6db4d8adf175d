//! Kinds of trace that were once misjudged, with their judgements. Error rates are measured in `benches/leakbench`.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::window_minima::window_minima;

const MIB: f64 = 1024.0 * 1024.0;

fn normal(random: &mut impl Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}

/// Judges `steps` samples from step `first` on, in MiB, with Gaussian noise of `noise` MiB.
fn judged(first: u64, steps: u64, noise: f64, seed: u64, value: impl Fn(u64) -> f64) -> Findings {
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let points = (0..steps).map(|step| (first + step, ((value(step) + noise * normal(random)) * MIB).round()));
    judge(&window_minima(points, 0), SeriesKind::InUse, crate::BYTES, 0)
}

/// Findings on eight runs of different noise, each with one of the expected judgements.
fn always(steps: u64, noise: f64, expected: &[VerdictWord], value: impl Fn(u64) -> f64 + Copy) -> Vec<Findings> {
    let runs = (0..8).map(|seed| {
        let found = judged(0, steps, noise, seed, value);
        assert!(expected.contains(&found.verdict), "seed {seed}: {found:?}");
        found
    });
    runs.collect()
}

#[test]
fn a_leak_of_a_mebibyte_a_step_is_growing_with_its_slope_from_the_first_step_on() {
    for noise in [0.0, 0.5, 8.0] {
        for found in always(1200, noise, &[VerdictWord::Growing], |step| 2000.0 + step as f64) {
            let slope = found.slope.unwrap() / MIB;
            assert!((slope - 1.0).abs() < 0.1, "{slope} MiB a step");
            assert!(found.since.unwrap() < 120, "{found:?}");
        }
    }
}

#[test]
fn a_rise_at_half_its_speed_is_slowing() {
    let bent = |step: u64| if step < 600 { step as f64 } else { 600.0 + 0.5 * (step - 600) as f64 };
    always(1200, 0.5, &[VerdictWord::Slowing], bent);
    let steeper = |step: u64| if step < 600 { 2.0 * step as f64 } else { 1200.0 + 0.9 * (step - 600) as f64 };
    always(1200, 15.0, &[VerdictWord::Slowing], steeper);
}

#[test]
fn a_late_leak_is_growing_since_its_onset() {
    for noise in [0.0, 0.5, 8.0] {
        let late = |step: u64| 500.0 + step.saturating_sub(744) as f64;
        for found in always(1200, noise, &[VerdictWord::Growing], late) {
            let since = found.since.unwrap();
            assert!((624..=864).contains(&since), "since {since}, truly 744");
        }
    }
}

/// A heap with four to eight jumps of 14 to 16 KiB under noise: the jumps are the growth, and the onset was dated by the noise.
#[test]
fn growing_is_said_only_of_a_rate_whose_interval_excludes_zero() {
    const KIB: f64 = 1024.0;
    let mut growing = 0;
    for seed in 0..120 {
        let random = &mut ChaCha8Rng::seed_from_u64(seed);
        let jumps: Vec<(u64, f64)> =
            (0..4 + seed % 5).map(|_| (random.random_range(0..400), random.random_range(14.0..16.0))).collect();
        let level = |step: u64| jumps.iter().filter(|(at, _)| *at <= step).map(|(_, height)| height).sum::<f64>();
        let points: Vec<(u64, f64)> =
            (0..400).map(|step| (step, (5000.0 + level(step) + 3.0 * normal(random)) * KIB)).collect();
        let thresholds = Thresholds::of_growth(32.0 * KIB);
        let found = judge(&window_minima(points.into_iter(), 0), SeriesKind::InUse, thresholds, 0);
        if found.verdict == VerdictWord::Growing {
            growing += 1;
            assert!(found.slope_low.unwrap() > 0.0, "seed {seed}: {found:?}");
        }
    }
    assert!(growing > 20, "{growing} of 120");
}

#[test]
fn a_long_run_is_judged_as_a_whole() {
    always(20_000, 0.5, &[VerdictWord::Growing], |step| (step / 100) as f64 * 0.6);
    always(20_000, 0.5, &[VerdictWord::Growing], |step| (step / 2_500) as f64 * 100.0);
    always(20_000, 0.5, &[VerdictWord::Growing], |step| (step / 1_200) as f64 * 50.0);
}

#[test]
fn growth_of_200_mib_is_found_in_40_gib() {
    always(1200, 0.5, &[VerdictWord::Growing], |step| 40_960.0 + 190.0 * step as f64 / 1200.0);
}

#[test]
fn a_ramp_within_the_warm_up_is_bounded() {
    always(40_000, 0.5, &[VerdictWord::Bounded], |step| (step as f64).min(200.0));
}

#[test]
fn a_sawtooth_of_undeclared_period_is_bounded() {
    always(1200, 0.5, &[VerdictWord::Bounded], |step| 2.0 * (step % 100) as f64);
    always(2400, 0.5, &[VerdictWord::Bounded], |step| 4.0 * (step % 37) as f64);
}

#[test]
fn autocorrelated_noise_is_not_growing() {
    let mut suspect = 0;
    for seed in 0..20 {
        let random = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut offset = 0.0;
        let points: Vec<(u64, f64)> = (0..1200)
            .map(|step| {
                offset = 0.95 * offset + 20.0 * (1.0 - 0.95f64.powi(2)).sqrt() * normal(random);
                (step, (1000.0 + offset) * MIB)
            })
            .collect();
        let found = judge(&window_minima(points.into_iter(), 0), SeriesKind::InUse, crate::BYTES, 0);
        assert!(
            matches!(found.verdict, VerdictWord::Bounded | VerdictWord::NoGrowthFound | VerdictWord::Suspect),
            "seed {seed}: {found:?}"
        );
        suspect += u32::from(found.verdict == VerdictWord::Suspect);
    }
    assert!(suspect <= 2, "{suspect} of 20");
}

#[test]
fn a_flat_series_is_judged_by_how_it_became_flat() {
    always(1200, 0.5, &[VerdictWord::Bounded], |_| 100.0);
    always(1200, 0.5, &[VerdictWord::Stepped], |step| if step < 450 { 100.0 } else { 200.0 });
    always(1200, 0.5, &[VerdictWord::GrewThenFlat], |step| 100.0 + 100.0 * (step as f64 / 600.0).min(1.0));
    // Flat for too short a time.
    always(1200, 0.5, &[VerdictWord::Suspect], |step| 100.0 + 300.0 * (step as f64 / 960.0).min(1.0));
}

#[test]
fn a_saturating_rise_is_grew_then_flat_only_if_its_last_third_is_flat() {
    for time in [0.2, 0.3, 0.5, 0.75] {
        let filling = |step: u64| 300.0 * (1.0 - (-(step as f64) / (time * 1200.0)).exp());
        for found in
            always(1200, 2.0, &[VerdictWord::Slowing, VerdictWord::Suspect, VerdictWord::GrewThenFlat], filling)
        {
            let late = filling(1199) - filling(800);
            assert!(
                found.verdict != VerdictWord::GrewThenFlat || late < 16.0,
                "{late} MiB in the last third: {found:?}"
            );
        }
    }
}

#[test]
fn a_short_run_is_inconclusive_or_suspect_and_says_how_many_steps_are_missing() {
    let short = judged(0, 60, 0.0, 0, |_| 100.0);
    assert_eq!((short.verdict, short.more_steps), (VerdictWord::Inconclusive, Some(31)));
    assert_eq!(judged(0, 85, 0.0, 0, |step| step as f64).verdict, VerdictWord::Suspect);
}

#[test]
fn a_leak_after_a_release_is_growing_and_a_recovery_from_a_dip_is_not() {
    for noise in [0.0, 2.0] {
        let after = |step: u64| if step < 400 { 2000.0 } else { 500.0 + 0.4 * (step - 400) as f64 };
        for found in always(1200, noise, &[VerdictWord::Growing], after) {
            assert!((380..=440).contains(&found.since.unwrap()), "{found:?}");
        }
        let dip = |step: u64| match step.checked_sub(500) {
            Some(after) => 2000.0 - 300.0 * (-(after as f64) / 40.0).exp(),
            None => 2000.0,
        };
        let calm = [VerdictWord::Bounded, VerdictWord::NoGrowthFound];
        always(1200, noise, &calm, dip);
    }
}

#[test]
fn a_table_that_doubles_is_growing_and_stages_that_end_are_not() {
    let table = |step: u64| 500.0 + 2f64.powf((1.0 + step as f64 * 0.6).log2().ceil()) / 2.0;
    always(1200, 0.5, &[VerdictWord::Growing], table);
    let stages = |step: u64| 500.0 + 80.0 * (step / 150).min(4) as f64;
    always(1200, 0.5, &[VerdictWord::GrewThenFlat, VerdictWord::Stepped], stages);
}

#[test]
fn a_table_that_doubled_and_rests_for_long_is_suspect() {
    let table = |step: u64| 500.0 + 2f64.powf((1.0 + step as f64 * 0.75).log2().ceil()) / 2.0;
    always(1200, 0.5, &[VerdictWord::Suspect], table);
}

#[test]
fn the_highest_so_far_that_rises_just_after_the_warm_up_has_stepped() {
    let highest = |step: u64| 38_000.0 + 10_000.0 * ((step as f64 - 60.0) / 160.0).clamp(0.0, 1.0);
    always(1600, 0.0, &[VerdictWord::Stepped], highest);
}

#[test]
fn a_dip_within_a_rest_is_no_rise() {
    for begin in [400, 700, 900, 1060] {
        let rest = |step: u64| 500.0 + 400.0 * (step as f64 / 250.0).min(1.0);
        let dip = |step: u64| rest(step) - if (begin..begin + 60).contains(&step) { 300.0 } else { 0.0 };
        let calm = [VerdictWord::Bounded, VerdictWord::NoGrowthFound, VerdictWord::GrewThenFlat, VerdictWord::Stepped];
        always(1200, 1.0, &calm, dip);
    }
}

#[test]
fn a_short_rest_is_suspect_and_has_its_begin() {
    for full in [960.0, 1130.0] {
        let filling = |step: u64| 500.0 + 600.0 * (step as f64 / full).min(1.0);
        for found in always(1200, 1.0, &[VerdictWord::Suspect], filling) {
            let rest = found.flat_since.unwrap() as f64;
            assert!((rest - full).abs() < 50.0, "{found:?}");
            assert!(found.more_steps.is_some_and(|more| more < 600), "{found:?}");
        }
    }
}
