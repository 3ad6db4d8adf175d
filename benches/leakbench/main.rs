//! LeakBench: error rates of memory verdicts, xrun's and others', on synthetic series with known ground truth.
//!
//! `cargo bench --no-default-features --bench leakbench`, with these options after `--`: `--set`, `--runs`, `--seed`, `--json`,
//! `--habit`. The tables are reproducible. Without options those of rules and goals are also written to `docs/leakbench.md`.

#![expect(clippy::print_stdout, reason = "prints tables")]

mod assessment;
mod goals;
mod interval;
mod judged;
mod rivals;
mod series;
mod table;
mod tally;
mod tuned;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use serde_json::json;
use xrun::files::write::{replace, replace_json};

use series::{Habit, Set};
use tally::Row;

/// The held-out set and the set on which the thresholds of the verdict were chosen.
const SETS: [Set; 2] = [judged::SET, tuned::SET];
/// Page with the tables, and the lines between which they stand.
const PAGE: &str = "docs/leakbench.md";
const MARKERS: [&str; 2] = ["<!-- tables of series: begin -->\n", "<!-- tables of series: end -->\n"];
/// Runs of each habit in the published tables.
const RUNS: u64 = 40;

/// Judges synthetic runs of many memory habits, and reports how often the verdict is wrong.
#[derive(Parser)]
struct Arguments {
    /// Set of habits: judged or tuned [default: both].
    #[arg(long)]
    set: Option<String>,
    /// Runs of each habit.
    #[arg(long, default_value_t = RUNS)]
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
    let matches = |habit: &&Habit| arguments.habit.as_ref().is_none_or(|part| habit.name.contains(part));
    let is_chosen = |set: &&Set| arguments.set.as_ref().is_none_or(|name| set.name == name);
    let sets: Vec<&Set> =
        SETS.iter().filter(is_chosen).filter(|set| set.habits.iter().any(|habit| matches(&habit))).collect();
    if sets.is_empty() {
        println!("no set is chosen by --set and --habit; the sets are {}", SETS.map(|set| set.name).join(", "));
        return ExitCode::from(2);
    }
    let (mut text, mut by_habit, mut all) = (String::new(), String::new(), Vec::new());
    for set in sets {
        let seed = arguments.seed.unwrap_or(set.seed);
        let habits: Vec<&Habit> = set.habits.iter().filter(matches).collect();
        if let Some(number) = arguments.csv {
            print_samples(set, habits[0], number, seed);
            return ExitCode::SUCCESS;
        }
        let rows = judge_runs(set, &habits, arguments.runs, seed);
        text += &table::markdown(set, &rows);
        by_habit += &table::habits(set, &rows);
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        all.push(json!({ "set": set.name, "seed": seed, "runs": arguments.runs, "rows": rows }));
    }
    println!("{text}{by_habit}");
    let is_published = arguments.set.is_none() && arguments.habit.is_none() && arguments.seed.is_none();
    if is_published
        && arguments.runs == RUNS
        && let Err(error) = publish(Path::new(PAGE), &text)
    {
        println!("{PAGE}: {error}");
        return ExitCode::FAILURE;
    }
    if let Some(path) = arguments.json
        && let Err(error) = replace_json(&path, &all)
    {
        println!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Judges all runs, on all processors.
fn judge_runs(set: &Set, habits: &[&Habit], runs: u64, seed: u64) -> Vec<Row> {
    let of_habit =
        |habit: &Habit| (0..runs).map(|number| tally::judge_run(set, habit, number, seed)).collect::<Vec<_>>();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|part| {
                let habits = habits.iter().skip(part).step_by(threads);
                scope.spawn(move || habits.map(|habit| of_habit(habit)).collect::<Vec<_>>())
            })
            .collect();
        let mut rows: Vec<Row> = parts.into_iter().filter_map(|part| part.join().ok()).flatten().flatten().collect();
        rows.sort_by_key(|row| (set.habits.iter().position(|habit| habit.name == row.habit), row.number));
        rows
    })
}

/// Replaces the tables in the page.
fn publish(page: &Path, tables: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(page).map_err(|error| error.to_string())?;
    let [begin, end] = MARKERS;
    let parts = text.split_once(begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let (before, after) = parts.ok_or("the lines that enclose the tables are missing")?;
    let text = format!("{before}{begin}{tables}\n{end}{after}");
    replace(page, text.as_bytes()).map_err(|error| error.to_string())
}

/// Prints a run as CSV for `xrun verdict`.
fn print_samples(set: &Set, habit: &Habit, number: u64, seed: u64) {
    let (run, _) = tally::generate(set, habit, number, seed);
    println!("step,memory,level");
    for sample in &run.samples {
        println!("{},{:.0},{:.0}", sample.step, sample.bytes, sample.level);
    }
}
