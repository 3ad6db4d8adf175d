//! `xrun compare RUN RUN…`: what differs, in what was asked for and in what came out?

use std::path::{Path, PathBuf};

use clap::Args;

use super::Results;
use super::terminal::{Failure, Terminal, width};
use crate::report::compare::{self, RUNS_MAX};
use crate::results::{index, write};

#[derive(Clone, Debug, Args)]
pub struct CompareArguments {
    /// Two to 14 runs, each named as in `show`, or a folder of runs such as stage2/sweeps/latest.
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
        // A folder of runs, such as that of a sweep, stands for all of them.
        let results = &arguments.results.folder;
        let mut found = index::within(Path::new(text));
        if found.is_empty() && text.contains('/') {
            found = index::within(&results.join(text));
        }
        match found.is_empty() {
            false => runs.extend(found),
            true => runs.push(index::find(results, text).map_err(|error| Failure::Usage(error.to_string()))?),
        }
    }
    match runs.len() {
        0 | 1 => return Err(Failure::Usage("a comparison needs two runs or more; `xrun ls` lists them".into())),
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
