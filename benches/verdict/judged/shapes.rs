//! What are the habits of the judged set put together from?

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::super::series::{Ar1, Draw, Noise, log_uniform};

/// What lies above the level in every habit: noise, validations that leave more for one sample, a start that takes a few
/// steps.
pub struct Around {
    noise: Noise,
    /// Steps between two spikes, and their bytes.
    spikes: Option<(u64, f64)>,
    /// The step at which all is there, and how much is not at first.
    start: Option<(u64, f64)>,
    first: u64,
}

impl Around {
    pub fn of(draw: &Draw, rng: &mut ChaCha8Rng) -> Self {
        let deviation = draw.asked.noise;
        let noise = match rng.random_range(0..20) {
            0..8 => Noise::Gaussian(deviation),
            8..13 => Noise::Upward(deviation),
            13..15 => Noise::Uniform(deviation),
            _ => Noise::Correlated(Ar1::new(deviation, rng.random_range(0.8..4.0))),
        };
        Self::with(noise, draw, rng)
    }

    pub fn with(noise: Noise, draw: &Draw, rng: &mut ChaCha8Rng) -> Self {
        let validation = draw.cadences[1];
        let height = log_uniform(rng, 1.0, 16.0) * draw.asked.growth_min;
        let spikes = (validation >= 4 && rng.random_bool(0.25)).then_some((validation, height));
        let lasts = (rng.random_range(0.002..0.02) * draw.steps as f64).ceil() as u64;
        let missing = rng.random_range(0.05..0.5) * draw.base;
        let start = rng.random_bool(0.4).then_some((draw.first + lasts, missing));
        Self { noise, spikes, start, first: draw.first }
    }

    pub fn at(&mut self, step: u64, rng: &mut ChaCha8Rng) -> f64 {
        let mut value = self.noise.next(rng);
        if let Some((every, height)) = self.spikes
            && step.is_multiple_of(every)
        {
            value += height * rng.random_range(0.5..1.5);
        }
        if let Some((ends, missing)) = self.start
            && step < ends
        {
            value -= missing * (ends - step) as f64 / (ends - self.first) as f64;
        }
        value
    }
}

/// Teeth of a saw: what is accumulator, and given back at once.
pub struct Teeth {
    /// The step at which each tooth begins; the last of them is after the end of the run.
    begins: Vec<f64>,
    /// What is left from the tooth before, and the height, as shares of the common height.
    feet: Vec<f64>,
    tops: Vec<f64>,
}

impl Teeth {
    /// Teeth of `period` steps, each of which is longer or shorter by up to `jitter` of it, and whose last one is
    /// `stretch` times as long as the first.
    pub fn new(draw: &Draw, period: f64, jitter: f64, stretch: f64, rng: &mut ChaCha8Rng) -> Self {
        let mut at = draw.first as f64 - rng.random_range(0.0..1.0) * period;
        let mut teeth = Self { begins: Vec::new(), feet: Vec::new(), tops: Vec::new() };
        let end = (draw.first + draw.steps) as f64;
        while at <= end {
            teeth.begins.push(at);
            teeth.feet.push(0.0);
            let longer = if jitter > 0.0 { 1.0 + rng.random_range(-jitter..jitter) } else { 1.0 };
            // As high as it is long: what is accumulator in a step is the same.
            teeth.tops.push(longer);
            let place = ((at - draw.first as f64) / draw.steps as f64).max(0.0);
            at += (period * longer * stretch.powf(place)).max(2.0);
        }
        teeth.begins.push(at);
        teeth
    }

    /// What a trim does not find: up to this share of the height.
    pub fn leaving(mut self, share: f64, rng: &mut ChaCha8Rng) -> Self {
        self.feet.iter_mut().for_each(|foot| *foot = rng.random_range(0.0..share));
        self
    }

    /// The tooth that a step is in, and which part of it has passed.
    fn place(&self, step: u64) -> (usize, f64) {
        let after = self.begins.partition_point(|begins| *begins <= step as f64);
        let tooth = after.saturating_sub(1).min(self.begins.len() - 2);
        let (begins, ends) = (self.begins[tooth], self.begins[tooth + 1]);
        (tooth, ((step as f64 - begins) / (ends - begins)).clamp(0.0, 1.0))
    }

    /// The height at a step, as a share of the common height.
    pub fn at(&self, step: u64) -> f64 {
        let (tooth, passed) = self.place(step);
        self.feet[tooth] + passed * self.tops[tooth]
    }

    /// The part of a tooth that has passed at a step.
    pub fn passed(&self, step: u64) -> f64 {
        self.place(step).1
    }
}

/// A level that changes at once, at some steps.
#[derive(Default)]
pub struct Changes {
    at: Vec<u64>,
    sums: Vec<f64>,
}

impl Changes {
    pub fn new(mut changes: Vec<(u64, f64)>) -> Self {
        changes.sort_by_key(|(step, _)| *step);
        let mut sum = 0.0;
        let sums = changes.iter().map(|(_, bytes)| {
            sum += bytes;
            sum
        });
        Self { sums: sums.collect(), at: changes.iter().map(|(step, _)| *step).collect() }
    }

    /// Changes whose sum is `total`.
    pub fn summing_to(total: f64, changes: Vec<(u64, f64)>) -> Self {
        let sum: f64 = changes.iter().map(|(_, bytes)| bytes).sum();
        Self::new(changes.into_iter().map(|(step, bytes)| (step, bytes * total / sum)).collect())
    }

    /// The sum of the changes up to and with a step.
    pub fn at(&self, step: u64) -> f64 {
        match self.at.partition_point(|at| *at <= step) {
            0 => 0.0,
            before => self.sums[before - 1],
        }
    }

    pub fn first(&self) -> u64 {
        self.at.first().copied().unwrap_or_default()
    }
}

/// Steps between two teeth, of at least `fewest` in the run.
pub fn period(draw: &Draw, fewest: f64, rng: &mut ChaCha8Rng) -> f64 {
    let most = (draw.steps as f64 / (4 * draw.every) as f64).min(3000.0);
    draw.steps as f64 / log_uniform(rng, fewest, most)
}
