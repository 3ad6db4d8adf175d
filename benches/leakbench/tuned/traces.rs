//! Habits of logs that other tools write: lost readings, ends of processes, wrapped counters, late rests and releases.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::super::series::{Ar1, Claim, MIB, Run, Scenario, log_uniform};
use super::with_noise;

/// Claims a leak from a fraction of the run on.
fn leak_from(scenario: &Scenario, start: f64) -> Claim {
    Claim::Leaks { since: scenario.step_at(start), visible_from: scenario.step_at(start) }
}

/// Fraction of a ramp between two fractions of the run that has passed.
fn ramp(at: f64, from: f64, to: f64) -> f64 {
    ((at - from) / (to - from)).clamp(0.0, 1.0)
}

/// Bytes of a size that is drawn log-uniformly, in MiB.
fn size(rng: &mut ChaCha8Rng, low: f64, high: f64) -> f64 {
    log_uniform(rng, low, high) * MIB
}

/// A level, below which a leak starts at a fraction of the run.
fn straight(scenario: &Scenario, rng: &mut ChaCha8Rng, start: f64, growth: f64) -> Run {
    let claim = if growth > 0.0 { leak_from(scenario, start) } else { Claim::SettlesAfterSteps };
    with_noise(scenario, rng, claim, |step, _| growth * ramp(scenario.fraction(step), start, 1.0), |_, _| 0.0)
}

/// Sets readings to zero, each with this probability.
fn with_zeros(mut run: Run, probability: f64, rng: &mut ChaCha8Rng) -> Run {
    run.samples.iter_mut().filter(|_| rng.random_bool(probability)).for_each(|sample| sample.bytes = 0.0);
    run
}

pub fn zeros_in_a_leak(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let run = straight(scenario, rng, 0.0, scenario.conditions.growth);
    let probability = log_uniform(rng, 0.001, 0.04);
    with_zeros(run, probability, rng)
}

pub fn zeros_in_a_level(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let run = straight(scenario, rng, 0.0, 0.0);
    let probability = log_uniform(rng, 0.001, 0.04);
    with_zeros(run, probability, rng)
}

/// The process ends; the last 0.5 to 25 % of the readings are those of a monitor that goes on.
fn ended(mut run: Run, rng: &mut ChaCha8Rng) -> Run {
    let count = run.samples.len();
    let tail = ((log_uniform(rng, 0.005, 0.25) * count as f64) as usize).max(2);
    let rest = [0.0, 4.0 * MIB, 30.0 * MIB][rng.random_range(0..3)];
    run.samples[count - tail..].iter_mut().for_each(|sample| sample.bytes = rest.min(sample.bytes / 20.0));
    run
}

pub fn ended_after_a_leak(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let run = straight(scenario, rng, 0.0, scenario.conditions.growth);
    ended(run, rng)
}

pub fn ended_after_a_level(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let run = straight(scenario, rng, 0.0, 0.0);
    ended(run, rng)
}

/// Fills evenly until 60 to 95 % of the run.
pub fn full_late(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (height, full) = (size(rng, 100.0, 2000.0), rng.random_range(0.6..0.95));
    let level = |step, _: &mut ChaCha8Rng| height * ramp(scenario.fraction(step), 0.0, full);
    with_noise(scenario, rng, Claim::SettlesAfterSteps, level, |_, _| 0.0)
}

/// Fills until 20 to 40 % of the run, and once more from 40 to 60 % until 65 to 93 %.
pub fn full_twice(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (first, second) = (size(rng, 50.0, 800.0), size(rng, 100.0, 1500.0));
    let (full, again) = (rng.random_range(0.2..0.4), rng.random_range(0.4..0.6));
    let full_again = rng.random_range(0.65..0.93);
    let level = |step, _: &mut ChaCha8Rng| {
        let at = scenario.fraction(step);
        first * ramp(at, 0.0, full) + second * ramp(at, again, full_again)
    };
    with_noise(scenario, rng, Claim::SettlesAfterSteps, level, |_, _| 0.0)
}

/// Keys arrive at a constant rate; the table doubles whenever it is full.
pub fn doubling_table(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let keys = 2f64.powf(rng.random_range(8.0..10.0));
    let slots = move |fraction: f64| 2f64.powf((1.0 + fraction * keys).log2().ceil());
    let (first, last) = (slots(0.0), slots(1.0));
    let claim = leak_from(scenario, 0.0);
    with_noise(
        scenario,
        rng,
        claim,
        |step, _| scenario.conditions.growth * (slots(scenario.fraction(step)) - first) / (last - first),
        |_, _| 0.0,
    )
}

/// Three to five equal stages at equal distances, the last of which begins at 50 to 65 %.
pub fn even_stages(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (stages, end, height) = (rng.random_range(3..6) as f64, rng.random_range(0.5..0.65), size(rng, 60.0, 500.0));
    let level = |step, _: &mut ChaCha8Rng| height * (scenario.fraction(step) / end * stages).floor().min(stages);
    with_noise(scenario, rng, Claim::SettlesAfterSteps, level, |_, _| 0.0)
}

/// Work and rest alternate, two thirds and one; only work leaks.
pub fn leak_in_shifts(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let shifts = rng.random_range(4..12) as f64;
    let worked = move |fraction: f64| {
        let at = fraction * shifts;
        (at.floor() + (at.fract() * 1.5).min(1.0)) / shifts
    };
    let level = |step, _: &mut ChaCha8Rng| scenario.conditions.growth * worked(scenario.fraction(step));
    with_noise(scenario, rng, leak_from(scenario, 0.0), level, |_, _| 0.0)
}

/// One or two sawtooths, up to two steps before 60 %, and a warm-up.
fn composite(scenario: &Scenario, rng: &mut ChaCha8Rng, start: f64, growth: f64) -> Run {
    let saws: Vec<(f64, f64, f64)> = (0..rng.random_range(1..3))
        .map(|_| (log_uniform(rng, 12.0, 200.0), size(rng, 10.0, 250.0), rng.random_range(0.0..1.0)))
        .collect();
    let steps: Vec<(f64, f64)> =
        (0..rng.random_range(0..3)).map(|_| (rng.random_range(0.02..0.6), size(rng, 20.0, 300.0))).collect();
    let (height, time) = (size(rng, 20.0, 500.0), rng.random_range(0.01..0.08));
    let claim = if growth > 0.0 { leak_from(scenario, start) } else { Claim::SettlesAfterSteps };
    with_noise(
        scenario,
        rng,
        claim,
        |step, _| {
            let at = scenario.fraction(step);
            let stepped: f64 = steps.iter().filter(|(from, _)| at >= *from).map(|(_, height)| height).sum();
            stepped + height * (1.0 - (-at / time).exp()) + growth * ramp(at, start, 1.0)
        },
        |step, _| {
            saws.iter().map(|(teeth, height, phase)| height * (scenario.fraction(step) * teeth + phase).fract()).sum()
        },
    )
}

pub fn composite_leak(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let start = rng.random_range(0.0..0.5);
    composite(scenario, rng, start, scenario.conditions.growth)
}

pub fn composite_level(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    composite(scenario, rng, 0.0, 0.0)
}

/// Memory of a preparation is freed at 10 to 50 % of the run.
fn released(scenario: &Scenario, rng: &mut ChaCha8Rng, growth: f64) -> Run {
    let (at, height) = (rng.random_range(0.1..0.5), size(rng, 100.0, 3000.0));
    let claim = if growth > 0.0 { leak_from(scenario, at) } else { Claim::SettlesAfterSteps };
    let level = |step, _: &mut ChaCha8Rng| {
        let passed = scenario.fraction(step);
        if passed < at { height } else { growth * ramp(passed, at, 1.0) }
    };
    with_noise(scenario, rng, claim, level, |_, _| 0.0)
}

pub fn leak_after_a_release(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    released(scenario, rng, scenario.conditions.growth)
}

pub fn level_after_a_release(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    released(scenario, rng, 0.0)
}

/// A cache is thrown away at 55 to 80 % of the run, and may fill again more slowly.
pub fn evicted_late(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (at, height) = (rng.random_range(0.55..0.8), size(rng, 100.0, 2000.0));
    let again = if rng.random_bool(0.5) { 0.0 } else { rng.random_range(0.1..0.3) * height };
    let level = |step, _: &mut ChaCha8Rng| {
        let passed = scenario.fraction(step);
        if passed < at { height * passed / at } else { again * ramp(passed, at, 1.0) }
    };
    with_noise(scenario, rng, Claim::SettlesAfterSteps, level, |_, _| 0.0)
}

/// The teeth of a sawtooth with a level floor become higher.
pub fn rising_peaks(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (teeth, height) = (log_uniform(rng, 15.0, 150.0), size(rng, 20.0, 400.0));
    let top = |at: f64| height + scenario.conditions.growth * at;
    let above = |step, _: &mut ChaCha8Rng| {
        let at = scenario.fraction(step);
        top(at) * (at * teeth).fract()
    };
    with_noise(scenario, rng, leak_from(scenario, 0.0), |_, _| 0.0, above)
}

/// Spikes of random heights over a level floor, more often than not small.
pub fn random_peaks(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (height, rate) = (size(rng, 20.0, 400.0), log_uniform(rng, 0.01, 0.5));
    let above = |_, rng: &mut ChaCha8Rng| {
        if rng.random_bool(rate) { height * -rng.random_range(0.001_f64..1.0).ln() } else { 0.0 }
    };
    with_noise(scenario, rng, Claim::SettlesAfterSteps, |_, _| 0.0, above)
}

const WRAP: f64 = 4096.0 * MIB;

/// A counter of 32 bits.
fn wrapped(mut run: Run) -> Run {
    run.samples.iter_mut().for_each(|sample| sample.bytes %= WRAP);
    run
}

/// The leak passes 4 GiB at 20 to 80 % of the run.
pub fn leak_beyond_4_gib(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let growth = scenario.conditions.growth;
    let scenario = Scenario { base: WRAP - growth * rng.random_range(0.2..0.8), ..scenario.clone() };
    wrapped(straight(&scenario, rng, 0.0, growth))
}

pub fn level_around_4_gib(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let noise = scenario.conditions.noise.min(15.0 * MIB);
    let scenario = Scenario { base: WRAP + rng.random_range(-1.0..1.0) * noise, ..scenario.clone() };
    wrapped(straight(&scenario, rng, 0.0, 0.0))
}

/// Mean-reverting, with a time constant of 6 to 20 % of the run.
pub fn long_memory_wander(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let count = scenario.sample_steps().count() as f64;
    let mut wander = Ar1::new(size(rng, 30.0, 200.0), count * rng.random_range(0.06..0.2));
    let scenario = Scenario { base: scenario.base + 700.0 * MIB, ..scenario.clone() };
    with_noise(&scenario, rng, Claim::SettlesAfterSteps, |_, _| 0.0, move |_, rng| wander.next(rng))
}

/// `max_memory_allocated` of a level series: the highest value so far.
pub fn highest_so_far(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (scale, mut highest) = (size(rng, 5.0, 40.0), 0.0_f64);
    let level = move |_, rng: &mut ChaCha8Rng| {
        let draw = |rng: &mut ChaCha8Rng| -rng.random_range(1e-9_f64..1.0).ln();
        highest = highest.max((scale * (draw(rng) + draw(rng))).min(600.0 * MIB));
        highest
    };
    let quiet = Scenario {
        conditions: super::super::series::Conditions { noise: 0.01 * MIB, ..scenario.conditions },
        ..scenario.clone()
    };
    with_noise(&quiet, rng, Claim::SettlesAfterSteps, level, |_, _| 0.0)
}

/// A start in two ramps until 3 to 9 % of the run; without growth at rest, or else a leak from a fraction of the run on.
fn begun(scenario: &Scenario, rng: &mut ChaCha8Rng, leak: Option<f64>) -> Run {
    let scenario = Scenario { base: scenario.base + 1200.0 * MIB, ..scenario.clone() };
    let (end, part) = (rng.random_range(0.03..0.09), rng.random_range(0.2..0.8));
    let (first, second) = (size(rng, 40.0, 600.0), size(rng, 40.0, 600.0));
    let start = leak.unwrap_or(end);
    let growth = leak.map_or(0.0, |_| scenario.conditions.growth);
    let claim = leak.map_or(Claim::SettlesAfterSteps, |_| leak_from(&scenario, start));
    let level = move |at: f64| {
        first * (ramp(at, 0.0, end * part) - 1.0)
            + second * (ramp(at, end * part, end) - 1.0)
            + growth * ramp(at, start, 1.0)
    };
    let fraction = scenario.clone();
    with_noise(&scenario, rng, claim, |step, _| level(fraction.fraction(step)), |_, _| 0.0)
}

pub fn slow_start_at_rest(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    begun(scenario, rng, None)
}

pub fn slow_start_and_leak(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let start = rng.random_range(0.1..0.7);
    begun(scenario, rng, Some(start))
}

/// A cache is full at 5 to 25 %; later a fifth to a half of the memory is away once, for 1 to 6 % of the run.
pub fn away_and_back(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (full, height) = (rng.random_range(0.05..0.25), size(rng, 50.0, 800.0));
    let (begin, length) = (rng.random_range(0.35..0.9), rng.random_range(0.01..0.06));
    let away = scenario.base * rng.random_range(0.2..0.5);
    let level = |at: f64| height * ramp(at, 0.0, full) - if (begin..begin + length).contains(&at) { away } else { 0.0 };
    with_noise(scenario, rng, Claim::SettlesAfterSteps, |step, _| level(scenario.fraction(step)), |_, _| 0.0)
}

/// One reading in 30 to 300 lacks a worker with 3 to 15 % of the memory.
fn without_a_worker(mut run: Run, rng: &mut ChaCha8Rng) -> Run {
    let (probability, part) = (1.0 / log_uniform(rng, 30.0, 300.0), rng.random_range(0.03..0.15));
    run.samples.iter_mut().filter(|_| rng.random_bool(probability)).for_each(|sample| sample.bytes *= 1.0 - part);
    run
}

pub fn worker_missed_in_a_leak(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let start = rng.random_range(0.0..0.3);
    let run = straight(scenario, rng, start, scenario.conditions.growth);
    without_a_worker(run, rng)
}

pub fn worker_missed_in_a_level(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let run = straight(scenario, rng, 0.0, 0.0);
    without_a_worker(run, rng)
}

/// A table that doubles, or nearly, four times until 35 to 60 % of the run, and is then large enough.
pub fn doubled_and_full(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (ratio, end) = (rng.random_range(1.5_f64..2.2), rng.random_range(0.35..0.6));
    let whole = size(rng, 80.0, 1000.0);
    let level = |at: f64| {
        let moved = (0..=3).rev().filter(|before| at >= end / ratio.powi(*before)).count() as i32;
        whole * if moved == 0 { 0.0 } else { ratio.powi(moved - 4) }
    };
    with_noise(scenario, rng, Claim::SettlesAfterSteps, |step, _| level(scenario.fraction(step)), |_, _| 0.0)
}
