//! Error rates of the verdict on synthetic memory series with known ground truth.
//!
//! `cargo bench --no-default-features --bench leakbench`, with these options after `--`: `--set`, `--runs`, `--seed`, `--json`,
//! `--habit`. The tables are reproducible.

#![expect(clippy::print_stdout, reason = "prints tables")]

mod assessment;
mod goals;
mod interval;
mod judged;
mod series;
mod table;
mod tally;
mod tuning;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde_json::json;
use xrun::files::write::replace_json;

use series::{Habit, Set};
use tally::Row;

/// The held-out set and the set on which the thresholds of the verdict were chosen.
const SETS: [Set; 2] = [judged::SET, tuning::SET];

/// Judges synthetic runs of many memory habits, and reports how often the verdict is wrong.
#[derive(Parser)]
struct Arguments {
    /// Set of habits: judged or tuning.
    #[arg(long, default_value = "judged")]
    set: String,
    /// Runs of each habit; a multiple of 16 covers each growth and noise equally often.
    #[arg(long, default_value_t = 800)]
    runs: u64,
    /// Seed of the random numbers [default: that of the set].
    #[arg(long)]
    seed: Option<u64>,
    /// Judge only habits whose name contains this text.
    #[arg(long)]
    habit: Option<String>,
    /// Write all runs and their verdicts to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print the samples of run NUMBER of the first habit as CSV, and judge nothing.
    #[arg(long, value_name = "NUMBER")]
    csv: Option<u64>,
    /// Passed by Cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(set) = SETS.iter().find(|set| set.name == arguments.set) else {
        let names: Vec<&str> = SETS.iter().map(|set| set.name).collect();
        println!("unknown set {}; the sets are {}", arguments.set, names.join(", "));
        return ExitCode::from(2);
    };
    let matches = |habit: &&Habit| arguments.habit.as_ref().is_none_or(|part| habit.name.contains(part));
    let habits: Vec<&Habit> = set.habits.iter().filter(matches).collect();
    if habits.is_empty() {
        println!("no habit of the {} set matches --habit", set.name);
        return ExitCode::from(2);
    }
    let seed = arguments.seed.unwrap_or(set.seed);
    if let Some(number) = arguments.csv {
        print_samples(set, habits[0], number, seed);
        return ExitCode::SUCCESS;
    }
    let numbers = |habit: &'static Habit| (0..arguments.runs).map(move |number| (habit, number));
    let runs = habits.iter().flat_map(|habit| numbers(habit));
    let rows: Vec<Row> = runs.map(|(habit, number)| tally::judge_run(set, habit, number, seed)).collect();
    let mut command = "cargo bench --no-default-features --bench leakbench --".to_owned();
    command += &format!(" --set {} --runs {} --seed {seed}", set.name, arguments.runs);
    if let Some(habit) = &arguments.habit {
        command += &format!(" --habit '{habit}'");
    }
    println!("{}", table::markdown(set, &rows, &command));
    if let Some(path) = arguments.json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        let all = json!({ "set": set.name, "seed": seed, "runs": arguments.runs, "rows": rows });
        if let Err(error) = replace_json(&path, &all) {
            println!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Prints a run as CSV for `xrun verdict`.
fn print_samples(set: &Set, habit: &Habit, number: u64, seed: u64) {
    let (run, _) = tally::generate(set, habit, number, seed);
    println!("step,memory,level");
    for sample in &run.samples {
        println!("{},{:.0},{:.0}", sample.step, sample.bytes, sample.level);
    }
}
