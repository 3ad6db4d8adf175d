//! Habits of logs that other tools write: lost readings, ends of processes, wrapped counters, late rests and releases.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::super::series::{Ar1, Claim, MIB, Run, Scenario, log_uniform};
use super::shapes::{Disturbance, Sawtooth, StepFunction, in_groups, mib, period, with_level};

/// A leak that begins at a fraction of the run; without growth, a claim of rest.
fn claim(scenario: &Scenario, start: f64, growth: f64) -> Claim {
    let since = scenario.step_at(start);
    if growth > 0.0 { Claim::Leaks { since, visible_from: since } } else { Claim::SettlesAfterSteps }
}

/// Growth of a leak that starts at a fraction of the run.
fn grown(scenario: &Scenario, step: u64, start: f64, growth: f64) -> f64 {
    growth * ((scenario.fraction(step) - start) / (1.0 - start)).max(0.0)
}

/// A sawtooth of at least ten teeth above a level that leaks, or does not, from `start` on.
fn saw_and_leak(scenario: &Scenario, rng: &mut ChaCha8Rng, start: f64, growth: f64) -> Run {
    let teeth = Sawtooth::new(scenario, period(scenario, 10.0, rng), 0.3, 1.0, rng);
    let height = if rng.random_bool(0.5) { 0.0 } else { mib(rng, 8.0, 200.0) };
    let mut disturbance = Disturbance::random(scenario, rng);
    scenario.run(
        claim(scenario, start, growth),
        |step| scenario.base + grown(scenario, step, start, growth),
        |step| disturbance.at(step, rng) + height * teeth.at(step),
    )
}

/// Groups of one to three consecutive readings are lost: they are 0, or a small remainder.
fn with_losses(run: Run, rng: &mut ChaCha8Rng) -> Run {
    let (rate, remainder) = (log_uniform(rng, 0.001, 0.03), if rng.random_bool(0.6) { 0.0 } else { 0.02 });
    in_groups(run, rng, rate, remainder)
}

pub fn lost_readings_in_a_leak(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let start = if rng.random_bool(0.5) { 0.0 } else { rng.random_range(0.0..0.3) };
    let run = saw_and_leak(scenario, rng, start, scenario.conditions.growth);
    with_losses(run, rng)
}

pub fn lost_readings_below_a_saw(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let run = saw_and_leak(scenario, rng, 0.0, 0.0);
    with_losses(run, rng)
}

/// 0.2 to 3 % of the readings miss a process that has a quarter to half of the memory.
pub fn readings_that_miss_a_process(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (rate, part) = (log_uniform(rng, 0.002, 0.03), rng.random_range(0.25..0.5));
    let mut run = saw_and_leak(scenario, rng, 0.0, scenario.conditions.growth);
    run.samples.iter_mut().filter(|_| rng.random_bool(rate)).for_each(|sample| sample.bytes *= 1.0 - part);
    run
}

/// The process is killed; the log goes on for 1 to 30 % of it, at 0 or with a few pages.
fn killed(mut run: Run, rng: &mut ChaCha8Rng) -> Run {
    let tail = ((rng.random_range(0.01..0.3) * run.samples.len() as f64) as usize).max(3);
    let start = run.samples.len() - tail;
    let pages = if rng.random_bool(0.7) { 0.0 } else { rng.random_range(0.5..3.0) * MIB };
    run.samples[start..].iter_mut().for_each(|sample| sample.bytes = pages * rng.random_range(0.9..1.1));
    run
}

pub fn killed_while_it_leaked(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let start = rng.random_range(0.0..0.4);
    let scenario = Scenario { base: scenario.base.max(128.0 * MIB), ..scenario.clone() };
    let run = saw_and_leak(&scenario, rng, start, scenario.conditions.growth);
    killed(run, rng)
}

pub fn ended_at_rest(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let scenario = Scenario { base: scenario.base.max(128.0 * MIB), ..scenario.clone() };
    let run = saw_and_leak(&scenario, rng, 0.0, 0.0);
    killed(run, rng)
}

/// No process for 1 to 5 % of the log; then the same level again.
pub fn away_in_the_middle(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let mut run = saw_and_leak(scenario, rng, 0.0, 0.0);
    let count = run.samples.len() as f64;
    let (from, length) = (rng.random_range(0.2..0.7), rng.random_range(0.01..0.05));
    let away = (from * count) as usize..((from + length) * count) as usize;
    run.samples[away].iter_mut().for_each(|sample| sample.bytes = 0.0);
    run
}

/// Fills at up to seven speeds until 62 to 94 % of the run.
pub fn page_cache_full_late(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (height, full) = (mib(rng, 80.0, 3000.0), rng.random_range(0.62..0.94));
    let speeds: Vec<f64> = (0..rng.random_range(1..8)).map(|_| rng.random_range(0.5..1.5)).collect();
    let sum: f64 = speeds.iter().sum();
    let level = |step| {
        let at = (scenario.fraction(step) / full).min(1.0) * speeds.len() as f64;
        let filled = speeds.iter().enumerate().map(|(piece, speed)| (at - piece as f64).clamp(0.0, 1.0) * speed);
        scenario.base + height * filled.sum::<f64>() / sum
    };
    with_level(scenario, rng, Claim::SettlesAfterSteps, level)
}

/// One cache is full at 15 to 35 %; another fills from 45 to 55 % until 65 to 90 %.
pub fn two_caches(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let caches = [
        (0.0, rng.random_range(0.15..0.35), mib(rng, 40.0, 1000.0)),
        (rng.random_range(0.45..0.55), rng.random_range(0.65..0.9), mib(rng, 80.0, 2000.0)),
    ];
    let level = |step| {
        let passed = |from: f64, to: f64| ((scenario.fraction(step) - from) / (to - from)).clamp(0.0, 1.0);
        scenario.base + caches.iter().map(|(from, to, height)| height * passed(*from, *to)).sum::<f64>()
    };
    with_level(scenario, rng, Claim::SettlesAfterSteps, level)
}

/// Items are appended at a constant rate to a vector that grows by 30 to 120 % whenever it is full.
pub fn growing_vector(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (factor, items) = (rng.random_range(1.3_f64..2.2), log_uniform(rng, 50.0, 3000.0));
    let mut capacity = 4.0 * rng.random_range(1.0..factor);
    let mut rises = Vec::new();
    while capacity < items {
        rises.push((scenario.step_at(capacity / items), capacity * (factor - 1.0)));
        capacity *= factor;
    }
    let rises = StepFunction::summing_to(scenario.conditions.growth, rises);
    let claim = Claim::Leaks { since: scenario.first, visible_from: rises.first() };
    with_level(scenario, rng, claim, |step| scenario.base + rises.at(step))
}

/// Three to six stages; each is 0 to 40 % longer than the one before, and the last begins at 40 to 60 %.
pub fn stages_that_end(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (stages, end, ratio) = (rng.random_range(3..=6), rng.random_range(0.4..0.6), rng.random_range(1.0_f64..1.4));
    let lengths: Vec<f64> = (0..stages).map(|stage| ratio.powi(stage)).collect();
    let sum: f64 = lengths.iter().sum();
    let height = mib(rng, 40.0, 400.0);
    let mut at = 0.0;
    let stages = lengths.iter().map(|length| {
        at += length / sum * end;
        (scenario.step_at(at), height * rng.random_range(0.7..1.3))
    });
    let stages = StepFunction::new(stages.collect());
    with_level(scenario, rng, Claim::SettlesAfterSteps, |step| scenario.base + stages.at(step))
}

/// Work that leaks alternates with pauses, which are 20 to 60 % of the time.
pub fn leak_with_pauses(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (pauses, part) = (rng.random_range(5..20), rng.random_range(0.2..0.6));
    let phase = rng.random_range(0.0..1.0);
    let worked = |fraction: f64| {
        let at = fraction * f64::from(pauses) + phase;
        at.floor() + (at.fract() / (1.0 - part)).min(1.0)
    };
    let whole = worked(1.0) - worked(0.0);
    let mut disturbance = Disturbance::random(scenario, rng);
    scenario.run(
        claim(scenario, 0.0, 1.0),
        |step| {
            let worked = (worked(scenario.fraction(step)) - worked(0.0)) / whole;
            scenario.base + scenario.conditions.growth * worked
        },
        |step| disturbance.at(step, rng),
    )
}

/// A drifting sawtooth, a short correlated wander, one to three changes of level and a warm-up, together.
fn several_habits(scenario: &Scenario, rng: &mut ChaCha8Rng, start: f64, growth: f64) -> Run {
    let teeth = Sawtooth::new(scenario, period(scenario, 15.0, rng), 0.25, log_uniform(rng, 0.7, 1.4), rng);
    let height = mib(rng, 10.0, 250.0);
    let count = (scenario.steps / scenario.every) as f64;
    let mut wander = Ar1::new(mib(rng, 1.0, 12.0), count * log_uniform(rng, 0.001, 0.01));
    let changes = (0..rng.random_range(1..=3)).map(|_| {
        let size = mib(rng, 15.0, 300.0);
        let falls = rng.random_bool(0.3);
        (scenario.step_at(rng.random_range(0.03..0.6)), if falls { -0.5 * size } else { size })
    });
    let changes = StepFunction::new(changes.collect());
    let (warm, time) = (mib(rng, 20.0, 500.0), rng.random_range(0.005..0.06));
    let base = scenario.base + 500.0 * MIB;
    let mut disturbance = Disturbance::random(scenario, rng);
    scenario.run(
        claim(scenario, start, growth),
        |step| {
            let warmed = warm * (1.0 - (-scenario.fraction(step) / time).exp());
            base + warmed + changes.at(step) + grown(scenario, step, start, growth)
        },
        |step| disturbance.at(step, rng) + height * teeth.at(step) + wander.next(rng),
    )
}

pub fn late_leak_in_several_habits(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let start = rng.random_range(0.05..0.6);
    several_habits(scenario, rng, start, scenario.conditions.growth)
}

pub fn several_habits_at_rest(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    several_habits(scenario, rng, 0.0, 0.0)
}

/// A phase with more memory, such as an evaluation, ends at 8 to 45 % of the run; the next one leaks.
pub fn leak_after_a_large_phase(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (begin, end) = (rng.random_range(0.0..0.05), rng.random_range(0.08..0.45));
    let height = scenario.conditions.growth * rng.random_range(0.3..3.0);
    let mut disturbance = Disturbance::random(scenario, rng);
    let phase = |fraction: f64| if (begin..end).contains(&fraction) { height } else { 0.0 };
    scenario.run(
        claim(scenario, end, 1.0),
        |step| scenario.base + phase(scenario.fraction(step)) + grown(scenario, step, end, scenario.conditions.growth),
        |step| disturbance.at(step, rng),
    )
}

/// The level falls once or twice before 60 % of the run.
pub fn releases(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let releases =
        (0..rng.random_range(1..=2)).map(|_| (scenario.step_at(rng.random_range(0.1..0.6)), -mib(rng, 50.0, 800.0)));
    let releases = StepFunction::new(releases.collect());
    let base = scenario.base + 1700.0 * MIB;
    with_level(scenario, rng, Claim::SettlesAfterSteps, |step| base + releases.at(step))
}

/// Two and a half to five teeth of different lengths, from a level floor.
pub fn few_large_teeth(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let length = scenario.steps as f64 / rng.random_range(2.5..5.0);
    let teeth = Sawtooth::new(scenario, length, 0.15, 1.0, rng);
    let height = mib(rng, 40.0, 800.0);
    let mut disturbance = Disturbance::random(scenario, rng);
    scenario.run(
        Claim::SettlesAfterSteps,
        |_| scenario.base,
        |step| disturbance.at(step, rng) + height * teeth.at(step),
    )
}

/// Blocks of temporary memory at irregular times become larger; between them memory is level.
pub fn growing_temporaries(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let teeth = Sawtooth::new(scenario, period(scenario, 20.0, rng), 0.4, 1.0, rng);
    let (busy, height) = (rng.random_range(0.2..0.7), mib(rng, 10.0, 300.0));
    let start = if rng.random_bool(0.5) { 0.0 } else { rng.random_range(0.0..0.4) };
    let mut disturbance = Disturbance::random(scenario, rng);
    let size = |step| height + grown(scenario, step, start, scenario.conditions.growth);
    scenario.run(
        claim(scenario, start, 1.0),
        |_| scenario.base,
        |step| disturbance.at(step, rng) + if teeth.passed(step) < busy { size(step) } else { 0.0 },
    )
}

/// Blocks with sizes that vary without a trend, some of them five times as large.
pub fn varying_temporaries(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let teeth = Sawtooth::new(scenario, period(scenario, 20.0, rng), 0.8, 1.0, rng);
    let (busy, height) = (rng.random_range(0.2..0.7), mib(rng, 10.0, 300.0));
    let mut disturbance = Disturbance::random(scenario, rng);
    let (mut large, mut was_busy) = (1.0, false);
    scenario.run(
        Claim::SettlesAfterSteps,
        |_| scenario.base,
        |step| {
            let is_busy = teeth.passed(step) < busy;
            if is_busy && !was_busy {
                large = if rng.random_bool(0.05) { 5.0 } else { rng.random_range(0.5..1.5) };
            }
            was_busy = is_busy;
            disturbance.at(step, rng) + if is_busy { height * large } else { 0.0 }
        },
    )
}

const WRAP: f64 = 4096.0 * MIB;

/// A 32-bit counter of a leak that begins below 4 GiB and ends beyond, with at most 12 MiB of noise.
pub fn leak_in_a_wrapped_counter(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let growth = scenario.conditions.growth;
    let mut scenario = Scenario { base: WRAP - growth * rng.random_range(0.1..0.9), ..scenario.clone() };
    scenario.conditions.noise = scenario.conditions.noise.min(12.0 * MIB);
    let noise = super::super::series::Noise::Gaussian(scenario.conditions.noise);
    let mut disturbance = Disturbance::with(noise, &Scenario { base: 100.0 * MIB, ..scenario.clone() }, rng);
    let mut run = scenario.run(
        claim(&scenario, 0.0, growth),
        |step| scenario.base + grown(&scenario, step, 0.0, growth),
        |step| disturbance.at(step, rng),
    );
    run.samples.iter_mut().for_each(|sample| sample.bytes %= WRAP);
    run
}

/// Two mean-reverting wanders, with time constants of 2 to 5 % and of 8 to 18 % of the run.
pub fn two_wanders(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let count = (scenario.steps / scenario.every) as f64;
    let mut quick = Ar1::new(mib(rng, 10.0, 60.0), count * rng.random_range(0.02..0.05));
    let mut slow = Ar1::new(mib(rng, 20.0, 150.0), count * rng.random_range(0.08..0.18));
    let base = scenario.base + 600.0 * MIB;
    scenario.run(Claim::SettlesAfterSteps, |_| base, |_| quick.next(rng) + slow.next(rng))
}

/// Memory that swings, with 1.6 to 4 periods in the run.
pub fn slow_swing(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (periods, phase) = (rng.random_range(1.6..4.0), rng.random_range(0.0..1.0));
    let height = mib(rng, 30.0, 300.0);
    let base = scenario.base + 300.0 * MIB;
    let mut disturbance = Disturbance::random(scenario, rng);
    scenario.run(
        Claim::SettlesAfterSteps,
        |_| base,
        |step| {
            let swing = (std::f64::consts::TAU * (scenario.fraction(step) * periods + phase)).sin();
            disturbance.at(step, rng) + height * swing
        },
    )
}

/// Records of batches whose size varies evenly: the highest reserved memory so far.
pub fn highest_reserved(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (scale, power) = (mib(rng, 20.0, 500.0), rng.random_range(1.0..4.0));
    let mut highest = 0.0_f64;
    let level = |_| {
        highest = highest.max(rng.random_range(0.0_f64..1.0).powf(power));
        scenario.base + scale * highest
    };
    scenario.run(Claim::SettlesAfterSteps, level, |_| 0.0)
}
