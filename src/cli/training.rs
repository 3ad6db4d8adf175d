//! What do running and resuming share? From a run that begins to an answer.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use super::hooks::{Ask, Observing};
use super::terminal::{Failure, Terminal};
use super::{Display, Progress, hooks, progress, resume};
use crate::dataset::error::Broken;
use crate::files::layout;
use crate::invocation;
use crate::printable;
use crate::report;
use crate::results::command_line;
use crate::results::format::Outcome;
use crate::results::read;
use crate::results::timestamp;
use crate::run::begin::NewRun;
use crate::run::hooks::Told;
use crate::run::launch::Launch;
use crate::run::post_mortem;
use crate::run::prepare::{Listener, NotStarted, Opened, Work, left_out};
use crate::stop::{RunOutcome, StopSignal, exit_code};
use crate::task::Task;
use crate::units::seconds;

impl Listener for Terminal {
    fn say(&self, text: &str) {
        Self::say(*self, text);
    }

    fn detail(&self, text: &str) {
        Self::detail(*self, text);
    }

    fn begin(&self, work: Work) -> Box<dyn std::any::Any> {
        match work {
            Work::GeneratingData => Box::new(progress::waiting(*self, "generating data")),
            Work::Measuring => Box::new(progress::waiting(*self, "measuring what memory a step needs")),
        }
    }
}

impl From<NotStarted> for Failure {
    fn from(error: NotStarted) -> Self {
        match error {
            NotStarted::Failed(message) => Self::Failed(message),
            NotStarted::OutOfMemory(message) => Self::OutOfMemory(message),
            NotStarted::Interrupted(message) => Self::Interrupted(message),
        }
    }
}

/// Says what was left out of the data.
pub fn tell_left_out(what: &str, broken: &Broken, named: usize, terminal: Terminal) {
    left_out(what, broken, named).iter().for_each(|line| terminal.say(line));
}

/// Makes the directory of a new run and trains; returns the directory and the exit code.
pub fn begin(
    new: &NewRun<'_>,
    opened: &Opened,
    task: Box<dyn Task>,
    started: Instant,
    display: &Display,
    terminal: Terminal,
    ask: Ask,
) -> Result<(PathBuf, u8), Failure> {
    // Until here a signal ends the program as it ends any other.
    let stop = listen(display, terminal)?;
    let begun = new.begin(opened, task.parameters())?;
    let code = train(begun.launch(opened, started), task, &stop, display, terminal, ask);
    Ok((begun.directory.path.clone(), code))
}

/// What the first signal is answered with, at once.
const STOPPING: &str = "\nstopping: the run ends after the step or validation that goes on, with a checkpoint; a second signal ends it at once\n";

/// From now on the first signal asks to stop in good order, and people read at once that it was heard.
pub fn listen(display: &Display, terminal: Terminal) -> Result<StopSignal, Failure> {
    let for_people = !terminal.quiet && !matches!(display.progress, Progress::Json | Progress::None);
    let stop = if for_people { StopSignal::listen_with_message(STOPPING) } else { StopSignal::listen() };
    stop.map_err(Failure::failed)
}

/// Trains, writes the report, says how it ended.
pub fn train(
    launch: Launch<'_>,
    task: Box<dyn Task>,
    stop: &StopSignal,
    display: &Display,
    terminal: Terminal,
    ask: Ask,
) -> u8 {
    let run = launch.directory.path.clone();
    let asked_hooks = launch.plan.experiment.hooks.clone();
    let stops_early = launch.stop_after.is_some() || launch.until.is_some();
    let told = Rc::new(RefCell::new(Some(Told::new(&asked_hooks, ask == Ask::Run))));
    let shown = progress::observer(display.progress, terminal);
    let mut observer = Observing::new(shown, told.clone(), &run, launch.plan.steps);
    let of = launch.train(task, stop, &mut observer);
    let ending = &of.ending;
    drop(observer);
    let reported = report::write(&run);
    let as_asked = stops_early && ending.outcome == Outcome::Interrupted && !stop.raised();
    tell(&run, &of, as_asked, display, terminal);
    let code = if as_asked { 0 } else { ending.exit_code() };
    if let Some(told) = told.take() {
        hooks::tell(told, &run, &of, code, terminal);
    }
    match (reported, code) {
        (Err(error), code) => {
            terminal.error(&format!(
                "the report cannot be written: {error}; `{} report` does it later",
                invocation::program()
            ));
            if code == 0 { exit_code(Outcome::Failed) } else { code }
        }
        (Ok(damage), code) => {
            // Of what processes before this one wrote.
            damage.iter().for_each(|damage| terminal.say(&format!("damaged: {damage}")));
            if code == 0 && !terminal.events {
                terminal.say(&format!("report: {}", run.join(layout::REPORT).display()));
            }
            code
        }
    }
}

/// Says how a run ended, to people or to programs.
pub fn tell(run: &Path, of: &RunOutcome, as_asked: bool, display: &Display, terminal: Terminal) {
    match terminal.events {
        true => tell_programs(run, of, as_asked, terminal),
        false => tell_people(run, of, as_asked, terminal),
    }
    let ending = &of.ending;
    if display.json {
        terminal.json(&serde_json::json!({
            "run": run.display().to_string(),
            "outcome": ending.outcome,
            "exit_code": if as_asked { 0 } else { ending.exit_code() },
            "of_data": ending.of_data,
            "as_far_as_asked": as_asked,
            "message": ending.message,
            "parameters": of.plan.as_ref().map(|plan| plan.parameters),
            "summary": of.summary,
        }));
    }
}

/// The last event of a stream of them.
fn tell_programs(run: &Path, of: &RunOutcome, as_asked: bool, terminal: Terminal) {
    let (ending, summary) = (&of.ending, of.summary.as_ref());
    let report = run.join(layout::REPORT);
    terminal.event(&serde_json::json!({
        "event": "ended", "time": timestamp::now(), "run": run.display().to_string(),
        "outcome": ending.outcome, "exit_code": if as_asked { 0 } else { ending.exit_code() },
        "message": ending.message,
        "report": report.is_file().then(|| report.display().to_string()),
        "verdict": of.verdict.as_ref().map(|found| serde_json::json!({ "verdict": found.verdict, "message": found.message })),
        "steps": summary.map(|summary| summary.steps),
        "seconds": summary.map(|summary| summary.seconds),
        "metrics_first": summary.map(|summary| &summary.metrics_first),
        "metrics_last": summary.map(|summary| &summary.metrics_last),
        "best": summary.and_then(|summary| summary.best.as_ref()),
    }));
}

fn tell_people(run: &Path, of: &RunOutcome, as_asked: bool, terminal: Terminal) {
    let (ending, summary) = (&of.ending, of.summary.as_ref());
    if let Some(summary) = summary {
        // What it was all for comes first.
        report::result::lines(run, summary, of.plan.as_ref()).iter().for_each(|line| terminal.say(line));
    }
    if let Some(verdict) = &of.verdict {
        if let Ok(table) = report::epochs::table(run) {
            terminal.say(table.trim_end());
        }
        terminal.say(&format!("verdict {}: {}", verdict.verdict.words(), verdict.message));
    }
    if as_asked {
        terminal.say(&ending.message);
    } else if ending.exit_code() == 0 {
        let time = summary.map_or_else(String::new, |summary| format!(" in {}", seconds(summary.seconds)));
        terminal.say(&format!("{}{time}", ending.message));
    } else {
        terminal.error(&format!("{}: {}", ending.outcome.words(), ending.message));
        if ending.of_data {
            terminal.say(&after_broken_data(run));
        } else if ending.outcome.resumable() && goes_on(run) {
            let with = of.post_mortem.as_ref().and_then(|dead| post_mortem::to_go_on(dead, resume::may_change));
            let with = with.map_or_else(String::new, |with| format!(" {with}"));
            let run = printable::shell_word(&run.to_string_lossy());
            terminal.say(&format!("to continue: {} resume {run}{with}", invocation::program()));
        }
    }
}

/// Whether it can be resumed: of a command, only if that says how.
fn goes_on(run: &Path) -> bool {
    read::manifest(run).ok().and_then(|manifest| manifest.watched).is_none_or(|watched| watched.resumes)
}

/// What to do when the data could not be used. Mended data are other data, with which no run is resumed.
fn after_broken_data(run: &Path) -> String {
    let word = |path: &Path| printable::shell_word(&path.to_string_lossy());
    let program = invocation::program();
    let whole = read::manifest(run).ok().and_then(|manifest| command_line::command_of_the_whole(&manifest.command));
    let again = whole.unwrap_or_else(|| format!("{program} {}", word(&run.join(layout::RESOLVED))));
    format!(
        "mend the data, then start a new run: {again}; `{program} resume {}` goes on only with the data that the run began \
         with",
        word(run)
    )
}
