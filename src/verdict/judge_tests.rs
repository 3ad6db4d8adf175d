//! Simulated runs without and with leaks: are the first never called growing, and the second always?

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::floors::{Windows, floors};
use super::*;

const MIB: f64 = 1024.0 * 1024.0;
const STEPS: u64 = 1200;
const WINDOWS: Windows = Windows { warm_up: 100, length: 50 };

/// What memory does besides leaking.
#[derive(Clone, Copy, Debug)]
enum Habit {
    Flat,
    /// Climbs 4 MiB a step and falls back every 50 steps.
    Saw,
    /// The same with periods from 20 to 80 that nobody declared.
    HiddenSaw,
    /// 300 MiB more from some step on.
    Step,
    /// 300 MiB more, slower and slower.
    SlowWarmUp,
    /// An allocator that keeps 60 % of the largest of heavy-tailed peaks.
    Ratchet,
    /// Batches of several sizes.
    Batches,
}

const HABITS: [Habit; 7] =
    [Habit::Flat, Habit::Saw, Habit::HiddenSaw, Habit::Step, Habit::SlowWarmUp, Habit::Ratchet, Habit::Batches];

fn normal(random: &mut impl Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}

/// Samples of one run in bytes, in units of 256 KiB; `leak` in bytes a step.
fn run(habit: Habit, leak: f64, seed: u64) -> Vec<(u64, f64)> {
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let phase = random.random_range(0..50u64);
    let step_at = random.random_range(300..600u64);
    let (mut reset_in, mut climbed, mut high_water) = (random.random_range(20..80i64), 0.0, 0.0f64);
    let mut points = Vec::new();
    for step in 0..STEPS {
        let t = step as f64;
        let mut value = 2000.0 + 0.5 * normal(random) + 500.0 * (1.0 - (-t / 8.0).exp());
        match habit {
            Habit::Flat => {}
            Habit::Saw => value += 4.0 * ((step + phase) % 50) as f64,
            Habit::HiddenSaw => {
                climbed += 4.0;
                if reset_in <= 0 {
                    (climbed, reset_in) = (0.0, random.random_range(20..80));
                }
                reset_in -= 1;
                value += climbed;
            }
            Habit::Step => value += if step >= step_at { 300.0 } else { 0.0 },
            Habit::SlowWarmUp => value += 300.0 * (1.0 - (-t / 120.0).exp()),
            Habit::Ratchet => {
                let peak = 60.0 * (1.0 - random.random::<f64>()).powf(-0.5);
                high_water = high_water.max(peak.min(800.0));
                value += 0.6 * high_water;
            }
            Habit::Batches => {
                value += [0.0, 0.0, 0.0, 64.0, 128.0][random.random_range(0..5usize)] + 8.0 * normal(random);
            }
        }
        let bytes = value * MIB + leak * t;
        points.push((step + 1, (bytes / (0.25 * MIB)).round() * 0.25 * MIB));
    }
    points
}

fn judged(habit: Habit, leak: f64, seed: u64) -> Findings {
    judge(&floors(run(habit, leak, seed).into_iter(), WINDOWS), Series::InUse, BYTES)
}

#[test]
fn of_1400_runs_without_a_leak_none_is_called_growing() {
    for habit in HABITS {
        let growing = (0..200).filter(|seed| judged(habit, 0.0, *seed).verdict == Judgement::Growing).count();
        assert_eq!(growing, 0, "{habit:?}");
    }
}

#[test]
fn a_leak_of_a_mebibyte_a_step_is_always_called_growing_with_its_slope() {
    for habit in [Habit::Flat, Habit::Saw, Habit::HiddenSaw, Habit::Batches] {
        for seed in 0..50 {
            let found = judged(habit, MIB, seed);
            assert_eq!(found.verdict, Judgement::Growing, "{habit:?} {seed} {found:?}");
            let slope = found.slope.unwrap() / MIB;
            assert!((slope - 1.0).abs() < 0.1, "{habit:?} {seed}: {slope} MiB a step");
        }
    }
}

#[test]
fn a_leak_of_a_fifth_of_that_is_found_too() {
    for habit in [Habit::Flat, Habit::Saw] {
        let found = (0..50).filter(|seed| judged(habit, 0.2 * MIB, *seed).verdict == Judgement::Growing).count();
        assert_eq!(found, 50, "{habit:?}");
    }
}

#[test]
fn rest_is_told_by_how_it_was_reached() {
    let windows = Windows { warm_up: 0, length: 10 };
    let judge_line = |value: &dyn Fn(u64) -> f64, series| {
        judge(&floors((1..=240u64).map(|step| (step, value(step) * MIB)), windows), series, BYTES).verdict
    };
    assert_eq!(judge_line(&|_| 100.0, Series::InUse), Judgement::Bounded);
    assert_eq!(judge_line(&|step| if step < 90 { 100.0 } else { 200.0 }, Series::InUse), Judgement::Stepped);
    let filling = |step: u64| 100.0 + 100.0 * (1.0 - (-(step as f64) / 40.0).exp());
    assert_eq!(judge_line(&filling, Series::InUse), Judgement::GrewThenFlat);
    assert_eq!(judge_line(&|step| step as f64, Series::InUse), Judgement::Growing);
    assert_eq!(judge_line(&|step| step as f64, Series::Kept), Judgement::Retained);
}

#[test]
fn a_short_run_says_nothing_or_raises_a_suspicion() {
    let windows = Windows { warm_up: 0, length: 10 };
    let short =
        |slope: f64| judge(&floors((1..=60u64).map(|step| (step, slope * step as f64)), windows), Series::InUse, BYTES);
    assert_eq!(short(0.0).verdict, Judgement::Inconclusive);
    assert_eq!(short(MIB).verdict, Judgement::Suspect);
}
