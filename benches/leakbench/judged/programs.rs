//! Habits of whole programs: long starts, rests with dips, sums of processes that are read in part, stages, and coarse readings.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::super::series::{Claim, MIB, Run, Scenario, log_uniform};
use super::shapes::{StepFunction, in_groups, mib, with_level};

/// A run of a level, as a function of the fraction of the run, with disturbances.
fn levels(scenario: &Scenario, rng: &mut ChaCha8Rng, claim: Claim, level: impl Fn(f64) -> f64) -> Run {
    with_level(scenario, rng, claim, |step| scenario.base + level(scenario.fraction(step)))
}

fn rests() -> Claim {
    Claim::SettlesAfterSteps
}

/// A leak that begins at a fraction of the run.
fn leaks(scenario: &Scenario, begin: f64) -> Claim {
    let since = scenario.step_at(begin);
    Claim::Leaks { since, visible_from: since }
}

/// Fraction of a leak's growth that has happened.
fn grown(at: f64, begin: f64) -> f64 {
    ((at - begin) / (1.0 - begin)).max(0.0)
}

/// Start of a program: libraries, data, model and optimiser, in two to five moves, each of them sudden or gradual.
fn start(rng: &mut ChaCha8Rng) -> (f64, impl Fn(f64) -> f64 + use<>) {
    let (end, moves) = (rng.random_range(0.02..0.12), rng.random_range(2..=5));
    let moves: Vec<(f64, f64, f64)> = (0..moves)
        .map(|number| {
            let begin = end * f64::from(number) / f64::from(moves);
            let length = if rng.random_bool(0.5) { 0.0 } else { end / f64::from(moves) };
            (begin, length, mib(rng, 20.0, 1500.0))
        })
        .collect();
    let all: f64 = moves.iter().map(|(.., size)| size).sum();
    (end, move |at| {
        let passed = |begin: f64, length: f64| ((at - begin) / length.max(1e-9)).clamp(0.0, 1.0);
        moves.iter().map(|(begin, length, size)| size * passed(*begin, *length)).sum::<f64>() - all
    })
}

/// Scenario whose level has room for a start below it.
fn with_room(scenario: &Scenario) -> Scenario {
    Scenario { base: scenario.base + 7600.0 * MIB, ..scenario.clone() }
}

pub fn start_then_rest(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (_, start) = start(rng);
    levels(&with_room(scenario), rng, rests(), start)
}

pub fn start_then_leak(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let ((end, start), growth) = (start(rng), scenario.conditions.growth);
    levels(&with_room(scenario), rng, leaks(scenario, end), |at| start(at) + growth * grown(at, end))
}

pub fn start_then_late_leak(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let ((_, start), growth) = (start(rng), scenario.conditions.growth);
    let begin = rng.random_range(0.15..0.6);
    levels(&with_room(scenario), rng, leaks(scenario, begin), |at| start(at) + growth * grown(at, begin))
}

/// A checkpoint is loaded beside the model and freed at 1 to 8 % of the run; the leak begins there.
pub fn checkpoint_loaded_then_leak(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (end, size, growth) = (rng.random_range(0.01..0.08), mib(rng, 50.0, 2000.0), scenario.conditions.growth);
    let level = |at: f64| if at < end { size * (at / end).min(1.0) } else { growth * grown(at, end) };
    levels(scenario, rng, leaks(scenario, end), level)
}

/// One to three dips of 1 to 8 % of the run, in which 8 to 60 % of the memory is given back.
fn dips(scenario: &Scenario, rng: &mut ChaCha8Rng, from: f64) -> impl Fn(f64) -> f64 + use<> {
    let dips: Vec<(f64, f64, f64)> = (0..rng.random_range(1..=3))
        .map(|_| {
            let (begin, length) = (rng.random_range(from..0.9), rng.random_range(0.01..0.08));
            (begin, begin + length, scenario.base * rng.random_range(0.08..0.6))
        })
        .collect();
    move |at| -dips.iter().filter(|(begin, end, _)| (*begin..*end).contains(&at)).map(|dip| dip.2).fold(0.0, f64::max)
}

/// Memory fills until 5 to 30 % of the run, and rests, with dips.
pub fn dips_in_a_rest(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (full, height) = (rng.random_range(0.05..0.3), mib(rng, 30.0, 1500.0));
    let dips = dips(scenario, rng, full);
    levels(scenario, rng, rests(), |at| height * (at / full).min(1.0) + dips(at))
}

pub fn dips_in_a_leak(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (dips, growth) = (dips(scenario, rng, 0.1), scenario.conditions.growth);
    levels(scenario, rng, leaks(scenario, 0.0), |at| growth * at + dips(at))
}

/// 0.3 to 5 % of the readings miss a process that has 2 to 20 % of the memory, also twice and three times in turn.
fn lacking(run: Run, rng: &mut ChaCha8Rng) -> Run {
    let (rate, part) = (log_uniform(rng, 0.003, 0.05), rng.random_range(0.02..0.2));
    in_groups(run, rng, rate, 1.0 - part)
}

pub fn sum_that_lacks_a_part(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    lacking(levels(scenario, rng, rests(), |_| 0.0), rng)
}

pub fn leaking_sum_that_lacks_a_part(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let begin = if rng.random_bool(0.5) { 0.0 } else { rng.random_range(0.0..0.4) };
    let growth = scenario.conditions.growth;
    lacking(levels(scenario, rng, leaks(scenario, begin), |at| growth * grown(at, begin)), rng)
}

/// Helpers, such as workers of a validation, that come 4 to 30 times for a part of the time.
pub fn helpers_that_come_and_go(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (times, busy) = (rng.random_range(4..30), rng.random_range(0.1..0.7));
    let (size, phase) = (mib(rng, 30.0, 1000.0), rng.random_range(0.0..1.0));
    let is_there = |at: f64| (at * f64::from(times) + phase).fract() < busy;
    levels(scenario, rng, rests(), |at| if is_there(at) { size } else { 0.0 })
}

/// Four to six stages, each longer and higher than the one before by one ratio: steps at which they begin, and heights.
fn stages(scenario: &Scenario, rng: &mut ChaCha8Rng, end: f64) -> Vec<(u64, f64)> {
    let (count, ratio) = (rng.random_range(4..=6), rng.random_range(1.15_f64..2.0));
    let lengths: Vec<f64> = (0..count).map(|stage| ratio.powi(stage)).collect();
    let sum: f64 = lengths.iter().sum();
    let mut at = 0.0;
    let stage = |length: &f64| {
        at += end * length / sum;
        (scenario.step_at(at), *length)
    };
    lengths.iter().map(stage).collect()
}

/// The last stage begins at 40 to 65 % of the run, and lasts.
pub fn stages_of_one_ratio_that_rest(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let end = rng.random_range(0.4..0.65);
    let changes = stages(scenario, rng, end);
    let changes = StepFunction::summing_to(mib(rng, 60.0, 1200.0), changes);
    with_level(scenario, rng, rests(), |step| scenario.base + changes.at(step))
}

/// The run ends within the stage that is to follow.
pub fn stages_of_one_ratio_that_go_on(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let end = rng.random_range(0.6..0.95);
    let changes = StepFunction::summing_to(scenario.conditions.growth, stages(scenario, rng, end));
    let claim = Claim::Leaks { since: scenario.first, visible_from: changes.first() };
    with_level(scenario, rng, claim, |step| scenario.base + changes.at(step))
}

/// 6 to 25 checkpoints; each takes memory of its own for a while, and leaves a part of it.
pub fn left_by_each_save(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (saves, lasts) = (f64::from(rng.random_range(6..26)), rng.random_range(0.05..0.5));
    let (extra, growth) = (mib(rng, 20.0, 800.0), scenario.conditions.growth);
    let level = |at: f64| {
        let saved = (at * saves).floor();
        growth * saved / saves + if saved > 0.0 && (at * saves).fract() < lasts { extra } else { 0.0 }
    };
    let claim = Claim::Leaks { since: scenario.first, visible_from: scenario.step_at(1.0 / saves) };
    levels(scenario, rng, claim, level)
}

/// A cache of decoded examples that the first epoch fills, in 10 to 40 % of the run.
pub fn full_after_an_epoch(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (end, size) = (rng.random_range(0.1..0.4), mib(rng, 50.0, 2500.0));
    levels(scenario, rng, rests(), |at| size * (at / end).min(1.0))
}

/// Pages that the system takes for 10 to 35 % of the run, and that come back within 1 to 5 %, before its last quarter.
pub fn paged_out_and_back(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (begin, away) = (rng.random_range(0.05..0.3), rng.random_range(0.1..0.35));
    let (back, part) = (rng.random_range(0.01..0.05), rng.random_range(0.1..0.6));
    let out = |at: f64| match at - begin {
        passed if passed < away => (passed / away).max(0.0),
        passed => (1.0 - (passed - away) / back).max(0.0),
    };
    levels(scenario, rng, rests(), |at| -part * scenario.base * out(at))
}

/// Readings in whole units of 1 to 48 MiB, as of a log with one decimal of a GiB.
fn coarse(mut run: Run, rng: &mut ChaCha8Rng) -> Run {
    let unit = mib(rng, 1.0, 48.0);
    run.samples.iter_mut().for_each(|sample| sample.bytes = (sample.bytes / unit).round() * unit);
    run
}

pub fn coarse_readings(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    coarse(levels(scenario, rng, rests(), |_| 0.0), rng)
}

pub fn leak_in_coarse_readings(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let growth = scenario.conditions.growth;
    coarse(levels(scenario, rng, leaks(scenario, 0.0), |at| growth * at), rng)
}
