//! Tuned set: the habits on which the thresholds of the verdict were chosen.

mod traces;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::series::{
    Ar1, Claim, Conditions, Habit, LATE_REST, LEAK, MIB, Noise, REST, Run, Sample, Scenario, Set, WALK, gaussian,
    habit, log_uniform,
};

pub const SET: Set = Set { name: "tuned", seed: 0x7475_6e69_6e67, habits: HABITS, draw };

const HABITS: &[Habit] = &[
    habit("flat", REST, flat),
    habit("saw of a fixed period", REST, saw),
    habit("saw of a drifting period", REST, drifting_saw),
    habit("teeth of trimming", REST, trim_teeth),
    habit("autoregressive", REST, autoregressive),
    habit("warming cache", REST, warming),
    habit("page cache", REST, page_cache),
    habit("ratchet", REST, ratchet),
    habit("batches of several sizes", REST, batches),
    habit("curriculum", REST, curriculum),
    habit("late optimiser state", REST, late_state),
    habit("phase switch", REST, phase_switch),
    habit("one-off buffers", REST, one_off),
    habit("falling", REST, falling),
    habit("random walk", WALK, walk),
    habit("linear", LEAK, linear),
    habit("per epoch", LEAK, per_epoch),
    habit("per validation", LEAK, per_validation),
    habit("in bursts", LEAK, bursts),
    habit("late", LEAK, late),
    habit("slowing as a square root", LEAK, square_root),
    habit("stairs", LEAK, stairs),
    habit("saw with a rising floor", LEAK, rising_saw),
    habit("two leaks", LEAK, two_leaks),
    habit("hidden by trimming", LEAK, hidden),
    habit("after a warm-up", LEAK, after_warm_up),
    habit("resumed", LEAK, resumed),
    habit("zeros in a leak", LEAK, traces::zeros_in_a_leak),
    habit("zeros in a level", REST, traces::zeros_in_a_level),
    habit("ended after a leak", LEAK, traces::ended_after_a_leak),
    habit("ended after a level", REST, traces::ended_after_a_level),
    habit("full late", LATE_REST, traces::full_late),
    habit("doubling table", LEAK, traces::doubling_table),
    habit("even stages", REST, traces::even_stages),
    habit("leak in shifts", LEAK, traces::leak_in_shifts),
    habit("composite leak", LEAK, traces::composite_leak),
    habit("composite at rest", REST, traces::composite_level),
    habit("leak after a release", LEAK, traces::leak_after_a_release),
    habit("level after a release", REST, traces::level_after_a_release),
    habit("evicted late", REST, traces::evicted_late),
    habit("rising peaks", LEAK, traces::rising_peaks),
    habit("random peaks", REST, traces::random_peaks),
    habit("leak beyond 4 GiB, wrapped", LEAK, traces::leak_beyond_4_gib),
    habit("level around 4 GiB, wrapped", REST, traces::level_around_4_gib),
    habit("long-memory wander", REST, traces::long_memory_wander),
    habit("highest so far", REST, traces::highest_so_far),
    habit("full twice", LATE_REST, traces::full_twice),
    habit("slow start, at rest", REST, traces::slow_start_at_rest),
    habit("slow start and leak", LEAK, traces::slow_start_and_leak),
    habit("away and back", REST, traces::away_and_back),
    habit("worker missed in a leak", LEAK, traces::worker_missed_in_a_leak),
    habit("worker missed in a level", REST, traces::worker_missed_in_a_level),
    habit("doubled and full", LATE_REST, traces::doubled_and_full),
];

fn draw(conditions: Conditions, rng: &mut ChaCha8Rng) -> Scenario {
    let steps = log_uniform(rng, 200.0, 100_000.0) as u64;
    let every = if steps > 5000 { [1, 10, 50][rng.random_range(0..3)] } else { [1, 1, 5][rng.random_range(0..3)] };
    let steps_per_epoch = if rng.random::<bool>() { 0 } else { (steps / rng.random_range(3..60)).max(1) };
    let cleanup = [0, 10, 50][rng.random_range(0..3)];
    Scenario {
        conditions,
        first: 0,
        steps,
        every: if steps / every < 100 { 1 } else { every },
        planned: steps,
        steps_per_epoch,
        cadences: vec![cleanup, steps_per_epoch],
        settled: if steps_per_epoch > 0 && steps_per_epoch <= steps / 4 { steps_per_epoch } else { 0 },
        base: log_uniform(rng, 200.0, 40_000.0) * MIB,
    }
}

/// Draws one of four kinds of noise.
fn noise(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Noise {
    let deviation = scenario.conditions.noise;
    match rng.random_range(0..4) {
        0 => Noise::Upward(deviation),
        1 => Noise::Uniform(deviation),
        2 => Noise::Correlated(Ar1::new(deviation, rng.random_range(2.0..10.0))),
        _ => Noise::Gaussian(deviation),
    }
}

/// Returns the level of the first steps of a process, which rises quickly to the base.
fn start(scenario: &Scenario, rng: &mut ChaCha8Rng) -> impl Fn(u64) -> f64 + use<> {
    let (height, steps) = (rng.random_range(0.0..500.0) * MIB, rng.random_range(2.0..10.0));
    let (first, base) = (scenario.first, scenario.base);
    move |step| base - height * (-((step - first) as f64) / steps).exp()
}

/// Generates a run from its level above the base and a deviation of the samples, and adds noise and a start.
fn with_noise(
    scenario: &Scenario,
    rng: &mut ChaCha8Rng,
    claim: Claim,
    mut level: impl FnMut(u64, &mut ChaCha8Rng) -> f64,
    mut above: impl FnMut(u64, &mut ChaCha8Rng) -> f64,
) -> Run {
    let (mut noise, start) = (noise(scenario, rng), start(scenario, rng));
    let samples = scenario.sample_steps().map(|step| {
        // The start is not part of the level, as it ends within a few steps.
        let level = scenario.base + level(step, rng);
        let bytes = level + start(step) - scenario.base + above(step, rng) + noise.next(rng);
        Sample { step, bytes: bytes.max(0.0), level }
    });
    scenario.run_of(samples.collect(), Vec::new(), claim)
}

fn bounded(scenario: &Scenario, rng: &mut ChaCha8Rng, level: impl FnMut(u64, &mut ChaCha8Rng) -> f64) -> Run {
    with_noise(scenario, rng, Claim::Settles, level, |_, _| 0.0)
}

fn flat(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    bounded(scenario, rng, |_, _| 0.0)
}

fn saw(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let period = log_uniform(rng, 5.0, scenario.steps as f64 / 6.0).max(2.0) as u64;
    let (height, phase) = (log_uniform(rng, 8.0, 400.0) * MIB, rng.random_range(0..period));
    with_noise(
        scenario,
        rng,
        Claim::Settles,
        |_, _| 0.0,
        |step, _| height * ((step + phase) % period) as f64 / period as f64,
    )
}

fn drifting_saw(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let mean = log_uniform(rng, 8.0, scenario.steps as f64 / 8.0);
    let slope = log_uniform(rng, 8.0, 400.0) * MIB / mean;
    let (mut tooth_start, mut tooth_end) =
        (scenario.first, scenario.first + (mean * rng.random_range(0.4..1.6)) as u64);
    with_noise(
        scenario,
        rng,
        Claim::Settles,
        |_, _| 0.0,
        move |step, rng| {
            if step >= tooth_end {
                tooth_start = step;
                tooth_end = step + (mean * rng.random_range(0.4..1.6)) as u64;
            }
            slope * (step - tooth_start) as f64
        },
    )
}

fn trim_teeth(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let period = (scenario.steps as f64 / rng.random_range(7.0..50.0)).max(2.0);
    let (height, full_after) = (log_uniform(rng, 16.0, 300.0) * MIB, rng.random_range(0.5..1.0));
    let phase = rng.random_range(0.0..period);
    with_noise(
        scenario,
        rng,
        Claim::Settles,
        |_, _| 0.0,
        |step, _| {
            let at = (step as f64 + phase) / period;
            height * (at.fract() / full_after).min(1.0)
        },
    )
}

fn autoregressive(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let count = scenario.sample_steps().count() as f64;
    let mut process = Ar1::new(rng.random_range(2.0..30.0) * MIB, log_uniform(rng, 2.0, count / 10.0));
    with_noise(scenario, rng, Claim::Settles, |_, _| 0.0, move |_, rng| process.next(rng))
}

fn warming(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (height, time) = (log_uniform(rng, 8.0, 1000.0) * MIB, rng.random_range(0.05..0.5));
    bounded(scenario, rng, |step, _| height * (1.0 - (-scenario.fraction(step) / time).exp()))
}

fn page_cache(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (height, full) = (log_uniform(rng, 8.0, 1000.0) * MIB, rng.random_range(0.1..0.9));
    bounded(scenario, rng, |step, _| height * (scenario.fraction(step) / full).min(1.0))
}

fn ratchet(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (fraction, tail_exponent) = (rng.random_range(0.1..0.7), rng.random_range(0.2..0.6));
    let mut high_water: f64 = 0.0;
    let peak_max = rng.random_range(200.0..800.0);
    with_noise(
        scenario,
        rng,
        Claim::SettlesAfterSteps,
        move |_, rng| {
            let peak = 60.0 * (1.0 - rng.random::<f64>()).powf(-tail_exponent);
            high_water = high_water.max(peak.min(peak_max));
            fraction * high_water * MIB
        },
        |_, _| 0.0,
    )
}

fn batches(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let sizes: Vec<f64> = (0..rng.random_range(2..6)).map(|_| rng.random_range(0.0..200.0) * MIB).collect();
    with_noise(scenario, rng, Claim::Settles, |_, _| 0.0, move |_, rng| sizes[rng.random_range(0..sizes.len())])
}

fn curriculum(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (stages, end) = (rng.random_range(2..8) as f64, rng.random_range(0.3..0.66));
    let height = log_uniform(rng, 8.0, 200.0) * MIB;
    bounded(scenario, rng, |step, _| height * (scenario.fraction(step) / end * stages).floor().min(stages))
}

fn late_state(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (height, at) = (log_uniform(rng, 16.0, 1000.0) * MIB, rng.random_range(0.1..0.95));
    with_noise(
        scenario,
        rng,
        Claim::SettlesAfterSteps,
        |step, _| if scenario.fraction(step) >= at { height } else { 0.0 },
        |_, _| 0.0,
    )
}

fn phase_switch(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (height, at) = (rng.random_range(-300.0..300.0) * MIB, rng.random_range(0.2..0.8));
    let (saw, period) = (rng.random_range(0.0..60.0) * MIB, rng.random_range(5..50));
    with_noise(
        scenario,
        rng,
        Claim::SettlesAfterSteps,
        |step, _| if scenario.fraction(step) >= at { height } else { 0.0 },
        |step, _| {
            if scenario.fraction(step) >= at { saw * (step % period) as f64 / period as f64 } else { 0.0 }
        },
    )
}

fn one_off(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let buffers: Vec<(f64, f64)> = (0..rng.random_range(1..4))
        .map(|_| (rng.random_range(0.05..0.9), log_uniform(rng, 8.0, 300.0) * MIB))
        .collect();
    with_noise(
        scenario,
        rng,
        Claim::SettlesAfterSteps,
        |step, _| buffers.iter().filter(|(at, _)| scenario.fraction(step) >= *at).map(|(_, height)| height).sum(),
        |_, _| 0.0,
    )
}

fn falling(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let height = rng.random_range(10.0..150.0) * MIB;
    bounded(scenario, rng, |step, _| -height * scenario.fraction(step))
}

fn walk(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let step = rng.random_range(20.0..200.0) * MIB / (scenario.sample_steps().count() as f64).sqrt();
    let mut level = 0.0;
    with_noise(
        scenario,
        rng,
        Claim::RandomWalk,
        move |_, rng| {
            level += gaussian(rng, step);
            level
        },
        |_, _| 0.0,
    )
}

fn linear(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let claim = Claim::Leaks { since: scenario.first, visible_from: scenario.first };
    with_noise(scenario, rng, claim, |step, _| scenario.conditions.growth * scenario.fraction(step), |_, _| 0.0)
}

/// Generates a leak that grows by equal amounts every `period` steps.
fn periodic(scenario: &Scenario, rng: &mut ChaCha8Rng, period: u64, phase: u64) -> Run {
    let stairs = scenario.steps / period;
    let per_stair = scenario.conditions.growth / stairs.max(1) as f64;
    let claim = Claim::Leaks { since: scenario.first, visible_from: scenario.first + period };
    with_noise(
        scenario,
        rng,
        claim,
        |step, _| per_stair * ((step - scenario.first + phase) / period) as f64,
        |_, _| 0.0,
    )
}

fn per_epoch(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let period = (scenario.steps / rng.random_range(6..100)).max(1);
    let scenario = Scenario { steps_per_epoch: period, cadences: vec![period], settled: period, ..scenario.clone() };
    periodic(&scenario, rng, period, 0)
}

fn per_validation(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let period = (scenario.steps / rng.random_range(6..40)).max(1);
    let scenario = Scenario { cadences: vec![10, period], settled: period, ..scenario.clone() };
    periodic(&scenario, rng, period, 0)
}

fn stairs(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let period = (scenario.steps as f64 / log_uniform(rng, 6.0, 60.0)).max(1.0) as u64;
    let phase = rng.random_range(0..period);
    periodic(scenario, rng, period, phase)
}

fn bursts(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let count = rng.random_range(10..60);
    let mut at: Vec<f64> = (0..count).map(|_| rng.random::<f64>()).collect();
    at.sort_by(f64::total_cmp);
    let sizes: Vec<f64> = at.iter().map(|_| rng.random_range(0.3..1.7)).collect();
    let total: f64 = sizes.iter().sum();
    let claim = Claim::Leaks { since: scenario.first, visible_from: scenario.step_at(at[0]) };
    with_noise(
        scenario,
        rng,
        claim,
        |step, _| {
            let burst = at.iter().zip(&sizes).take_while(|(at, _)| **at <= scenario.fraction(step));
            scenario.conditions.growth * burst.map(|(_, size)| size).sum::<f64>() / total
        },
        |_, _| 0.0,
    )
}

fn late(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let start = rng.random_range(0.1..0.85);
    let claim = Claim::Leaks { since: scenario.step_at(start), visible_from: scenario.step_at(start) };
    with_noise(
        scenario,
        rng,
        claim,
        |step, _| scenario.conditions.growth * ((scenario.fraction(step) - start) / (1.0 - start)).max(0.0),
        |_, _| 0.0,
    )
}

fn square_root(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let claim = Claim::Slows { since: scenario.first, visible_from: scenario.first };
    with_noise(scenario, rng, claim, |step, _| scenario.conditions.growth * scenario.fraction(step).sqrt(), |_, _| 0.0)
}

fn rising_saw(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let period = log_uniform(rng, 5.0, scenario.steps as f64 / 16.0).max(2.0) as u64;
    let height = log_uniform(rng, 8.0, 200.0) * MIB;
    let claim = Claim::Leaks { since: scenario.first, visible_from: scenario.first };
    with_noise(
        scenario,
        rng,
        claim,
        |step, _| scenario.conditions.growth * scenario.fraction(step),
        |step, _| height * (step % period) as f64 / period as f64,
    )
}

fn two_leaks(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (first, second) = (rng.random_range(0.0..0.3), rng.random_range(0.3..0.7));
    let weight = rng.random_range(0.3..0.7);
    let claim = Claim::Leaks { since: scenario.step_at(first), visible_from: scenario.step_at(first) };
    let from = |start: f64, at: f64| ((at - start) / (1.0 - start)).max(0.0);
    with_noise(
        scenario,
        rng,
        claim,
        |step, _| {
            let at = scenario.fraction(step);
            scenario.conditions.growth * (weight * from(first, at) + (1.0 - weight) * from(second, at))
        },
        |_, _| 0.0,
    )
}

fn hidden(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let period = scenario.steps as f64 / rng.random_range(16.0..60.0);
    let height = rng.random_range(0.5..2.0) * scenario.conditions.growth.min(100.0 * MIB);
    let claim = Claim::Leaks { since: scenario.first, visible_from: scenario.first };
    with_noise(
        scenario,
        rng,
        claim,
        |step, _| scenario.conditions.growth * scenario.fraction(step),
        |step, _| height * (step as f64 / period).fract(),
    )
}

fn after_warm_up(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (height, time, start) =
        (rng.random_range(50.0..500.0) * MIB, rng.random_range(0.01..0.06), rng.random_range(0.4..0.6));
    let claim = Claim::Leaks { since: scenario.step_at(start), visible_from: scenario.step_at(start) };
    with_noise(
        scenario,
        rng,
        claim,
        |step, _| {
            let at = scenario.fraction(step);
            height * (1.0 - (-at / time).exp()) + scenario.conditions.growth * ((at - start) / (1.0 - start)).max(0.0)
        },
        |_, _| 0.0,
    )
}

fn resumed(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let first = log_uniform(rng, 1000.0, 2_000_000.0) as u64;
    let scenario = Scenario { first, planned: first + scenario.steps, ..scenario.clone() };
    linear(&scenario, rng)
}
