//! Building blocks of the habits of the judged set.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::super::series::{Ar1, Claim, MIB, Noise, Run, Scenario, log_uniform};

/// Deviation of samples from the level: noise, spikes at validations, and less memory in the first steps.
pub struct Disturbance {
    noise: Noise,
    /// Steps between spikes, and their height in bytes.
    spikes: Option<(u64, f64)>,
    /// First step at the full level, and the bytes missing at the first step.
    start: Option<(u64, f64)>,
    first: u64,
}

impl Disturbance {
    /// Draws one of four kinds of noise, spikes and a start.
    pub fn random(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Self {
        let deviation = scenario.conditions.noise;
        let noise = match rng.random_range(0..20) {
            0..8 => Noise::Gaussian(deviation),
            8..13 => Noise::Upward(deviation),
            13..15 => Noise::Uniform(deviation),
            _ => Noise::Correlated(Ar1::new(deviation, rng.random_range(0.8..4.0))),
        };
        Self::with(noise, scenario, rng)
    }

    /// Draws spikes and a start for a kind of noise.
    pub fn with(noise: Noise, scenario: &Scenario, rng: &mut ChaCha8Rng) -> Self {
        let validation = scenario.cadences[1];
        let height = log_uniform(rng, 1.0, 16.0) * scenario.conditions.growth_min;
        let spikes = (validation >= 4 && rng.random_bool(0.25)).then_some((validation, height));
        let duration = (rng.random_range(0.002..0.02) * scenario.steps as f64).ceil() as u64;
        let missing = rng.random_range(0.05..0.5) * scenario.base;
        let start = rng.random_bool(0.4).then_some((scenario.first + duration, missing));
        Self { noise, spikes, start, first: scenario.first }
    }

    /// Returns the deviation at a step, in bytes.
    pub fn at(&mut self, step: u64, rng: &mut ChaCha8Rng) -> f64 {
        let mut value = self.noise.next(rng);
        if let Some((every, height)) = self.spikes
            && step.is_multiple_of(every)
        {
            value += height * rng.random_range(0.5..1.5);
        }
        if let Some((end, missing)) = self.start
            && step < end
        {
            value -= missing * (end - step) as f64 / (end - self.first) as f64;
        }
        value
    }
}

/// Sawtooth: memory that accumulates and is freed at once.
pub struct Sawtooth {
    /// First step of each tooth; the last one is after the end of the run.
    starts: Vec<f64>,
    /// Memory left over from the previous tooth, as a fraction of the common height.
    bases: Vec<f64>,
    /// Height of each tooth, as a fraction of the common height.
    heights: Vec<f64>,
}

impl Sawtooth {
    /// Draws teeth of `period` steps, which vary by up to the fraction `jitter`; the last one is `stretch` times as long as the first.
    pub fn new(scenario: &Scenario, period: f64, jitter: f64, stretch: f64, rng: &mut ChaCha8Rng) -> Self {
        let mut at = scenario.first as f64 - rng.random_range(0.0..1.0) * period;
        let mut teeth = Self { starts: Vec::new(), bases: Vec::new(), heights: Vec::new() };
        let end = (scenario.first + scenario.steps) as f64;
        while at <= end {
            teeth.starts.push(at);
            teeth.bases.push(0.0);
            let factor = if jitter > 0.0 { 1.0 + rng.random_range(-jitter..jitter) } else { 1.0 };
            // Height proportional to length, so that each step adds the same number of bytes.
            teeth.heights.push(factor);
            let fraction = ((at - scenario.first as f64) / scenario.steps as f64).max(0.0);
            at += (period * factor * stretch.powf(fraction)).max(2.0);
        }
        teeth.starts.push(at);
        teeth
    }

    /// Leaves memory over at the end of a tooth: up to this fraction of the height.
    pub fn leaving(mut self, fraction: f64, rng: &mut ChaCha8Rng) -> Self {
        self.bases.iter_mut().for_each(|base| *base = rng.random_range(0.0..fraction));
        self
    }

    /// Returns the number of the tooth at a step, and the fraction of it that has passed.
    fn position(&self, step: u64) -> (usize, f64) {
        let after = self.starts.partition_point(|start| *start <= step as f64);
        let tooth = after.saturating_sub(1).min(self.starts.len() - 2);
        let (start, end) = (self.starts[tooth], self.starts[tooth + 1]);
        (tooth, ((step as f64 - start) / (end - start)).clamp(0.0, 1.0))
    }

    /// Returns the height at a step, as a fraction of the common height.
    pub fn at(&self, step: u64) -> f64 {
        let (tooth, passed) = self.position(step);
        self.bases[tooth] + passed * self.heights[tooth]
    }

    /// Returns the fraction of the current tooth that has passed at a step.
    pub fn passed(&self, step: u64) -> f64 {
        self.position(step).1
    }
}

/// Step function: sum of the changes up to a step.
#[derive(Default)]
pub struct StepFunction {
    at: Vec<u64>,
    sums: Vec<f64>,
}

impl StepFunction {
    /// Creates it from the step and size of each change.
    pub fn new(mut changes: Vec<(u64, f64)>) -> Self {
        changes.sort_by_key(|(step, _)| *step);
        let mut sum = 0.0;
        let sums = changes.iter().map(|(_, bytes)| {
            sum += bytes;
            sum
        });
        Self { sums: sums.collect(), at: changes.iter().map(|(step, _)| *step).collect() }
    }

    /// Scales the changes to a sum of `total`.
    pub fn summing_to(total: f64, changes: Vec<(u64, f64)>) -> Self {
        let sum: f64 = changes.iter().map(|(_, bytes)| bytes).sum();
        Self::new(changes.into_iter().map(|(step, bytes)| (step, bytes * total / sum)).collect())
    }

    /// Returns the sum of the changes up to and including a step.
    pub fn at(&self, step: u64) -> f64 {
        match self.at.partition_point(|at| *at <= step) {
            0 => 0.0,
            before => self.sums[before - 1],
        }
    }

    /// Returns the step of the first change.
    pub fn first(&self) -> u64 {
        self.at.first().copied().unwrap_or_default()
    }
}

/// Draws the number of steps of a tooth, with at least `min_teeth` in the run.
pub fn period(scenario: &Scenario, min_teeth: f64, rng: &mut ChaCha8Rng) -> f64 {
    let max_teeth = (scenario.steps as f64 / (4 * scenario.every) as f64).min(3000.0);
    scenario.steps as f64 / log_uniform(rng, min_teeth, max_teeth)
}

pub fn mib(rng: &mut ChaCha8Rng, low: f64, high: f64) -> f64 {
    log_uniform(rng, low, high) * MIB
}

/// Generates a run with a level and disturbances alone.
pub fn with_level(scenario: &Scenario, rng: &mut ChaCha8Rng, claim: Claim, level: impl FnMut(u64) -> f64) -> Run {
    let mut disturbance = Disturbance::random(scenario, rng);
    scenario.run(claim, level, |step| disturbance.at(step, rng))
}

/// Changes groups of one to three consecutive readings.
pub fn in_groups(mut run: Run, rng: &mut ChaCha8Rng, rate: f64, factor: f64) -> Run {
    let (longest, mut left) = (rng.random_range(1..=3), 0);
    for sample in &mut run.samples {
        if left == 0 && rng.random_bool(rate) {
            left = rng.random_range(1..=longest);
        }
        if left > 0 {
            (left, sample.bytes) = (left - 1, factor * sample.bytes);
        }
    }
    run
}
