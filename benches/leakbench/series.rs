//! Synthetic runs of the benchmark, and their ground truth.
//!
//! A *set* is a list of *habits*: kinds of memory series. A habit is a function that generates a [`Run`] from a [`Scenario`] and a
//! random number generator. A run consists of samples, the context that the verdict gets, and the truth.
//!
//! # Ground truth
//!
//! Each sample has a *level*: the memory that no cleanup returns, without noise and without the teeth of a sawtooth. The truth
//! follows from the level of the last process:
//!
//! - A habit that claims to stop growing is [`Truth::Bounded`] if the level rises by at most half of `growth_min` in the last third
//!   of the run, or if all of that rise is single steps (a buffer that is allocated once), which the habit declares with
//!   [`Claim::SettlesAfterSteps`]. If it rises by more than `growth_min`, the run is [`Truth::Slowing`]: a cache that is still filling.
//!   In between it is [`Truth::Between`]: no verdict is wrong.
//! - A habit that claims to leak is [`Truth::Growing`] or [`Truth::Slowing`], whatever the size of the leak.
//! - A random walk is [`Truth::RandomWalk`]: it has no correct verdict, so only the frequencies of verdicts are reported.
//!
//! A leak that grows in jumps (once an epoch, in bursts) begins at `since` and is observable from `visible_from`, its first jump. A reported
//! step between the two has an error of zero.

use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};
use xrun::verdict::VerdictWord;

pub const MIB: f64 = 1024.0 * 1024.0;

/// Habits, and the distribution of the properties of their runs.
pub struct Set {
    pub name: &'static str,
    /// Seed of the random numbers unless `--seed` is given.
    pub seed: u64,
    pub habits: &'static [Habit],
    pub draw: fn(Conditions, &mut ChaCha8Rng) -> Scenario,
}

/// Kind of memory series.
pub struct Habit {
    /// Unique in its set.
    pub name: &'static str,
    pub expected: Expected,
    pub generate: fn(&Scenario, &mut ChaCha8Rng) -> Run,
}

/// Creates a habit.
pub const fn habit(name: &'static str, expected: Expected, generate: fn(&Scenario, &mut ChaCha8Rng) -> Run) -> Habit {
    Habit { name, expected, generate }
}

/// Category of a habit, and the judgements that are right.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub category: Category,
    pub right: &'static [VerdictWord],
}

/// Memory that is at rest when the run ends.
pub const REST: Expected = Expected { category: Category::Bounded, right: VerdictWord::AT_REST };
/// Memory that has come to rest so late that *suspect* is right, too.
pub const LATE_REST: Expected = Expected {
    category: Category::Bounded,
    right: &[VerdictWord::Bounded, VerdictWord::GrewThenFlat, VerdictWord::Stepped, VerdictWord::Suspect],
};
/// Leak.
pub const LEAK: Expected = Expected {
    category: Category::Growing,
    right: &[VerdictWord::Growing, VerdictWord::Slowing, VerdictWord::Retained],
};
/// Cache that is still filling.
pub const FILLING: Expected = Expected {
    category: Category::Filling,
    right: &[VerdictWord::Growing, VerdictWord::Slowing, VerdictWord::Suspect],
};
/// Random walk, on which no judgement is right or wrong.
pub const WALK: Expected = Expected { category: Category::RandomWalk, right: &[] };

/// Category of a habit in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Stops growing: `growing` and `slowing` are false alarms if the truth of the run is [`Truth::Bounded`].
    Bounded,
    /// Cache that is still filling when the run ends; reported separately.
    Filling,
    /// Random walk; reported separately.
    RandomWalk,
    /// Leaks.
    Growing,
}

/// Experimental conditions of a run.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Standard deviation of a sample, in bytes.
    pub noise: f64,
    /// Growth over the run in bytes; 0 without a leak.
    pub growth: f64,
    /// `memory.growth_min`.
    pub growth_min: f64,
}

/// Randomly drawn properties of one run. A habit may change them in a copy (a leak per epoch needs epochs).
#[derive(Clone, Debug)]
pub struct Scenario {
    pub conditions: Conditions,
    /// First step with a sample; more than 1 in a resumed run.
    pub first: u64,
    /// Number of steps from the first sample to the last.
    pub steps: u64,
    /// Number of steps between samples.
    pub every: u64,
    /// Planned last step: `first + steps`, or more in a run that was stopped.
    pub planned: u64,
    /// Steps of an epoch; 0 without epochs.
    pub steps_per_epoch: u64,
    /// Steps between cleanups, validations and checkpoints; 0 if there are none.
    pub cadences: Vec<u64>,
    /// Value of `Context::settled`.
    pub settled: u64,
    /// Level at the first step, in bytes.
    pub base: f64,
}

/// Sample and its true level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub step: u64,
    /// Measured bytes.
    pub bytes: f64,
    /// Level, in bytes.
    pub level: f64,
}

/// Synthetic run of at most 100,000 samples.
#[derive(Clone, Debug)]
pub struct Run {
    pub samples: Vec<Sample>,
    /// First steps of further processes. Levels of different processes are unrelated.
    pub restarts: Vec<u64>,
    /// Planned last step.
    pub steps: u64,
    pub steps_per_epoch: u64,
    pub settled: u64,
    pub truth: Truth,
}

/// Claim of a habit about the run that it generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Stops growing, now or later; the truth follows from the level.
    Settles,
    /// Stops growing, except for single late steps; the level is not considered.
    SettlesAfterSteps,
    RandomWalk,
    Leaks {
        since: u64,
        visible_from: u64,
    },
    /// Leaks at a decreasing rate, without an end.
    Slows {
        since: u64,
        visible_from: u64,
    },
}

/// Ground truth of a run; see the documentation of the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Truth {
    Bounded,
    Between,
    RandomWalk,
    Growing { since: u64, visible_from: u64, growth: f64 },
    Slowing { since: u64, visible_from: u64, growth: f64 },
}

impl Scenario {
    /// Returns the steps with a sample.
    pub fn sample_steps(&self) -> impl Iterator<Item = u64> + use<> {
        (self.first..=self.first + self.steps).step_by(self.every.max(1) as usize)
    }

    /// Returns the step at a fraction of the run.
    pub fn step_at(&self, fraction: f64) -> u64 {
        self.first + (fraction * self.steps as f64).round() as u64
    }

    /// Returns the fraction of the run that has passed at a step.
    pub fn fraction(&self, step: u64) -> f64 {
        (step as f64 - self.first as f64) / self.steps as f64
    }

    /// Generates a run of one process from its level, and the deviation of the samples from the level.
    pub fn run(&self, claim: Claim, mut level: impl FnMut(u64) -> f64, mut above: impl FnMut(u64) -> f64) -> Run {
        let sample = |step| {
            let level = level(step);
            Sample { step, level, bytes: (level + above(step)).max(0.0) }
        };
        self.run_of(self.sample_steps().map(sample).collect(), Vec::new(), claim)
    }

    /// Creates a run from its samples.
    pub fn run_of(&self, samples: Vec<Sample>, restarts: Vec<u64>, claim: Claim) -> Run {
        let mut run = Run {
            samples,
            restarts,
            steps: self.planned,
            steps_per_epoch: self.steps_per_epoch,
            settled: self.settled,
            truth: Truth::Between,
        };
        run.truth = run.truth_of(claim, self.conditions);
        run
    }
}

impl Run {
    /// Returns the samples of the last process.
    pub fn last_process(&self) -> &[Sample] {
        let start = self.restarts.last().copied().unwrap_or_default();
        &self.samples[self.samples.partition_point(|sample| sample.step < start)..]
    }

    /// Returns the number of steps of the last process.
    pub fn span(&self) -> u64 {
        match self.last_process() {
            [first, .., last] => last.step - first.step,
            _ => 0,
        }
    }

    /// Returns the rise of the level from its minimum to the end of the last process, in bytes.
    pub fn rise(&self) -> f64 {
        rise(self.last_process())
    }

    /// Returns the rise in the last third of the last process, in bytes.
    pub fn late_rise(&self) -> f64 {
        let newest = self.last_process();
        let start = newest.last().map_or(0, |last| last.step) - self.span() / 3;
        rise(&newest[newest.partition_point(|sample| sample.step < start)..])
    }

    fn truth_of(&self, claim: Claim, Conditions { growth, growth_min, .. }: Conditions) -> Truth {
        let late = self.late_rise();
        let start = self.last_process().first().map_or(0, |first| first.step);
        match claim {
            Claim::SettlesAfterSteps => Truth::Bounded,
            Claim::Settles if late <= growth_min / 2.0 => Truth::Bounded,
            Claim::Settles if late <= growth_min => Truth::Between,
            Claim::Settles => Truth::Slowing { since: start, visible_from: start, growth: self.rise() },
            Claim::RandomWalk => Truth::RandomWalk,
            Claim::Leaks { since, visible_from } => Truth::Growing { since, visible_from, growth },
            Claim::Slows { since, visible_from } => Truth::Slowing { since, visible_from, growth },
        }
    }
}

fn rise(samples: &[Sample]) -> f64 {
    let lowest = samples.iter().map(|sample| sample.level).fold(f64::INFINITY, f64::min);
    samples.last().map_or(0.0, |last| last.level - lowest)
}

/// Draws from the log-uniform distribution between two numbers.
pub fn log_uniform(rng: &mut impl Rng, low: f64, high: f64) -> f64 {
    rng.random_range(low.ln()..=high.ln()).exp()
}

/// Draws from the normal distribution with mean 0.
pub fn gaussian(rng: &mut impl Rng, deviation: f64) -> f64 {
    let deviate: f64 = StandardNormal.sample(rng);
    deviate * deviation
}

/// Noise of samples with mean 0 and a given standard deviation.
#[derive(Clone, Debug)]
pub enum Noise {
    Gaussian(f64),
    /// Exponential, skewed upwards.
    Upward(f64),
    Uniform(f64),
    Correlated(Ar1),
}

impl Noise {
    /// Draws the noise of the next sample.
    pub fn next(&mut self, rng: &mut impl Rng) -> f64 {
        match self {
            Self::Gaussian(deviation) => gaussian(rng, *deviation),
            Self::Upward(deviation) => {
                let deviate: f64 = Exp1.sample(rng);
                (deviate - 1.0) * *deviation
            }
            Self::Uniform(deviation) => rng.random_range(-1.0..1.0) * 3.0_f64.sqrt() * *deviation,
            Self::Correlated(noise) => noise.next(rng),
        }
    }
}

/// First-order autoregressive process, started in its stationary distribution.
#[derive(Clone, Debug)]
pub struct Ar1 {
    /// Correlation of consecutive samples.
    correlation: f64,
    deviation: f64,
    value: Option<f64>,
}

impl Ar1 {
    /// Creates a process with a standard deviation, and a correlation that decays to 1/e within `samples`.
    pub fn new(deviation: f64, samples: f64) -> Self {
        Self { correlation: (-1.0 / samples).exp(), deviation, value: None }
    }

    /// Draws the next value.
    pub fn next(&mut self, rng: &mut impl Rng) -> f64 {
        let value = match self.value {
            None => gaussian(rng, self.deviation),
            Some(previous) => {
                let innovation = self.deviation * (1.0 - self.correlation * self.correlation).sqrt();
                self.correlation * previous + gaussian(rng, innovation)
            }
        };
        self.value = Some(value);
        value
    }
}
