//! Habits that stop growing, and a random walk.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::super::series::{Ar1, Claim, MIB, Noise, Run, Sample, Scenario, gaussian, log_uniform};
use super::shapes::{Disturbance, Sawtooth, StepFunction, mib, period, with_level};

/// Generates a run whose level stays at the base, with samples above it.
fn flat_level(scenario: &Scenario, rng: &mut ChaCha8Rng, mut above: impl FnMut(u64, &mut ChaCha8Rng) -> f64) -> Run {
    let mut disturbance = Disturbance::random(scenario, rng);
    scenario.run(Claim::Settles, |_| scenario.base, |step| disturbance.at(step, rng) + above(step, rng))
}

pub fn flat(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    flat_level(scenario, rng, |_, _| 0.0)
}

/// A third of the runs with enough epochs have the period of the epochs.
pub fn saw_of_fixed_period(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let per_epoch =
        scenario.steps_per_epoch > 0 && scenario.steps / scenario.steps_per_epoch >= 6 && rng.random_bool(0.33);
    let period = if per_epoch { scenario.steps_per_epoch as f64 } else { period(scenario, 6.0, rng) };
    let (teeth, height) = (Sawtooth::new(scenario, period, 0.0, 1.0, rng), mib(rng, 8.0, 256.0));
    flat_level(scenario, rng, |step, _| height * teeth.at(step))
}

/// The last tooth is half to twice as long as the first; each varies.
pub fn saw_of_drifting_period(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (period, jitter) = (period(scenario, 8.0, rng), rng.random_range(0.02..0.3));
    let stretch = log_uniform(rng, 0.5, 2.0);
    let (teeth, height) = (Sawtooth::new(scenario, period, jitter, stretch, rng), mib(rng, 8.0, 256.0));
    flat_level(scenario, rng, |step, _| height * teeth.at(step))
}

/// The C library trims at irregular times and incompletely.
pub fn trim_teeth(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let period = period(scenario, 8.0, rng);
    let teeth = Sawtooth::new(scenario, period, 0.7, 1.0, rng).leaving(0.25, rng);
    let height = mib(rng, 8.0, 192.0);
    flat_level(scenario, rng, |step, _| height * teeth.at(step))
}

pub fn quick_autoregression(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let samples = (scenario.steps / scenario.every) as f64;
    let time = log_uniform(rng, 2.0, (samples / 100.0).max(2.5));
    autoregression(scenario, time, rng)
}

pub fn slow_autoregression(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let samples = (scenario.steps / scenario.every) as f64;
    let time = samples * log_uniform(rng, 0.01, 0.05);
    autoregression(scenario, time, rng)
}

fn autoregression(scenario: &Scenario, samples: f64, rng: &mut ChaCha8Rng) -> Run {
    let noise = Noise::Correlated(Ar1::new(scenario.conditions.noise, samples));
    let mut disturbance = Disturbance::with(noise, scenario, rng);
    scenario.run(Claim::Settles, |_| scenario.base, |step| disturbance.at(step, rng))
}

/// Returns the growth of a warming cache in the last third of the run, as a fraction of its size; `time` is its time constant as a
/// fraction of the run.
fn growth_in_last_third(time: f64) -> f64 {
    (-2.0 / (3.0 * time)).exp() - (-1.0 / time).exp()
}

/// A cache of random items fills exponentially; it grows by at most half of `growth_min` in the last third.
pub fn warming_cache(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let time = log_uniform(rng, 0.05, 0.5);
    let most = 0.48 * scenario.conditions.growth_min / growth_in_last_third(time) / MIB;
    let size = mib(rng, 16.0, most.clamp(17.0, 512.0));
    warming(scenario, time, size, rng)
}

/// The cache grows by 0.55 to 0.95 times `growth_min` in the last third.
pub fn warming_cache_nearly_full(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let time = log_uniform(rng, 0.15, 0.5);
    let gain = rng.random_range(0.55..0.95) * scenario.conditions.growth_min;
    warming(scenario, time, gain / growth_in_last_third(time), rng)
}

/// The cache grows by 1.1 to 4 times `growth_min` in the last third.
pub fn warming_cache_far_from_full(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let time = log_uniform(rng, 0.2, 0.5);
    let gain = log_uniform(rng, 1.1, 4.0) * scenario.conditions.growth_min;
    warming(scenario, time, gain / growth_in_last_third(time), rng)
}

fn warming(scenario: &Scenario, time: f64, size: f64, rng: &mut ChaCha8Rng) -> Run {
    with_level(scenario, rng, Claim::Settles, |step| {
        scenario.base + size * (1.0 - (-scenario.fraction(step) / time).exp())
    })
}

/// Returns a level that fills at varying rates until 10 to 60 % of the run.
fn filling(scenario: &Scenario, rng: &mut ChaCha8Rng) -> impl Fn(u64) -> f64 + use<> {
    let (size, full) = (mib(rng, 32.0, 1024.0), rng.random_range(0.1..0.6));
    let pieces: Vec<f64> = (0..rng.random_range(1..8)).map(|_| rng.random_range(0.3..1.7)).collect();
    let sum: f64 = pieces.iter().sum();
    let (first, steps, base) = (scenario.first, scenario.steps as f64, scenario.base);
    move |step| {
        let position = ((step - first) as f64 / steps / full).min(1.0) * pieces.len() as f64;
        let filled = |(piece, speed): (usize, &f64)| (position - piece as f64).clamp(0.0, 1.0) * speed;
        base + size * pieces.iter().enumerate().map(filled).sum::<f64>() / sum
    }
}

pub fn page_cache(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let level = filling(scenario, rng);
    with_level(scenario, rng, Claim::Settles, level)
}

pub fn page_cache_below_a_saw(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (level, period) = (filling(scenario, rng), period(scenario, 8.0, rng));
    let (teeth, height) = (Sawtooth::new(scenario, period, 0.4, 1.0, rng), mib(rng, 8.0, 128.0));
    let mut disturbance = Disturbance::random(scenario, rng);
    scenario.run(Claim::Settles, level, |step| disturbance.at(step, rng) + height * teeth.at(step))
}

/// An allocator keeps the memory of the largest batch so far; batch sizes are bounded.
pub fn ratchet(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (scale, batches) = (mib(rng, 3.0, 24.0), rng.random_range(20..400));
    let mut large_batches: Vec<(u64, f64)> = (0..batches)
        .map(|_| {
            let size = -rng.random_range(1e-9_f64..1.0).ln();
            (scenario.step_at(rng.random_range(0.0..1.0)), scale * size.min(5.0))
        })
        .collect();
    large_batches.sort_by_key(|(step, _)| *step);
    let mut high_water = 0.0;
    let mut rises = Vec::new();
    for (step, size) in large_batches {
        if size > high_water {
            rises.push((step, size - high_water));
            high_water = size;
        }
    }
    let rises = StepFunction::new(rises);
    with_level(scenario, rng, Claim::SettlesAfterSteps, |step| scenario.base + rises.at(step))
}

/// Batches of three to eight sizes in random order: single batches or blocks of one size.
pub fn changing_batch_sizes(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let largest = mib(rng, 16.0, 256.0);
    let sizes: Vec<f64> = (0..rng.random_range(3..=8)).map(|_| rng.random_range(0.0..largest)).collect();
    let block = if rng.random_bool(0.3) { 1.0 } else { scenario.steps as f64 * log_uniform(rng, 0.002, 0.03) };
    let (mut until, mut size) = (0.0, 0.0);
    flat_level(scenario, rng, |step, rng| {
        if step as f64 >= until {
            until = step as f64 + block * rng.random_range(0.5..1.5);
            size = sizes[rng.random_range(0..sizes.len())];
        }
        size
    })
}

/// Sequences get longer in two to six stages, the last of which begins at 15 to 60 % of the run; variance grows with length.
pub fn curriculum(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (stages, end) = (rng.random_range(2..=6), rng.random_range(0.15..0.6));
    let height = mib(rng, 8.0, 128.0);
    let even = rng.random_bool(0.5);
    let stages = (1..=stages).map(|stage| {
        let at = if even { end * f64::from(stage) / f64::from(stages) } else { rng.random_range(0.03..end) };
        (scenario.step_at(at), height * rng.random_range(0.5..1.5))
    });
    let stages = StepFunction::new(stages.collect());
    let varies = rng.random_range(0.0..0.1);
    let mut disturbance = Disturbance::random(scenario, rng);
    scenario.run(
        Claim::Settles,
        |step| scenario.base + stages.at(step),
        |step| disturbance.at(step, rng) + varies * stages.at(step) * rng.random_range(-1.0..1.0),
    )
}

/// The optimiser's state is allocated at 2 to 60 % of the run, within 2 % of the run.
pub fn late_optimiser_state(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (size, start) = (mib(rng, 16.0, 512.0), rng.random_range(0.02..0.6));
    let takes = if rng.random_bool(0.5) { 1e-9 } else { rng.random_range(0.002..0.02) };
    let allocated = |step| ((scenario.fraction(step) - start) / takes).clamp(0.0, 1.0);
    with_level(scenario, rng, Claim::Settles, |step| scenario.base + size * allocated(step))
}

/// At 10 to 90 % of the run, level and noise change, and a sawtooth may begin.
pub fn phase_switch(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let switch = scenario.step_at(rng.random_range(0.1..0.9));
    let size = mib(rng, 16.0, 512.0);
    let size = if rng.random_bool(0.5) { size } else { -size.min(0.8 * scenario.base) };
    let mut second = scenario.clone();
    second.conditions.noise = (scenario.conditions.noise * log_uniform(rng, 0.3, 3.0)).min(30.0 * MIB);
    let (mut before, mut after) = (Disturbance::random(scenario, rng), Disturbance::random(&second, rng));
    let teeth = Sawtooth::new(scenario, scenario.steps as f64 / rng.random_range(60.0..200.0), 0.3, 1.0, rng);
    let height = if rng.random_bool(0.4) { mib(rng, 8.0, 64.0) } else { 0.0 };
    scenario.run(
        Claim::SettlesAfterSteps,
        |step| if step < switch { scenario.base } else { scenario.base + size },
        |step| {
            let disturbance = if step < switch { &mut before } else { &mut after };
            disturbance.at(step, rng) + if step < switch { 0.0 } else { height * teeth.at(step) }
        },
    )
}

/// One to three buffers are allocated at 5 to 95 % of the run and stay; up to six are freed again.
pub fn one_off_buffers(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let permanent =
        (0..rng.random_range(1..=3)).map(|_| (scenario.step_at(rng.random_range(0.05..0.95)), mib(rng, 8.0, 256.0)));
    let permanent = StepFunction::new(permanent.collect());
    let mut temporary = Vec::new();
    for _ in 0..rng.random_range(0..=6) {
        let (start, size) = (rng.random_range(0.0..0.95), mib(rng, 8.0, 256.0));
        temporary.push((scenario.step_at(start), size));
        temporary.push((scenario.step_at((start + rng.random_range(0.005..0.1)).min(0.98)), -size));
    }
    let temporary = StepFunction::new(temporary);
    let mut disturbance = Disturbance::random(scenario, rng);
    scenario.run(
        Claim::SettlesAfterSteps,
        |step| scenario.base + permanent.at(step),
        |step| disturbance.at(step, rng) + temporary.at(step),
    )
}

/// Memory of the start is freed, at once or gradually.
pub fn shrinking(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (size, time) = (mib(rng, 16.0, 512.0), log_uniform(rng, 0.02, 1.0));
    with_level(scenario, rng, Claim::Settles, |step| scenario.base + size * (-scenario.fraction(step) / time).exp())
}

/// Log of a resumed run, which begins at a high step number.
pub fn log_begins_late(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let scenario = super::growing::shifted(scenario, rng);
    match rng.random_range(0..4) {
        0 => flat(&scenario, rng),
        1 => saw_of_fixed_period(&scenario, rng),
        2 => page_cache(&scenario, rng),
        _ => warming_cache(&scenario, rng),
    }
}

/// Two to four processes, each of which fills its cache.
pub fn restarted(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let (scenario, restarts) = super::growing::with_restarts(scenario, rng);
    let time = scenario.steps as f64 * log_uniform(rng, 0.002, 0.015);
    let size = mib(rng, 8.0, 256.0);
    let bases: Vec<f64> = (0..=restarts.len()).map(|_| scenario.base * rng.random_range(0.8..1.25)).collect();
    let mut disturbance = Disturbance::random(&scenario, rng);
    let sample = |step| {
        let process = restarts.partition_point(|start| *start <= step);
        let start = if process == 0 { scenario.first } else { restarts[process - 1] };
        let level = bases[process] + size * (1.0 - (-((step - start) as f64) / time).exp());
        Sample { step, level, bytes: (level + disturbance.at(step, rng)).max(0.0) }
    };
    let samples = scenario.sample_steps().map(sample).collect();
    scenario.run_of(samples, restarts.clone(), Claim::Settles)
}

/// The standard deviation at the end is 8 to 128 MiB.
pub fn random_walk(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Run {
    let deviation = mib(rng, 8.0, 128.0) / ((scenario.steps / scenario.every) as f64).sqrt();
    let mut disturbance = Disturbance::random(scenario, rng);
    let mut level = scenario.base + 512.0 * MIB;
    let sample = |step| {
        level = (level + gaussian(rng, deviation)).max(0.0);
        Sample { step, level, bytes: (level + disturbance.at(step, rng)).max(0.0) }
    };
    let samples = scenario.sample_steps().map(sample).collect();
    scenario.run_of(samples, Vec::new(), Claim::RandomWalk)
}
