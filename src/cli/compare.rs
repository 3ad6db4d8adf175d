//! `xrun compare RUN RUN…`: compare the settings, metrics, memory and speed of runs.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use super::Results;
use super::terminal::{Failure, Terminal, stdout_width};
use crate::files::{layout, write};
use crate::invocation;
use crate::printable;
use crate::problem::nearest;
use crate::report::compare::{self, RUNS_MAX, View};
use crate::results::{index, run_name};
use crate::sweep::listing;

#[derive(Clone, Debug, Args)]
pub struct CompareArguments {
    /// Two to 14 runs, named as in `show`, or a directory of runs such as stage2/sweeps/latest. Of a larger sweep, one run
    /// per trial is compared.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// Show only this metric, or `loss` (repeatable).
    #[arg(long, value_name = "NAME")]
    metric: Vec<String>,
    /// Leave out what is the same in all runs.
    #[arg(long)]
    only_changed: bool,
    /// Compare the memory of each component instead: weights, activations, validation, each buffer.
    #[arg(long, conflicts_with_all = ["metric", "html", "json"])]
    components: bool,
    /// Write an HTML page with the curves of all runs.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
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
        runs.extend(find_runs(&arguments.results.directory, text, terminal)?);
    }
    match runs.len() {
        0 | 1 => {
            return Err(Failure::Usage(format!(
                "a comparison needs at least two runs; `{} ls` lists them",
                invocation::program()
            )));
        }
        count if count > RUNS_MAX => {
            let message = format!("{count} runs are too many; at most {RUNS_MAX} can be compared");
            return Err(Failure::Usage(message));
        }
        _ => {}
    }
    let compared = compare::gather(&runs).map_err(Failure::failed)?;
    let names = compared.names();
    if let Some(unknown) = arguments.metric.iter().find(|name| !names.contains(&name.as_str())) {
        let near =
            nearest(unknown, names.iter().copied()).map_or(String::new(), |near| format!("did you mean `{near}`? "));
        let known = names.iter().map(|name| printable::line(name, 60)).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("no compared run has the metric `{unknown}`; {near}known: {known}")));
    }
    let view = View {
        metrics: arguments.metric.clone(),
        only_changed: arguments.only_changed,
        components: arguments.components,
    };
    if let Some(path) = &arguments.html {
        write::replace(path, compare::html(&compared, &view).as_bytes()).map_err(Failure::failed)?;
        terminal.info(&format!("page: {}", path.display()));
    }
    match arguments.json {
        true => terminal.json(&compared.json().map_err(Failure::failed)?),
        false => terminal.print(&compare::text(&compared, &view, stdout_width())),
    }
    Ok(0)
}

/// Finds a run, or the runs of a directory such as a sweep.
fn find_runs(results: &Path, text: &str, terminal: &Terminal) -> Result<Vec<PathBuf>, Failure> {
    let path = Path::new(text);
    if let Some(sweep) = run_name::sweep(results, path) {
        return sweep_runs(&sweep, terminal);
    }
    let mut found = index::runs_within(path);
    if found.is_empty() && text.contains('/') {
        found = index::runs_within(&results.join(text));
    }
    match found.is_empty() {
        false => Ok(found),
        true => match (index::find(results, text), listing::find(results, text)) {
            (Err(_), Some(sweep)) => sweep_runs(&sweep, terminal),
            (found, _) => Ok(vec![found?]),
        },
    }
}

/// Runs of a sweep; the first of each trial if there are too many.
fn sweep_runs(sweep: &Path, terminal: &Terminal) -> Result<Vec<PathBuf>, Failure> {
    let mut runs = index::runs_within(sweep);
    let count = runs.len();
    if count <= RUNS_MAX {
        return Ok(runs);
    }
    // `0003-2` is the second run of the third trial; the runs are sorted.
    let trial = |run: &PathBuf| run.file_name()?.to_str()?.split_once('-').map(|(trial, _)| trial.to_owned());
    runs.dedup_by_key(|run| trial(run));
    if runs.len() > RUNS_MAX {
        let (trials, sweep) = (runs.len(), sweep.display());
        return Err(Failure::Usage(format!(
            "the sweep has {count} runs of {trials} trials, but at most {RUNS_MAX} runs can be compared; its own table has all \
             trials: {sweep}/{} and {} (`xrun sweep --collect {sweep}` writes and prints it)",
            layout::REPORT,
            layout::TABLE_CSV,
        )));
    }
    terminal.info(&format!(
        "comparing one run of each of {} trials ({count} runs); the sweep's {} has all",
        runs.len(),
        layout::REPORT
    ));
    Ok(runs)
}
