//! Habits that leak. Each leak grows by the growth of its conditions over the run.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::super::series::{Ar1, Claim, MIB, Noise, Run, Sample, Scenario, log_uniform};
use super::shapes::{Disturbance, Sawtooth, StepFunction, period};

/// Generates a leak of which the fraction `grown` has occurred at each step.
fn leak(scenario: &Scenario, rng: &mut ChaCha8Rng, claim: Claim, mut grown: impl FnMut(u64) -> f64) -> Run {
    let mut disturbance = Disturbance::random(scenario, rng);
    scenario.run(
        claim,
        |step| scenario.base + scenario.conditions.growth * grown(step),
        |step| disturbance.at(step, rng),
    )
}

/// Claims a leak from the first sample on.
fn from_first_sample(scenario: &Scenario) -> Claim {
    Claim::Leaks { since: scenario.first, visible_from: scenario.first }
}

/// Returns the fraction of a linear leak that begins at a fraction of the run.
fn linear_from(scenario: &Scenario, start: f64) -> impl Fn(u64) -> f64 + '_ {
    move |step| ((scenario.fraction(step) - start) / (1.0 - start)).max(0.0)
}

pub fn linear(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    leak(scenario, rng, from_first_sample(scenario), |step| scenario.fraction(step))
}

pub fn linear_below_autoregression(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let samples = (scenario.steps / scenario.every) as f64;
    let noise =
        Noise::Correlated(Ar1::new(scenario.conditions.noise, log_uniform(rng, 2.0, (samples / 100.0).max(2.5))));
    let mut disturbance = Disturbance::with(noise, scenario, rng);
    let level = |step| scenario.base + scenario.conditions.growth * scenario.fraction(step);
    scenario.run(from_first_sample(scenario), level, |step| disturbance.at(step, rng))
}

/// Generates a leak that grows every `every` steps.
fn periodic(scenario: &Scenario, every: u64, rng: &mut ChaCha8Rng) -> Run {
    let last = scenario.first + scenario.steps;
    let times =
        (1..).map(|time| time * every).skip_while(|step| *step < scenario.first).take_while(|step| *step <= last);
    let leaked = StepFunction::summing_to(1.0, times.map(|step| (step, 1.0)).collect());
    leak(scenario, rng, Claim::Leaks { since: scenario.first, visible_from: leaked.first() }, |step| leaked.at(step))
}

/// The run has at least six epochs.
pub fn per_epoch(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let mut scenario = scenario.clone();
    if scenario.steps_per_epoch == 0 || scenario.steps / scenario.steps_per_epoch < 6 {
        let epochs = log_uniform(rng, 6.0, (scenario.steps as f64 / 10.0).min(250.0));
        scenario.steps_per_epoch = ((scenario.steps as f64 / epochs) as u64).max(1);
    }
    periodic(&scenario, scenario.steps_per_epoch, rng)
}

/// The run has at least six validations.
pub fn per_validation(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let mut scenario = scenario.clone();
    if scenario.cadences[1] == 0 || scenario.steps / scenario.cadences[1] < 6 {
        let validations = log_uniform(rng, 6.0, (scenario.steps as f64 / 10.0).min(100.0));
        scenario.cadences[1] = ((scenario.steps as f64 / validations) as u64).max(1);
        scenario = super::settle(scenario);
    }
    periodic(&scenario, scenario.cadences[1], rng)
}

/// 8 to 40 bursts of different sizes at irregular times.
pub fn in_bursts(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let bursts = rng.random_range(8..=40);
    let burst = |number: u32| {
        let at = (f64::from(number) + rng.random_range(0.0..1.0)) / f64::from(bursts);
        (scenario.step_at(at).max(scenario.first + 1), rng.random_range(0.3..1.7))
    };
    let bursts = StepFunction::summing_to(1.0, (0..bursts).map(burst).collect());
    leak(scenario, rng, Claim::Leaks { since: scenario.first, visible_from: bursts.first() }, |step| bursts.at(step))
}

pub fn late(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    late_from(scenario, 0.1, 0.4, rng)
}

pub fn later(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    late_from(scenario, 0.4, 0.7, rng)
}

pub fn latest(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    late_from(scenario, 0.7, 0.85, rng)
}

fn late_from(scenario: &Scenario, earliest: f64, latest: f64, rng: &mut ChaCha8Rng) -> Run {
    let start = rng.random_range(earliest..latest);
    let since = scenario.step_at(start);
    leak(scenario, rng, Claim::Leaks { since, visible_from: since }, linear_from(scenario, start))
}

/// The second phase leaks; its level differs from the first.
pub fn after_a_phase_switch(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let start = rng.random_range(0.1..0.8);
    let since = scenario.step_at(start);
    let size = log_uniform(rng, 16.0, 256.0) * MIB;
    let size = if rng.random_bool(0.5) { size } else { -size.min(0.8 * scenario.base) };
    let grown = linear_from(scenario, start);
    let mut disturbance = Disturbance::random(scenario, rng);
    let phase = |step| if step < since { 0.0 } else { size };
    scenario.run(
        Claim::Leaks { since, visible_from: since },
        |step| scenario.base + phase(step) + scenario.conditions.growth * grown(step),
        |step| disturbance.at(step, rng),
    )
}

pub fn slowing_by_square_root(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let claim = Claim::Slows { since: scenario.first, visible_from: scenario.first };
    leak(scenario, rng, claim, |step| scenario.fraction(step).sqrt())
}

/// The rate halves at 30 to 70 % of the run.
pub fn slowing_to_half(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let turn = rng.random_range(0.3..0.7);
    let grown = |fraction: f64| fraction.min(turn) + 0.5 * (fraction - turn).max(0.0);
    let claim = Claim::Slows { since: scenario.first, visible_from: scenario.first };
    leak(scenario, rng, claim, |step| grown(scenario.fraction(step)) / grown(1.0))
}

pub fn few_stairs(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    stairs(scenario, 6.0, 24.0, rng)
}

pub fn many_stairs(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    stairs(scenario, 25.0, (scenario.steps as f64 / 4.0).min(1000.0), rng)
}

/// Steps of equal height and period, unrelated to other periods of the run.
fn stairs(scenario: &Scenario, min_stairs: f64, max_stairs: f64, rng: &mut ChaCha8Rng) -> Run {
    let stairs = log_uniform(rng, min_stairs, max_stairs).round();
    let phase = rng.random_range(0.05..1.0);
    let stairs = (0..stairs as u32).map(|stair| (scenario.step_at((f64::from(stair) + phase) / stairs), 1.0));
    let stairs = StepFunction::summing_to(1.0, stairs.collect());
    leak(scenario, rng, Claim::Leaks { since: scenario.first, visible_from: stairs.first() }, |step| stairs.at(step))
}

pub fn saw_with_rising_floor(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (period, jitter) = (period(scenario, 8.0, rng), rng.random_range(0.0..0.3));
    let teeth = Sawtooth::new(scenario, period, jitter, log_uniform(rng, 0.6, 1.6), rng);
    let height = log_uniform(rng, 8.0, 256.0) * MIB;
    let mut disturbance = Disturbance::random(scenario, rng);
    scenario.run(
        from_first_sample(scenario),
        |step| scenario.base + scenario.conditions.growth * scenario.fraction(step),
        |step| disturbance.at(step, rng) + height * teeth.at(step),
    )
}

/// The first begins in the first 30 % of the run, the second at 40 to 80 %; each has at least 30 % of the growth.
pub fn two_leaks(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (first, second) = (rng.random_range(0.0..0.3), rng.random_range(0.4..0.8));
    let weight = rng.random_range(0.3..0.7);
    let (one, other) = (linear_from(scenario, first), linear_from(scenario, second));
    let since = scenario.step_at(first);
    leak(scenario, rng, Claim::Leaks { since, visible_from: since }, |step| {
        weight * one(step) + (1.0 - weight) * other(step)
    })
}

/// All teeth have the same maximum; only the minimum after each trim rises.
pub fn hidden_by_trimming(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let teeth = Sawtooth::new(scenario, period(scenario, 10.0, rng), 0.6, 1.0, rng);
    let height = scenario.conditions.growth + log_uniform(rng, 16.0, 128.0) * MIB;
    let leaked = |step| scenario.conditions.growth * scenario.fraction(step);
    let mut disturbance = Disturbance::random(scenario, rng);
    scenario.run(
        from_first_sample(scenario),
        |step| scenario.base + leaked(step),
        |step| disturbance.at(step, rng) + (height - leaked(step)) * teeth.passed(step),
    )
}

/// Shifts the step numbers of a run by a random number.
pub fn shifted(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Scenario {
    let offset = log_uniform(rng, 1e3, 1e7) as u64;
    Scenario { first: scenario.first + offset, planned: scenario.planned + offset, ..scenario.clone() }
}

pub fn log_begins_late(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    linear(&shifted(scenario, rng), rng)
}

/// Extends a run to at least 800 steps, and draws the first steps of one to three further processes.
pub fn with_restarts(scenario: &Scenario, rng: &mut ChaCha8Rng) -> (Scenario, Vec<u64>) {
    let steps = scenario.steps.max(800);
    let scenario = Scenario { steps, planned: scenario.planned + steps - scenario.steps, ..scenario.clone() };
    let restarts: u32 = rng.random_range(1..=3);
    let fraction = |number: u32| (f64::from(number) + rng.random_range(-0.2..0.2)) / f64::from(restarts + 1);
    let restarts = (1..=restarts).map(fraction).map(|fraction| scenario.step_at(fraction)).collect();
    (scenario, restarts)
}

/// All processes leak at the same rate; the last one leaks the growth of the conditions.
pub fn restarted(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (scenario, restarts) = with_restarts(scenario, rng);
    let newest = restarts.last().copied().unwrap_or(scenario.first);
    let rate = scenario.conditions.growth / (scenario.first + scenario.steps - newest) as f64;
    let mut disturbance = Disturbance::random(&scenario, rng);
    let sample = |step| {
        let start = restarts.iter().rev().copied().find(|start| *start <= step).unwrap_or(scenario.first);
        let level = scenario.base + rate * (step - start) as f64;
        Sample { step, level, bytes: (level + disturbance.at(step, rng)).max(0.0) }
    };
    let samples = scenario.sample_steps().map(sample).collect();
    let first = scenario.sample_steps().find(|step| *step >= newest).unwrap_or(newest);
    scenario.run_of(samples, restarts.clone(), Claim::Leaks { since: newest, visible_from: first })
}
