//! `xrun top`: what do the runs of this machine do now?

mod find;
mod frame;
mod row;
mod runs;
mod screen;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::Results;
use super::terminal::{Failure, Terminal};
use crate::results::format::Outcome;
use crate::stop::exit_code;
use crate::units::Span;
use runs::Runs;
use screen::{Left, Screen};

pub const HELP: &str = "\
Keys: q, Esc or Ctrl-C leave; the arrows, j and k scroll.

Exit codes:
    0  left as asked, or printed
    1  the terminal cannot be used
    2  there is no such run or folder
    8  ended by a signal";

#[derive(Clone, Debug, Args)]
pub struct TopArguments {
    /// Folders of results, runs (a folder, or a name as in `show`) or sweeps; the folder of --results when absent.
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folders: Vec<String>,
    /// The time between two looks.
    #[arg(long, value_name = "TIME", default_value = "2s")]
    every: Span,
    /// Print what there is to see now, and leave; also where standard output is no terminal.
    #[arg(long)]
    once: bool,
    /// Runs that have ended are shown as long as there are not more than this many.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10)]
    count: usize,
    #[command(flatten)]
    results: Results,
}

/// A look at many runs takes some milliseconds, and nobody reads faster.
const EVERY_MIN: Duration = Duration::from_millis(100);
const EVERY_MAX: Duration = Duration::from_secs(3600);

pub fn run(arguments: &TopArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let every = arguments.every.0;
    if !(EVERY_MIN..=EVERY_MAX).contains(&every) {
        return Err(Failure::Usage(format!("--every {}: must be from 100ms to 1h", arguments.every)));
    }
    let results = &arguments.results.folder;
    let asked: Vec<PathBuf> = match arguments.folders.as_slice() {
        [] => vec![results.clone()],
        folders => folders.iter().map(|text| find::meant(results, text)).collect::<Result<_, _>>()?,
    };
    let mut runs = Runs::new(asked, arguments.count);
    if arguments.once || !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        let seen = runs.look();
        terminal.answer(&frame::text(&seen, terminal.width()));
        return Ok(0);
    }
    let mut screen =
        Screen::open().map_err(|error| Failure::Failed(format!("the terminal cannot be used: {error}")))?;
    let left = screen.show(every, |width| frame::lines(&runs.look(), Some(width)));
    // Before anything is said.
    drop(screen);
    match left {
        Ok(Left::Asked) => Ok(0),
        Ok(Left::Signal) => Ok(exit_code(Outcome::Interrupted)),
        Err(error) => Err(Failure::Failed(format!("the terminal cannot be used: {error}"))),
    }
}
