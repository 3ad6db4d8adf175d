//! `xrun compare RUN RUN…`: what differs, in what was asked for and in what came out?

use std::path::{Path, PathBuf};

use clap::Args;

use super::Results;
use super::terminal::{Failure, Terminal, width};
use crate::files::{layout, write};
use crate::invocation;
use crate::report::compare::{self, RUNS_MAX};
use crate::results::{index, named};

#[derive(Clone, Debug, Args)]
pub struct CompareArguments {
    /// Two to 14 runs, each named as in `show`, or a folder of runs such as stage2/sweeps/latest; of a sweep with more
    /// runs one of each point.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// Write a page with the curves of all runs over one another.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    results: Results,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &CompareArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let mut runs: Vec<PathBuf> = Vec::new();
    for text in &arguments.runs {
        runs.extend(meant(&arguments.results.folder, text, terminal)?);
    }
    match runs.len() {
        0 | 1 => {
            return Err(Failure::Usage(format!(
                "a comparison needs two runs or more; `{} ls` lists them",
                invocation::program()
            )));
        }
        count if count > RUNS_MAX => {
            let message = format!("these are {count} runs; at most {RUNS_MAX} are compared side by side, so name some");
            return Err(Failure::Usage(message));
        }
        _ => {}
    }
    let compared = compare::gather(&runs).map_err(Failure::failed)?;
    if let Some(path) = &arguments.html {
        write::replace(path, compare::html(&compared).as_bytes()).map_err(Failure::failed)?;
        terminal.say(&format!("page: {}", path.display()));
    }
    match arguments.json {
        true => terminal.json(&compared.record),
        false => terminal.answer(&compare::text(&compared, width())),
    }
    Ok(0)
}

/// A run, or those of a folder, such as that of a sweep.
fn meant(results: &Path, text: &str, terminal: &Terminal) -> Result<Vec<PathBuf>, Failure> {
    let path = Path::new(text);
    if let Some(sweep) = named::sweep(results, path) {
        return of_sweep(&sweep, terminal);
    }
    let mut found = index::within(path);
    if found.is_empty() && text.contains('/') {
        found = index::within(&results.join(text));
    }
    match found.is_empty() {
        false => Ok(found),
        true => Ok(vec![index::find(results, text).map_err(|error| Failure::Usage(error.to_string()))?]),
    }
}

/// The runs of a sweep; of more than can be compared the first of each point.
fn of_sweep(sweep: &Path, terminal: &Terminal) -> Result<Vec<PathBuf>, Failure> {
    let mut runs = index::within(sweep);
    let count = runs.len();
    if count <= RUNS_MAX {
        return Ok(runs);
    }
    // `0003-2` is the second run of the third point, and they come in order.
    let point = |run: &PathBuf| run.file_name()?.to_str()?.split_once('-').map(|(point, _)| point.to_owned());
    runs.dedup_by_key(|run| point(run));
    if runs.len() > RUNS_MAX {
        let (points, sweep) = (runs.len(), sweep.display());
        return Err(Failure::Usage(format!(
            "this sweep has {count} runs of {points} points; at most {RUNS_MAX} runs are compared side by side. Its own \
             table compares all points: {sweep}/{} and {}; `xrun sweep --collect {sweep}` writes and prints it",
            layout::REPORT,
            layout::TABLE_CSV,
        )));
    }
    terminal.say(&format!(
        "of {count} runs one of each of the {} points; the sweep's {} has all",
        runs.len(),
        layout::REPORT
    ));
    Ok(runs)
}
