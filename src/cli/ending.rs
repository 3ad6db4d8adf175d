//! Lines at the end of a run: verdict, outcome, results, memory, and the command to continue.

use std::path::Path;

use super::changeable;
use super::terminal::{Terminal, stderr_width};
use crate::files::layout;
use crate::invocation;
use crate::printable;
use crate::results::command_line;
use crate::results::verdict::VerdictWord;
use crate::results::view::RunView;
use crate::run::post_mortem;
use crate::stop::RunOutcome;
use crate::units::seconds;

/// Prints how a run ended, the verdict first: at most eight lines, but for memory that grows or with `--verbose`, where the
/// memory of each epoch follows.
pub fn print(RunOutcome { ending, run }: &RunOutcome, as_requested: bool, terminal: Terminal) {
    let summary = run.summary();
    if let Some(verdict) = run.verdict() {
        terminal.info(&format!("verdict {}: {}", verdict.verdict.words(), verdict.message));
    }
    if let Some(training) = summary.and_then(|summary| summary.training.as_ref()) {
        terminal.info(&format!("training {}: {}", training.verdict.words(), training.message));
    }
    if as_requested {
        terminal.info(&ending.message);
    } else if ending.exit_code() == 0 {
        let time = summary.map_or_else(String::new, |summary| format!(" in {}", seconds(summary.seconds)));
        terminal.info(&format!("{}{time}", ending.message));
    } else {
        terminal.error(&format!("{}: {}", ending.outcome.label(), ending.message));
    }
    if summary.is_some() {
        let loss = run.loss_line().map(|loss| format!("loss {loss}"));
        run.result_line().iter().chain(&loss).for_each(|line| terminal.info(line));
        terminal.info(&format!("memory at its peak: {}", run.memory_line()));
    }
    if run.verdict().is_some_and(|verdict| terminal.verbose || grows(verdict.verdict)) {
        let table = run.trace().epochs.text(Some(stderr_width()));
        if !table.is_empty() {
            terminal.info(table.trim_end());
        }
    }
    if as_requested || ending.exit_code() == 0 {
        return;
    }
    if ending.is_data_error {
        terminal.info(&invalid_data_advice(run));
    } else if ending.outcome.is_resumable() && run.watched().is_none_or(|watched| watched.can_resume) {
        let option = run.post_mortem().and_then(|record| post_mortem::resume_option(record, changeable::is_changeable));
        let option = option.map_or_else(String::new, |option| format!(" {option}"));
        let run = printable::shell_word(&run.path.to_string_lossy());
        terminal.info(&format!("to continue: {} resume {run}{option}", invocation::program()));
    }
}

/// Returns true if the memory of each epoch belongs to the verdict.
fn grows(judgement: VerdictWord) -> bool {
    judgement >= VerdictWord::Suspect
}

/// Advice after an error of the data. Corrected data is other data, with which a run cannot be resumed.
fn invalid_data_advice(run: &RunView) -> String {
    let word = |path: &Path| printable::shell_word(&path.to_string_lossy());
    let program = invocation::program();
    let whole = run.manifest().and_then(|manifest| command_line::command_without_shortening(&manifest.command));
    let again = whole.unwrap_or_else(|| format!("{program} {}", word(&run.path.join(layout::RESOLVED))));
    format!(
        "fix the data, then start a new run: {again}; `{program} resume {}` works only with unchanged data",
        word(&run.path)
    )
}
