//! `xrun ls`: which runs are there?

use super::ListArguments;
use super::terminal::{Failure, Terminal};
use crate::report::listing;
use crate::results::index;

pub fn run(arguments: &ListArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let mut runs = index::runs(&arguments.results.folder);
    if let Some(experiment) = &arguments.experiment {
        runs.retain(|run| run.experiment == *experiment);
    }
    runs.truncate(arguments.count);
    match arguments.json {
        true => terminal.json(&listing::json(&runs)),
        false if runs.is_empty() => terminal.say(&format!("no runs in {}", arguments.results.folder.display())),
        false => terminal.answer(&listing::text(&runs, terminal.width())),
    }
    Ok(0)
}
