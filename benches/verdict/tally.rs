//! Which runs are made, and what is kept of each when it has been judged?

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::outcome::{Answer, Outcome, judge};
use super::series::{Asked, Family, Habit, MIB, Run, Set, Truth, log_uniform};

/// `memory.growth_min` as it is when nobody sets it.
pub const GROWTH_MIN: f64 = 16.0 * MIB;
/// Leaks are this many times `growth_min`, over the run.
pub const TIMES: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
/// And below noise of this standard deviation, in MiB.
pub const NOISES: [f64; 4] = [0.5, 2.0, 8.0, 30.0];

/// What is kept of a run.
pub struct Row {
    pub habit: &'static str,
    pub family: Family,
    /// The number of the run in its habit.
    pub number: u64,
    pub steps: u64,
    pub epochs: bool,
    /// In MiB.
    pub noise: f64,
    /// The growth that was asked for, in `growth_min`.
    pub times: f64,
    pub truth: Truth,
    /// By how many `growth_min` the level rose in the last third.
    pub late: f64,
    pub outcome: Outcome,
    /// A share of the run.
    pub date_error: Option<f64>,
}

impl Row {
    pub fn answer(&self) -> Answer {
        self.outcome.answer
    }

    pub fn leaks(&self) -> bool {
        self.family == Family::Growing
    }

    pub fn json(&self) -> Value {
        json!({
            "habit": self.habit,
            "number": self.number,
            "steps": self.steps,
            "epochs": self.epochs,
            "noise_mib": self.noise,
            "growth_in_growth_min": self.times,
            "late_rise_in_growth_min": self.late,
            "truth": match self.truth {
                Truth::Bounded => "bounded",
                Truth::Between => "between",
                Truth::Walk => "walk",
                Truth::Growing { .. } => "growing",
                Truth::Slowing { .. } => "slowing",
            },
            "answer": self.answer().name(),
            "since": self.outcome.since,
            "date_error": self.date_error,
        })
    }
}

/// The run of a habit with this number. Each has random numbers of its own, so any of them can be made alone.
pub fn run(set: &Set, habit: &Habit, number: u64, seed: u64) -> (Run, Asked) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let place = set.habits.iter().position(|other| other.name == habit.name).unwrap_or_default();
    rng.set_stream(((place as u64) << 32) | number);
    let cell = number as usize % (TIMES.len() * NOISES.len());
    let asked = match habit.family {
        Family::Growing => Asked {
            noise: NOISES[cell % NOISES.len()] * MIB,
            growth: TIMES[cell / NOISES.len()] * GROWTH_MIN,
            growth_min: GROWTH_MIN,
        },
        Family::Bounded | Family::Filling | Family::Walk => {
            Asked { noise: log_uniform(&mut rng, 0.5, 30.0) * MIB, growth: 0.0, growth_min: GROWTH_MIN }
        }
    };
    let draw = (set.draw)(asked, &mut rng);
    ((habit.make)(&draw, &mut rng), asked)
}

/// Makes a run and judges it.
pub fn row(set: &Set, habit: &Habit, number: u64, seed: u64) -> Row {
    let (run, asked) = run(set, habit, number, seed);
    let outcome = judge(&run, asked.growth_min);
    Row {
        habit: habit.name,
        family: habit.family,
        number,
        steps: run.span(),
        epochs: run.steps_per_epoch > 0,
        noise: asked.noise / MIB,
        times: asked.growth / asked.growth_min,
        truth: run.truth,
        late: run.late_rise() / asked.growth_min,
        outcome,
        date_error: outcome.date_error(&run),
    }
}

/// How many of some rows were given an answer.
pub fn count(rows: &[&Row], answer: Answer) -> usize {
    rows.iter().filter(|row| row.answer() == answer).count()
}
