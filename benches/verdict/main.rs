//! How often is the verdict wrong? Habits of memory whose truth is known, judged, and counted.
//!
//! `cargo bench --no-default-features --bench verdict`, and after `--`: `--set`, `--runs`, `--seed`, `--json`, `--habit`.
//! The same command prints the same tables.

#![expect(clippy::print_stdout, reason = "the tables are what it is for")]

mod goals;
mod interval;
mod judged;
mod outcome;
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

/// The gates of the verdict were chosen on the tuning set; the judged one was written before that and not looked at.
const SETS: [Set; 2] = [judged::SET, tuning::SET];

/// Judges runs of many habits of memory, and says how often the verdict is wrong.
#[derive(Parser)]
struct Arguments {
    /// Which set of habits.
    #[arg(long, default_value = "judged")]
    set: String,
    /// Runs of each habit; a multiple of 16 has as many of each growth and noise.
    #[arg(long, default_value_t = 800)]
    runs: u64,
    /// Where the random numbers begin; that of the set when it is absent.
    #[arg(long)]
    seed: Option<u64>,
    /// Only habits whose name contains this.
    #[arg(long)]
    habit: Option<String>,
    /// Writes every run and what was said of it.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints the samples of the run with this number, of the first habit, and judges nothing.
    #[arg(long, value_name = "NUMBER")]
    csv: Option<u64>,
    /// Given by Cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(set) = SETS.iter().find(|set| set.name == arguments.set) else {
        let names: Vec<&str> = SETS.iter().map(|set| set.name).collect();
        println!("there is no set {}: it is one of {}", arguments.set, names.join(", "));
        return ExitCode::from(2);
    };
    let wanted = |habit: &&Habit| arguments.habit.as_ref().is_none_or(|part| habit.name.contains(part));
    let habits: Vec<&Habit> = set.habits.iter().filter(wanted).collect();
    if habits.is_empty() {
        println!("no habit of the {} set has that in its name", set.name);
        return ExitCode::from(2);
    }
    let seed = arguments.seed.unwrap_or(set.seed);
    if let Some(number) = arguments.csv {
        print_samples(set, habits[0], number, seed);
        return ExitCode::SUCCESS;
    }
    let numbers = |habit: &'static Habit| (0..arguments.runs).map(move |number| (habit, number));
    let runs = habits.iter().flat_map(|habit| numbers(habit));
    let rows: Vec<Row> = runs.map(|(habit, number)| tally::row(set, habit, number, seed)).collect();
    let mut command = "cargo bench --no-default-features --bench verdict --".to_owned();
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

/// As a CSV that `xrun verdict` reads.
fn print_samples(set: &Set, habit: &Habit, number: u64, seed: u64) {
    let (run, _) = tally::run(set, habit, number, seed);
    println!("step,memory,level");
    for sample in &run.samples {
        println!("{},{:.0},{:.0}", sample.step, sample.bytes, sample.level);
    }
}
