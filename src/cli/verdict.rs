//! `xrun verdict PATH`: judge whether memory grows, in a run or in a trace of another tool.

use std::path::PathBuf;

use super::VerdictArguments;
use super::terminal::{Failure, Terminal};
use super::{fail_on, watch};
use crate::command::attach;
use crate::exit::EXIT_VERDICT;
use crate::files::layout;
use crate::invocation;
use crate::judge::{VerdictError, memory_fails, training_fails};
use crate::report::run_report;
use crate::report::verdict::text;
use crate::report::width::fold;
use crate::results::index;
use crate::results::verdict::{LineDamage, UnjudgedColumn, Verdict};
use crate::results::view::RunView;
use crate::settings::sections::FailOn;
use crate::stop::StopSignal;
use crate::verdict::table::{POSITIONS, TableOptions};
use crate::{judge, printable};

/// Largest number of characters of a note or a list of columns.
const LEFT_OUT_CHARACTERS_MAX: usize = 2000;

/// Observes and judges a running process.
fn judge_process(process: u32, arguments: &VerdictArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let every = watch::interval(arguments.every)?;
    let stop = StopSignal::listen().map_err(Failure::failed)?;
    let verdict = attach::attach(process, every, &|| stop.raised(), &|text| terminal.info(text));
    let verdict = verdict.map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(print_verdict(&verdict, arguments, terminal))
}

/// Prints a verdict and returns the exit code.
fn print_verdict(verdict: &Verdict, arguments: &VerdictArguments, terminal: &Terminal) -> u8 {
    terminal.answer(arguments.json, verdict, || text(verdict, terminal.width()));
    let on_memory = fail_on::both(&arguments.fail_on).0.unwrap_or_default();
    let unreadable = verdict.not_judged.iter().find(|one| one.unreadable_memory && on_memory != FailOn::Never);
    if let Some(UnjudgedColumn { column, reason, .. }) = unreadable {
        let column = printable::line(column, LEFT_OUT_CHARACTERS_MAX);
        let reason = printable::line(reason, LEFT_OUT_CHARACTERS_MAX);
        terminal.info(&format!(
            "`{column}` may be memory and is not judged ({reason}); `--fail-on` passes only if the columns are selected with \
             `--column`"
        ));
    }
    if unreadable.is_some() || memory_fails(on_memory, verdict.verdict) { EXIT_VERDICT } else { 0 }
}

pub fn run(arguments: &VerdictArguments, terminal: &Terminal) -> Result<u8, Failure> {
    if let Some(process) = arguments.pid {
        return judge_process(process, arguments, terminal);
    }
    let named = arguments.path.as_deref().unwrap_or(layout::LATEST);
    let path = PathBuf::from(named);
    let path = match path.exists() {
        true if path.extension().is_some_and(|end| end == "py") => {
            let shown = path.display();
            let program = invocation::program();
            return Err(Failure::Usage(format!("{shown} is a Python program: {program} watch -- python3 {shown}")));
        }
        true => path,
        // Otherwise it is the name of a run.
        false => index::find(&arguments.results.directory, named).map_err(|error| {
            let file = path.extension().map_or("", |_| "no such file, and ");
            Failure::Usage(format!("{file}{error}"))
        })?,
    };
    let options = TableOptions {
        columns: arguments.column.clone(),
        step_column: arguments.step_column.clone(),
        unit: arguments.unit.clone(),
        of: arguments.of.clone(),
        growth_min: arguments.growth_min.map(|size| size.0),
    };
    let judged = judge::judge_path(&path, &options).map_err(|error| match error {
        VerdictError::Usage(_) => Failure::Usage(error.to_string()),
        _ => Failure::failed(error),
    })?;
    for note in &judged.notes {
        terminal.info(&printable::line(note, LEFT_OUT_CHARACTERS_MAX));
    }
    let others = judged.verdict.not_judged.iter().filter(|one| one.reason != POSITIONS);
    let listed = others.map(|one| format!("`{}` ({})", one.column, one.reason));
    let listed: Vec<String> = listed.collect();
    if !listed.is_empty() {
        terminal.info(&format!("not judged: {}", printable::line(&listed.join(", "), LEFT_OUT_CHARACTERS_MAX)));
    }
    if path.is_dir() && !path.join(layout::MEMORY).exists() {
        terminal.info("no memory.jsonl: showing verdict.json");
    }
    let report = if path.is_dir() { run_report::open(&path).ok() } else { None };
    let of_metrics = |damage: &&LineDamage| damage.file == layout::METRICS;
    let damage = report.iter().flat_map(|run| &run.curves().skipped.damage).filter(of_metrics).cloned().collect();
    let code = print_verdict(&judge::add_damage(judged.verdict, damage), arguments, terminal);
    Ok(code.max(report.map_or(0, |report| print_training(report, arguments, terminal))))
}

/// Prints the verdict on the training of a run and returns the exit code.
fn print_training(report: RunView, arguments: &VerdictArguments, terminal: &Terminal) -> u8 {
    let Some(training) = report.training() else { return 0 };
    if !arguments.json {
        let text = format!("\ntraining {}: {}", training.verdict.words(), training.message);
        terminal.print(&fold(&printable::lines(&text), terminal.width(), 2));
    }
    let on = fail_on::both(&arguments.fail_on).1.unwrap_or_default();
    if training_fails(on, training.verdict) { EXIT_VERDICT } else { 0 }
}
