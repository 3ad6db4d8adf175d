//! `xrun verdict PATH`: judge whether memory grows, in a run or in a trace of another tool.

use std::path::PathBuf;

use super::VerdictArguments;
use super::terminal::{Failure, Terminal};
use super::watch;
use crate::command::attach;
use crate::files::layout;
use crate::judge::{VerdictError, fails};
use crate::report::verdict::{UnjudgedColumn, text};
use crate::results::index;
use crate::results::verdict::Verdict;
use crate::stop::{EXIT_VERDICT, StopSignal};
use crate::verdict::table::TableOptions;
use crate::{judge, printable};

/// Largest number of characters of a note or a list of columns.
const LEFT_OUT_CHARACTERS_MAX: usize = 2000;

/// Observes and judges a running process.
fn judge_process(process: u32, arguments: &VerdictArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let every = watch::interval(arguments.every)?;
    let stop = StopSignal::listen().map_err(Failure::failed)?;
    let verdict = attach::attach(process, every, &|| stop.raised(), &|text| terminal.say(text));
    let verdict = verdict.map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(print_verdict(&verdict, &[], arguments, terminal))
}

/// Prints a verdict and returns the exit code.
fn print_verdict(
    verdict: &Verdict,
    not_judged: &[UnjudgedColumn],
    arguments: &VerdictArguments,
    terminal: &Terminal,
) -> u8 {
    match arguments.json {
        true => terminal.json(verdict),
        false => terminal.answer(&text(verdict, not_judged, terminal.width())),
    }
    if fails(arguments.fail_on, verdict.verdict) { EXIT_VERDICT } else { 0 }
}

pub fn run(arguments: &VerdictArguments, terminal: &Terminal) -> Result<u8, Failure> {
    if let Some(process) = arguments.pid {
        return judge_process(process, arguments, terminal);
    }
    let named = arguments.path.as_deref().unwrap_or(layout::LATEST);
    let path = PathBuf::from(named);
    let path = match path.exists() {
        true => path,
        // Otherwise it is the name of a run.
        false => index::find(&arguments.results.folder, named).map_err(|error| {
            let file = path.extension().map_or("", |_| "no such file, and ");
            Failure::Usage(format!("{file}{error}"))
        })?,
    };
    let options = TableOptions {
        columns: arguments.column.clone(),
        step_column: arguments.step_column.clone(),
        unit: arguments.unit.clone(),
    };
    let judged = judge::path(&path, &options).map_err(|error| match error {
        VerdictError::Usage(_) => Failure::Usage(error.to_string()),
        _ => Failure::failed(error),
    })?;
    for note in &judged.notes {
        terminal.say(&printable::line(note, LEFT_OUT_CHARACTERS_MAX));
    }
    if !judged.left_out.is_empty() {
        terminal.say(&format!("left out: {}", printable::line(&judged.left_out.join(", "), LEFT_OUT_CHARACTERS_MAX)));
    }
    for unknown in &judged.unknown {
        let name = printable::line(&unknown.name, LEFT_OUT_CHARACTERS_MAX);
        terminal.say(&format!(
            "not judged: `{name}` has no unit, and its values (up to {}) are too small for bytes; set a unit, for example \
             `--unit MiB`",
            unknown.peak
        ));
    }
    if path.is_dir() && !path.join(layout::MEMORY).exists() {
        terminal.say("no memory.jsonl: showing verdict.json");
    }
    let not_judged = judged.unknown.into_iter().map(|unknown| UnjudgedColumn {
        name: unknown.name,
        why: "unit unknown",
        numbers: [unknown.first, unknown.last, unknown.peak],
    });
    let not_judged: Vec<UnjudgedColumn> = not_judged.collect();
    Ok(print_verdict(&judged.verdict, &not_judged, arguments, terminal))
}
