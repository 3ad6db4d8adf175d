//! Generation and judgement of the runs of a set.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::assessment::{Assessment, VerdictWord, judge};
use super::series::{Category, Conditions, Habit, MIB, Run, Set, Truth, log_uniform};

/// Default of `memory.growth_min`.
pub const GROWTH_MIN: f64 = 16.0 * MIB;
/// Growth of leaks over the run, in multiples of `growth_min`.
pub const GROWTH_MULTIPLES: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
/// Standard deviation of the noise of leaks, in MiB.
pub const NOISES: [f64; 4] = [0.5, 2.0, 8.0, 30.0];

/// Judged run.
pub struct Row {
    pub habit: &'static str,
    pub category: Category,
    /// Number of the run within its habit.
    pub number: u64,
    pub steps: u64,
    pub epochs: bool,
    /// Standard deviation, in MiB.
    pub noise: f64,
    /// Growth of the leak over the run, in multiples of `growth_min`.
    pub growth_multiple: f64,
    pub truth: Truth,
    /// Rise of the level in the last third, in multiples of `growth_min`.
    pub late_rise: f64,
    pub assessment: Assessment,
    /// Error of the first step of the growth, as a fraction of the run.
    pub date_error: Option<f64>,
}

impl Row {
    pub fn verdict(&self) -> VerdictWord {
        self.assessment.verdict
    }

    pub fn leaks(&self) -> bool {
        self.category == Category::Growing
    }

    pub fn json(&self) -> Value {
        json!({
            "habit": self.habit,
            "number": self.number,
            "steps": self.steps,
            "epochs": self.epochs,
            "noise_mib": self.noise,
            "growth_in_growth_min": self.growth_multiple,
            "late_rise_in_growth_min": self.late_rise,
            "truth": match self.truth {
                Truth::Bounded => "bounded",
                Truth::Between => "between",
                Truth::RandomWalk => "walk",
                Truth::Growing { .. } => "growing",
                Truth::Slowing { .. } => "slowing",
            },
            "answer": self.verdict().name(),
            "since": self.assessment.since,
            "date_error": self.date_error,
        })
    }
}

/// Generates run `number` of a habit. Each run has a separate stream of random numbers, so any run can be generated alone.
pub fn generate(set: &Set, habit: &Habit, number: u64, seed: u64) -> (Run, Conditions) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let index = set.habits.iter().position(|other| other.name == habit.name).unwrap_or_default();
    rng.set_stream(((index as u64) << 32) | number);
    let cell = number as usize % (GROWTH_MULTIPLES.len() * NOISES.len());
    let conditions = match habit.category {
        Category::Growing => Conditions {
            noise: NOISES[cell % NOISES.len()] * MIB,
            growth: GROWTH_MULTIPLES[cell / NOISES.len()] * GROWTH_MIN,
            growth_min: GROWTH_MIN,
        },
        Category::Bounded | Category::Filling | Category::RandomWalk => {
            Conditions { noise: log_uniform(&mut rng, 0.5, 30.0) * MIB, growth: 0.0, growth_min: GROWTH_MIN }
        }
    };
    let scenario = (set.draw)(conditions, &mut rng);
    ((habit.generate)(&scenario, &mut rng), conditions)
}

/// Generates a run and judges it.
pub fn judge_run(set: &Set, habit: &Habit, number: u64, seed: u64) -> Row {
    let (run, conditions) = generate(set, habit, number, seed);
    let assessment = judge(&run, conditions.growth_min);
    Row {
        habit: habit.name,
        category: habit.category,
        number,
        steps: run.span(),
        epochs: run.steps_per_epoch > 0,
        noise: conditions.noise / MIB,
        growth_multiple: conditions.growth / conditions.growth_min,
        truth: run.truth,
        late_rise: run.late_rise() / conditions.growth_min,
        assessment,
        date_error: assessment.date_error(&run),
    }
}

/// Counts the runs with a verdict.
pub fn count(rows: &[&Row], verdict: VerdictWord) -> usize {
    rows.iter().filter(|row| row.verdict() == verdict).count()
}
