//! `xrun verdict PATH`: is memory growing, in a run or in a trace of another tool?

use std::path::PathBuf;

use super::VerdictArguments;
use super::terminal::{Failure, Terminal};
use super::watch;
use crate::command::attach;
use crate::files::layout;
use crate::judge::{VerdictError, fails};
use crate::report::verdict::{self, NotJudged};
use crate::results::index;
use crate::stop::{EXIT_VERDICT, StopSignal};
use crate::verdict::table::TableOptions;
use crate::{judge, printable};

/// Enough to name some columns.
const LEFT_OUT_CHARACTERS_MAX: usize = 2000;

/// A process that runs already.
fn of_process(process: u32, arguments: &VerdictArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let every = watch::interval(arguments.every)?;
    let stop = StopSignal::listen().map_err(Failure::failed)?;
    let found = attach::attach(process, every, &|| stop.raised(), &|text| terminal.say(text));
    let found = found.map_err(|error| Failure::Usage(error.to_string()))?;
    match arguments.json {
        true => terminal.json(&found),
        false => terminal.answer(&verdict::text(&found, &[], terminal.width())),
    }
    Ok(if fails(arguments.fail_on, found.verdict) { EXIT_VERDICT } else { 0 })
}

pub fn run(arguments: &VerdictArguments, terminal: &Terminal) -> Result<u8, Failure> {
    if let Some(process) = arguments.pid {
        return of_process(process, arguments, terminal);
    }
    let named = arguments.path.as_deref().unwrap_or(layout::LATEST);
    let path = PathBuf::from(named);
    let path = match path.exists() {
        true => path,
        // A run by its name, as everywhere.
        false => index::find(&arguments.results.folder, named).map_err(|error| {
            let file = path.extension().map_or("", |_| "there is no such file, and ");
            Failure::Usage(format!("{file}{error}"))
        })?,
    };
    let asked = TableOptions {
        columns: arguments.column.clone(),
        step_column: arguments.step_column.clone(),
        unit: arguments.unit.clone(),
    };
    let judged = judge::of_path(&path, &asked).map_err(|error| match error {
        VerdictError::Asked(_) => Failure::Usage(error.to_string()),
        _ => Failure::failed(error),
    })?;
    let found = judged.verdict;
    for note in &judged.notes {
        terminal.say(&printable::line(note, LEFT_OUT_CHARACTERS_MAX));
    }
    if !judged.left_out.is_empty() {
        terminal.say(&format!("left out: {}", printable::line(&judged.left_out.join(", "), LEFT_OUT_CHARACTERS_MAX)));
    }
    for unknown in &judged.unknown {
        let name = printable::line(&unknown.name, LEFT_OUT_CHARACTERS_MAX);
        terminal.say(&format!(
            "not judged: `{name}` has no unit, and is too small for bytes (up to {}); `--unit MiB` says one",
            unknown.peak
        ));
    }
    if path.is_dir() && !path.join(layout::MEMORY).exists() {
        terminal.say("this result has no memory.jsonl: the verdict is that of its verdict.json");
    }
    let not_judged = judged.unknown.into_iter().map(|unknown| NotJudged {
        name: unknown.name,
        why: "unit unknown",
        numbers: [unknown.first, unknown.last, unknown.peak],
    });
    let not_judged: Vec<NotJudged> = not_judged.collect();
    match arguments.json {
        true => terminal.json(&found),
        false => terminal.answer(&verdict::text(&found, &not_judged, terminal.width())),
    }
    Ok(if fails(arguments.fail_on, found.verdict) { EXIT_VERDICT } else { 0 })
}
