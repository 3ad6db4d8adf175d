//! `xrun top`: monitor runs.

pub(super) mod find;
mod frame;
pub(super) mod row;
pub(super) mod runs;
mod screen;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::Results;
use super::terminal::{Failure, Terminal};
use crate::exit::exit_code;
use crate::results::format::Outcome;
use crate::units::Span;
use runs::Runs;

pub const HELP: &str = "\
Ctrl-C quits.

Exit codes:
    0  ended by Ctrl-C, or printed
    1  the terminal cannot be used
    2  no such run or directory
    8  ended by another signal";

#[derive(Clone, Debug, Args)]
pub struct TopArguments {
    /// Results directories, runs (named as in `show`) or sweeps. Default: the directory of --results.
    #[arg(value_name = "RUN", value_hint = ValueHint::DirPath)]
    directories: Vec<String>,
    /// Refresh period.
    #[arg(long, value_name = "TIME", default_value = "2s")]
    every: Span,
    /// Print the current state and exit, as if stdout were not a terminal.
    #[arg(long)]
    once: bool,
    /// Largest number of ended runs to show, the newest.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 0)]
    count: usize,
    #[command(flatten)]
    results: Results,
}

/// Bounds of the refresh period. Reading many runs takes some milliseconds.
const EVERY_MIN: Duration = Duration::from_millis(100);
const EVERY_MAX: Duration = Duration::from_secs(3600);

pub fn run(arguments: &TopArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let every = arguments.every.0;
    if !(EVERY_MIN..=EVERY_MAX).contains(&every) {
        return Err(Failure::Usage(format!("--every {}: expected 100ms to 1h", arguments.every)));
    }
    let results = &arguments.results.directory;
    let selected: Vec<PathBuf> = match arguments.directories.as_slice() {
        [] => vec![results.clone()],
        directories => directories.iter().map(|text| find::directory(results, text)).collect::<Result<_, _>>()?,
    };
    let mut runs = Runs::new(selected, arguments.count);
    if arguments.once || !std::io::stdout().is_terminal() {
        let snapshot = runs.snapshot();
        terminal.print(&frame::text(&snapshot, terminal.width()));
        return Ok(0);
    }
    let by_user = screen::show(every, |width| frame::lines(&runs.snapshot(), Some(width)));
    match by_user.map_err(|error| Failure::Failed(format!("cannot use the terminal: {error}")))? {
        true => Ok(0),
        false => Ok(exit_code(Outcome::Interrupted)),
    }
}
