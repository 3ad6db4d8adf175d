//! What is a run of the benchmark made of, and what is true of it?
//!
//! A *set* is a list of *habits*: ways in which memory behaves. A habit is a function that makes a [`Run`] from a
//! [`Draw`] and a generator of random numbers. A run is samples, what the watcher is told of the run, and the truth.
//!
//! # What is true
//!
//! Each sample has a *level*: the memory that no cleanup gives back, without noise and without the teeth of a saw. The
//! truth is read from the level of the newest process alone:
//!
//! - A habit that claims to come to rest is [`Truth::Bounded`] where the level rises by at most half of `growth_min` in
//!   the last third of the run; or where all of that rise is single steps (a buffer that is made once), which the habit
//!   says with [`Claim::RestsAfterSteps`]. Where it rises by more than `growth_min`, the run is [`Truth::Slowing`]: a
//!   cache that is still filling. In between it is [`Truth::Between`]: no answer is wrong.
//! - A habit that claims to leak is [`Truth::Growing`] or [`Truth::Slowing`], whatever the size of the leak.
//! - A random walk is [`Truth::Walk`]: nobody can say where it goes, so only rates are reported.
//!
//! A leak in steps (once an epoch, in bursts) has begun at `since` and can be seen from `seen`, its first step. An
//! answer between the two is exact.

use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};

pub const MIB: f64 = 1024.0 * 1024.0;

/// A list of habits, and how the circumstances of a run are drawn.
pub struct Set {
    pub name: &'static str,
    /// Where the random numbers begin, unless `--seed` says otherwise.
    pub seed: u64,
    pub habits: &'static [Habit],
    pub draw: fn(Asked, &mut ChaCha8Rng) -> Draw,
}

/// A way in which memory behaves.
pub struct Habit {
    /// Unique in its set.
    pub name: &'static str,
    pub family: Family,
    pub make: fn(&Draw, &mut ChaCha8Rng) -> Run,
}

/// How the runs of a habit are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Comes to rest: `growing` and `slowing` are false alarms, where the truth of the run is [`Truth::Bounded`].
    Bounded,
    /// A cache that is still filling when the run ends. Reported apart.
    Filling,
    /// A random walk. Reported apart.
    Walk,
    /// Leaks: drawn with each growth and each noise of the table.
    Growing,
}

/// What the table asks of a run.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Bytes: the standard deviation of a sample.
    pub noise: f64,
    /// Bytes over the run; 0 for what is no leak.
    pub growth: f64,
    /// `memory.growth_min`.
    pub growth_min: f64,
}

/// The circumstances of one run. A habit may change them in a copy of its own (a leak per epoch needs epochs).
#[derive(Clone, Debug)]
pub struct Draw {
    pub asked: Asked,
    /// The first step with a sample: 1, or more in a run that was resumed.
    pub first: u64,
    /// Steps from the first sample to the last.
    pub steps: u64,
    /// Steps between two samples.
    pub every: u64,
    /// The last step as planned: `first + steps`, or more in a run that was stopped.
    pub planned: u64,
    /// 0: there are none.
    pub steps_per_epoch: u64,
    /// Steps between cleanups, validations and checkpoints, 0 stands for none.
    pub cadences: Vec<u64>,
    /// As in `Context::settled`.
    pub settled: u64,
    /// Bytes that are held from the beginning.
    pub base: f64,
}

/// A sample, and the truth below it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub step: u64,
    /// Bytes that the watcher is told.
    pub bytes: f64,
    /// Bytes that nothing gives back.
    pub level: f64,
}

/// One run: at most 100,000 samples, so keep no more than one of them.
#[derive(Clone, Debug)]
pub struct Run {
    pub samples: Vec<Sample>,
    /// Steps at which a new process begins, after the first. The level of each process is its own.
    pub restarts: Vec<u64>,
    /// The last step as planned.
    pub steps: u64,
    pub steps_per_epoch: u64,
    pub settled: u64,
    pub truth: Truth,
}

/// What a habit says of the run that it made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It comes to rest, or has come close to it: the level says which.
    Rests,
    /// It comes to rest, though a single step may be late: the level is not asked.
    RestsAfterSteps,
    Walks,
    Leaks {
        since: u64,
        seen: u64,
    },
    /// Leaks ever more slowly, without an end.
    Slows {
        since: u64,
        seen: u64,
    },
}

/// What is true of a run; see the head of this file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Truth {
    Bounded,
    Between,
    Walk,
    Growing { since: u64, seen: u64, growth: f64 },
    Slowing { since: u64, seen: u64, growth: f64 },
}

impl Draw {
    /// The steps that have a sample.
    pub fn sampled(&self) -> impl Iterator<Item = u64> + use<> {
        (self.first..=self.first + self.steps).step_by(self.every.max(1) as usize)
    }

    /// The step at a share of the run.
    pub fn at(&self, share: f64) -> u64 {
        self.first + (share * self.steps as f64).round() as u64
    }

    /// The share of the run that has passed at a step.
    pub fn share(&self, step: u64) -> f64 {
        (step as f64 - self.first as f64) / self.steps as f64
    }

    /// A run of one process: its level at each step, and what lies above (or, as noise, around) it.
    pub fn run(&self, claim: Claim, mut level: impl FnMut(u64) -> f64, mut above: impl FnMut(u64) -> f64) -> Run {
        let sample = |step| {
            let level = level(step);
            Sample { step, level, bytes: (level + above(step)).max(0.0) }
        };
        self.run_of(self.sampled().map(sample).collect(), Vec::new(), claim)
    }

    /// A run of samples that are made already.
    pub fn run_of(&self, samples: Vec<Sample>, restarts: Vec<u64>, claim: Claim) -> Run {
        let mut run = Run {
            samples,
            restarts,
            steps: self.planned,
            steps_per_epoch: self.steps_per_epoch,
            settled: self.settled,
            truth: Truth::Between,
        };
        run.truth = run.truth_of(claim, self.asked);
        run
    }
}

impl Run {
    /// The samples of the newest process.
    pub fn newest(&self) -> &[Sample] {
        let begins = self.restarts.last().copied().unwrap_or_default();
        &self.samples[self.samples.partition_point(|sample| sample.step < begins)..]
    }

    /// Steps of the newest process.
    pub fn span(&self) -> u64 {
        match self.newest() {
            [first, .., last] => last.step - first.step,
            _ => 0,
        }
    }

    /// Bytes by which the level rose over the newest process, from its lowest.
    pub fn rise(&self) -> f64 {
        rise(self.newest())
    }

    /// The same in the last third of the newest process.
    pub fn late_rise(&self) -> f64 {
        let newest = self.newest();
        let begins = newest.last().map_or(0, |last| last.step) - self.span() / 3;
        rise(&newest[newest.partition_point(|sample| sample.step < begins)..])
    }

    fn truth_of(&self, claim: Claim, Asked { growth, growth_min, .. }: Asked) -> Truth {
        let late = self.late_rise();
        let begins = self.newest().first().map_or(0, |first| first.step);
        match claim {
            Claim::RestsAfterSteps => Truth::Bounded,
            Claim::Rests if late <= growth_min / 2.0 => Truth::Bounded,
            Claim::Rests if late <= growth_min => Truth::Between,
            Claim::Rests => Truth::Slowing { since: begins, seen: begins, growth: self.rise() },
            Claim::Walks => Truth::Walk,
            Claim::Leaks { since, seen } => Truth::Growing { since, seen, growth },
            Claim::Slows { since, seen } => Truth::Slowing { since, seen, growth },
        }
    }
}

fn rise(samples: &[Sample]) -> f64 {
    let lowest = samples.iter().map(|sample| sample.level).fold(f64::INFINITY, f64::min);
    samples.last().map_or(0.0, |last| last.level - lowest)
}

/// A number between two others whose logarithm is uniform: as many small ones as large ones.
pub fn log_uniform(rng: &mut impl Rng, low: f64, high: f64) -> f64 {
    rng.random_range(low.ln()..=high.ln()).exp()
}

/// A normal deviate with this standard deviation.
pub fn gaussian(rng: &mut impl Rng, deviation: f64) -> f64 {
    let deviate: f64 = StandardNormal.sample(rng);
    deviate * deviation
}

/// Noise of a sample. All kinds have the standard deviation that they are made with, and a mean of zero.
#[derive(Clone, Debug)]
pub enum Noise {
    Gaussian(f64),
    /// Exponential: most samples lie low, few lie high.
    Upward(f64),
    Uniform(f64),
    Correlated(Ar1),
}

impl Noise {
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

/// A first-order autoregressive process, begun in its stationary state.
#[derive(Clone, Debug)]
pub struct Ar1 {
    /// The correlation of two samples that follow each other.
    correlation: f64,
    deviation: f64,
    value: Option<f64>,
}

impl Ar1 {
    /// Of a standard deviation in bytes, and a correlation that falls to 1/e within so many samples.
    pub fn new(deviation: f64, samples: f64) -> Self {
        Self { correlation: (-1.0 / samples).exp(), deviation, value: None }
    }

    pub fn next(&mut self, rng: &mut impl Rng) -> f64 {
        let value = match self.value {
            None => gaussian(rng, self.deviation),
            Some(before) => {
                let fresh = self.deviation * (1.0 - self.correlation * self.correlation).sqrt();
                self.correlation * before + gaussian(rng, fresh)
            }
        };
        self.value = Some(value);
        value
    }
}
