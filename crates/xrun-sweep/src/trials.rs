//! The trials of a sweep and the order of its runs.

use std::collections::HashSet;
use std::fmt;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::search::{self, tpe};
use xrun_core::experiment::axes::{Axis, AxisValues, SweptValue};
use xrun_core::experiment::read_sweep::{SweepFile, shown, written};
use xrun_core::experiment::sweep::SweepMethod;
use xrun_core::problem::{Problem, Problems};
use xrun_core::units::pluralize;
use xrun_results::secrets;

/// Largest number of runs of a sweep: a longer table is of no use.
pub const RUNS_MAX: u64 = 10_000;

/// A run of a sweep: a trial and its repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId {
    /// The number of the trial, from 1.
    pub trial: u64,
    /// The number of its repeat, from 1; each has a seed of its own.
    pub repeat: u64,
}

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04}-{}", self.trial, self.repeat)
    }
}

/// Returns the trials of a sweep, each with a value for each axis.
///
/// # Errors
/// Nothing is swept, the lists do not match, or there are too many trials.
pub fn trials(sweep_file: &SweepFile) -> Result<Vec<Vec<SweptValue>>, Problems> {
    let SweepFile { axes, sweep, .. } = sweep_file;
    let mut problems = Problems::default();
    if axes.is_empty() {
        let problem = Problem::new("sweep.values", "nothing is swept: no key has several values");
        problems.add(
            problem
                .help("write `-s cleanup.every_steps=0,1,10`, or `\"cleanup.every_steps\" = [0, 1, 10]` below `[sweep]` in the file")
                .at(sweep_file.location("values")),
        );
        return Err(problems);
    }
    if sweep.repeats > 1
        && let Some(axis) = axes.iter().find(|axis| axis.key == "experiment.seed")
    {
        let problem = Problem::new("sweep.repeats", "each repeat changes the seed, and the seed is swept, too");
        problems.add(problem.help("write `repeats = 1`, or do not sweep the seed").at(Some(axis.location.clone())));
    }
    let trials = match sweep.method {
        SweepMethod::Random | SweepMethod::Asha => random(sweep_file, &mut problems),
        SweepMethod::Tpe => at_start(sweep_file, &mut problems),
        SweepMethod::Grid | SweepMethod::Zip => {
            let lists = lists(axes, sweep.method, &mut problems);
            problems.clone().into_result()?;
            if sweep.method == SweepMethod::Grid { grid(&lists) } else { zip(axes, &lists, &mut problems) }
        }
    };
    problems.clone().into_result()?;
    let trials = match trials {
        Some(trials) if trials.len() as u64 * sweep.repeats <= RUNS_MAX => trials,
        trials => {
            let count = trials.map_or_else(|| format!("more than {RUNS_MAX}"), |trials| trials.len().to_string());
            let each = pluralize(sweep.repeats, "run");
            let message = format!("{count} trials of {each} each: a sweep has at most {RUNS_MAX} runs");
            let help = "sweep fewer values, or draw some of them: method = \"random\", trials = 100";
            problems.add(Problem::new("sweep.values", message).help(help).at(sweep_file.location("values")));
            return Err(problems);
        }
    };
    let mut seen = HashSet::new();
    for trial in &trials {
        if !seen.insert(key(trial)) {
            let shown = words(axes.iter().map(|axis| axis.key.as_str()), trial.iter().map(|swept| &swept.value));
            let problem = Problem::new("sweep.values", format!("a trial is listed twice: {shown}"));
            let at = trial.last().map(|swept| swept.location.clone());
            problems.add(problem.help("keep one of them; `repeats` runs a trial several times").at(at));
        }
    }
    problems.into_result()?;
    Ok(trials)
}

fn key(trial: &[SweptValue]) -> String {
    trial.iter().map(|swept| written(&swept.value)).collect::<Vec<_>>().join("\n")
}

/// The values of a trial as text: `cleanup.every_steps = 5, limits.workers = 1`.
pub fn words<'a>(keys: impl Iterator<Item = &'a str>, values: impl Iterator<Item = &'a serde_json::Value>) -> String {
    keys.zip(values)
        .map(|(key, value)| format!("{key} = {}", shown(&masked(key, value))))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Maximum number of trials named in a sentence.
const NAMED_MAX: usize = 3;

/// Trials by their numbers: `trial 3`, `trials 3, 4, 5 and 7 more`.
pub fn named(trials: &[u64]) -> String {
    let numbers: Vec<String> = trials.iter().take(NAMED_MAX).map(u64::to_string).collect();
    let more = trials.len() - numbers.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} {}{more}", if trials.len() == 1 { "trial" } else { "trials" }, numbers.join(", "))
}

/// The value, or a mask where the last part of the key names a secret.
pub fn masked(key: &str, value: &serde_json::Value) -> serde_json::Value {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let name = key.rsplit('.').next().unwrap_or(key);
    if secrets::mask_value(name, &text) == secrets::MASK { secrets::MASK.into() } else { value.clone() }
}

fn lists<'a>(axes: &'a [Axis], method: SweepMethod, problems: &mut Problems) -> Vec<&'a [SweptValue]> {
    let mut lists = Vec::with_capacity(axes.len());
    for axis in axes {
        match &axis.values {
            AxisValues::List(list) => lists.push(list.as_slice()),
            AxisValues::Range(range) => {
                let message = format!("a range without `steps` has no values with method {}", method.as_str());
                let problem = Problem::new(format!("sweep.values.{}", axis.key), message);
                problems.add(
                    problem
                        .help("add `steps = 5` (`1e-4..1e-2:5` on the command line), or write method = \"random\"")
                        .at(Some(range.location.clone())),
                );
            }
        }
    }
    lists
}

/// All combinations, the last key changing fastest. `None` for more than [`RUNS_MAX`].
fn grid(lists: &[&[SweptValue]]) -> Option<Vec<Vec<SweptValue>>> {
    let count = lists.iter().try_fold(1u64, |count, list| count.checked_mul(list.len() as u64))?;
    if count > RUNS_MAX {
        return None;
    }
    let trial = |number: u64| {
        let mut rest = number;
        let mut values: Vec<SweptValue> = Vec::with_capacity(lists.len());
        for list in lists.iter().rev() {
            values.push(list[(rest % list.len() as u64) as usize].clone());
            rest /= list.len() as u64;
        }
        values.reverse();
        values
    };
    Some((0..count).map(trial).collect())
}

fn zip(axes: &[Axis], lists: &[&[SweptValue]], problems: &mut Problems) -> Option<Vec<Vec<SweptValue>>> {
    let count = lists.first()?.len();
    for (axis, list) in axes.iter().zip(lists).skip(1).filter(|(_, list)| list.len() != count) {
        let message =
            format!("{} values, and `{}` has {count}: method zip takes them together", list.len(), axes[0].key);
        let problem = Problem::new(format!("sweep.values.{}", axis.key), message);
        problems.add(
            problem
                .help("give all keys the same number of values, or write method = \"grid\"")
                .at(Some(axis.location.clone())),
        );
    }
    if !problems.is_empty() {
        return Some(Vec::new());
    }
    Some((0..count).map(|at| lists.iter().map(|list| list[at].clone()).collect()).collect())
}

/// Number of trials to draw.
fn samples(sweep_file: &SweepFile, problems: &mut Problems) -> Option<u64> {
    if sweep_file.sweep.trials.is_none() {
        let message = format!("method {} needs the number of trials to draw", sweep_file.sweep.method.as_str());
        let problem = Problem::new("sweep.trials", message);
        problems.add(
            problem.help("write `trials = 20` in `[sweep]`, or type `--trials 20`").at(sweep_file.location("method")),
        );
    }
    sweep_file.sweep.trials
}

/// The trials of method `tpe` that do not depend on results.
fn at_start(sweep_file: &SweepFile, problems: &mut Problems) -> Option<Vec<Vec<SweptValue>>> {
    let Some(samples) = samples(sweep_file, problems) else { return Some(Vec::new()) };
    let trials = tpe::startup_trials(&search::tpe_search(sweep_file), sweep_file.sweep.seed, samples, &[]);
    let places = |values: Vec<Value>| -> Vec<SweptValue> {
        let swept = |(axis, value): (&Axis, Value)| SweptValue { value, location: axis.location.clone() };
        sweep_file.axes.iter().zip(values).map(swept).collect()
    };
    Some(trials.into_iter().map(places).collect())
}

fn random(sweep_file: &SweepFile, problems: &mut Problems) -> Option<Vec<Vec<SweptValue>>> {
    let Some(samples) = samples(sweep_file, problems) else { return Some(Vec::new()) };
    let mut generator = ChaCha8Rng::seed_from_u64(u64::from(sweep_file.sweep.seed));
    let mut seen = HashSet::new();
    let mut trials = Vec::new();
    for _ in 0..samples.saturating_mul(100) {
        let trial: Vec<SweptValue> = sweep_file.axes.iter().map(|axis| draw(&axis.values, &mut generator)).collect();
        if seen.insert(key(&trial)) {
            trials.push(trial);
        }
        if trials.len() as u64 == samples {
            return Some(trials);
        }
    }
    let message =
        format!("{samples} different trials cannot be drawn from these values: only {} were found", trials.len());
    let problem =
        Problem::new("sweep.trials", message).help("draw fewer, give more values, or write method = \"grid\"");
    problems.add(problem.at(sweep_file.location("trials")));
    Some(Vec::new())
}

fn draw(values: &AxisValues, generator: &mut ChaCha8Rng) -> SweptValue {
    match values {
        AxisValues::List(list) => list[generator.random_range(0..list.len())].clone(),
        AxisValues::Range(range) => {
            SweptValue { value: range.at(generator.random()), location: range.location.clone() }
        }
    }
}

/// All runs, in the order in which they start: each trial once, then each a second time, shuffled each time, so that a
/// machine that becomes slower does not favour a trial.
pub fn order(trials: u64, repeats: u64, seed: u32) -> Vec<RunId> {
    let mut generator = ChaCha8Rng::seed_from_u64(u64::from(seed));
    let mut order = Vec::new();
    for repeat in 1..=repeats {
        let mut round: Vec<RunId> = (1..=trials).map(|trial| RunId { trial, repeat }).collect();
        round.shuffle(&mut generator);
        order.extend(round);
    }
    order
}

#[cfg(test)]
#[path = "trials_tests.rs"]
mod tests;
