//! Generation and judgement of the runs of a set.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::assessment::{self, Assessment};
use super::rivals::RIVALS;
use super::series::{Category, Conditions, Expected, Habit, MIB, Run, Set, Truth, log_uniform};

/// Smallest growth that counts as growing.
pub const GROWTH_MIN: f64 = 16.0 * MIB;
/// Growth of leaks over the run, in bytes.
pub const GROWTHS: (f64, f64) = (64.0 * MIB, 1200.0 * MIB);

/// Judged run.
pub struct Row {
    pub habit: &'static str,
    pub expected: Expected,
    /// Number of the run within its habit.
    pub number: u64,
    pub steps: u64,
    /// Standard deviation, in MiB.
    pub noise: f64,
    /// Growth of the leak over the run, in MiB.
    pub growth: f64,
    pub truth: Truth,
    pub assessment: Assessment,
    /// Error of the first step of the growth, as a fraction of the run.
    pub date_error: Option<f64>,
    /// Fraction of the run between the onset of a leak and the report, for xrun and each rival that reports it.
    pub delays: Vec<Option<f64>>,
    /// Whether each rival reports growth.
    pub rivals: Vec<bool>,
}

impl Row {
    pub fn leaks(&self) -> bool {
        self.expected.category == Category::Growing
    }

    pub fn is_bounded(&self) -> bool {
        self.truth == Truth::Bounded
    }

    pub fn json(&self) -> Value {
        json!({
            "habit": self.habit,
            "number": self.number,
            "steps": self.steps,
            "noise_mib": self.noise,
            "growth_mib": self.growth,
            "truth": match self.truth {
                Truth::Bounded => "bounded",
                Truth::Between => "between",
                Truth::RandomWalk => "walk",
                Truth::Growing { .. } => "growing",
                Truth::Slowing { .. } => "slowing",
            },
            "onset": match self.truth {
                Truth::Growing { since, .. } | Truth::Slowing { since, .. } => Some(since),
                _ => None,
            },
            "verdict": self.assessment.judgement.words(),
            "since": self.assessment.since,
            "date_error": self.date_error,
            "delay": self.delays[0],
            "rivals": RIVALS.iter().zip(&self.rivals).map(|(rival, alarm)| (rival.name, *alarm)).collect::<BTreeMap<_, _>>(),
        })
    }
}

/// Generates run `number` of a habit. Each run has a separate stream of random numbers, so any run can be generated alone.
pub fn generate(set: &Set, habit: &Habit, number: u64, seed: u64) -> (Run, Conditions) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let index = set.habits.iter().position(|other| other.name == habit.name).unwrap_or_default();
    rng.set_stream(((index as u64) << 32) | number);
    let noise = log_uniform(&mut rng, 0.5, 30.0) * MIB;
    let growth = match habit.expected.category {
        Category::Growing => log_uniform(&mut rng, GROWTHS.0, GROWTHS.1),
        Category::Bounded | Category::Filling | Category::RandomWalk => 0.0,
    };
    let conditions = Conditions { noise, growth, growth_min: GROWTH_MIN };
    let scenario = (set.draw)(conditions, &mut rng);
    ((habit.generate)(&scenario, &mut rng), conditions)
}

/// Generates a run and judges it.
pub fn judge_run(set: &Set, habit: &Habit, number: u64, seed: u64) -> Row {
    let (run, conditions) = generate(set, habit, number, seed);
    let assessment = assessment::judge(&run);
    let leaks = habit.expected.category == Category::Growing;
    let mut delays = vec![assessment.reported.and_then(|at| delay(&run, at))];
    let rivals: Vec<bool> = RIVALS.iter().map(|rival| (rival.grows)(&run.samples)).collect();
    for (rival, grows) in RIVALS.iter().zip(&rivals) {
        let tenths = (1..=10_usize).filter(|_| leaks && *grows);
        let reported = tenths
            .map(|tenth| tenth as f64 / 10.0)
            .find(|part| (rival.grows)(&run.samples[..(part * run.samples.len() as f64) as usize]));
        delays.push(reported.and_then(|at| delay(&run, at)));
    }
    Row {
        habit: habit.name,
        expected: habit.expected,
        number,
        steps: run.span(),
        noise: conditions.noise / MIB,
        growth: conditions.growth / MIB,
        truth: run.truth,
        assessment,
        date_error: assessment.date_error(&run),
        delays,
        rivals,
    }
}

/// Returns the fraction of the run from the onset of a leak to a report after the fraction `reported`.
fn delay(run: &Run, reported: f64) -> Option<f64> {
    let (Truth::Growing { since, .. } | Truth::Slowing { since, .. }) = run.truth else { return None };
    let first = run.samples.first()?.step;
    let onset = since.saturating_sub(first) as f64 / (run.samples.last()?.step - first).max(1) as f64;
    Some((reported - onset).max(0.0))
}
