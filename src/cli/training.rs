//! Training of a new or resumed run: signals, progress, report and outcome.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Instant;

use super::terminal::{Failure, Terminal};
use super::{Display, Progress, ending, progress};
use crate::child;
use crate::exit::exit_code;
use crate::files::layout;
use crate::invocation;
use crate::report::{self, ReportError};
use crate::results::format::Outcome;
use crate::results::timestamp;
use crate::run::launch::{Extent, Launch};
use crate::run::new_run::NewRun;
use crate::run::prepare::{LongTask, Opened, ProgressListener, StartError};
use crate::stop::{RunOutcome, StopSignal};
use crate::sweep::resources::forecasts::ForecastError;
use crate::task::Task;

impl ProgressListener for Terminal {
    fn info(&self, text: &str) {
        Self::info(*self, text);
    }

    fn detail(&self, text: &str) {
        Self::detail(*self, text);
    }

    fn start_work(&self, work: LongTask) -> Box<dyn std::any::Any> {
        match work {
            LongTask::GeneratingData => Box::new(progress::spinner(*self, "generating data")),
            LongTask::Probing => Box::new(progress::spinner(*self, "memory probe")),
        }
    }
}

impl From<ForecastError> for Failure {
    fn from(error: ForecastError) -> Self {
        match error {
            ForecastError::Start(error) => error.into(),
            ForecastError::Experiment(problems) => problems.into(),
            error => Self::failed(error),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Failed(message) => Self::Failed(message),
            StartError::OutOfMemory(message) => Self::OutOfMemory(message),
            StartError::DoesNotFit(message) => Self::DoesNotFit(message),
            StartError::Interrupted(message) => Self::Interrupted(message),
        }
    }
}

/// Creates the directory of a new run and trains; returns the outcome and the exit code.
pub fn start(
    new: &NewRun<'_>,
    opened: &Opened,
    task: Box<dyn Task>,
    started: Instant,
    display: &Display,
    terminal: Terminal,
) -> Result<(RunOutcome, u8), Failure> {
    // Before this, signals have their default effect.
    let stop = listen(display, terminal)?;
    let run = new.create(opened, task.parameters())?;
    Ok(train(run.launch(opened, started), task, &stop, display, terminal))
}

/// Message on the first signal.
const STOPPING: &str =
    "\nstopping after the current step or validation, with a checkpoint;\na second signal kills the run immediately\n";

/// Installs the signal handlers: the first signal requests a stop, and is acknowledged on the terminal.
pub fn listen(display: &Display, terminal: Terminal) -> Result<StopSignal, Failure> {
    let acknowledged = !terminal.quiet && !matches!(display.progress, Progress::Json | Progress::None);
    let stop = if acknowledged { StopSignal::listen_with_message(STOPPING) } else { StopSignal::listen() };
    stop.map_err(Failure::failed)
}

/// Trains, writes the report and reports the outcome; returns it and the exit code.
pub fn train(
    launch: Launch<'_>,
    task: Box<dyn Task>,
    stop: &StopSignal,
    display: &Display,
    terminal: Terminal,
) -> (RunOutcome, u8) {
    let directory = launch.directory;
    let (stops_early, last) = (launch.extent != Extent::Whole, launch.extent.last_step());
    let mut observer = progress::observer(display.progress, terminal);
    let outcome = launch.train(task, stop, &mut *observer);
    drop(observer);
    if outcome.ending.retries && !stop.raised() {
        terminal.info(&outcome.ending.message);
        let error = resume_in_this_place(&outcome.run.path, last, display);
        terminal.error(&format!("cannot start the program again: {error}"));
    }
    // Otherwise the directory is that of another process now.
    let reported = directory.check_held().map_err(ReportError::from).and_then(|()| report::write_view(&outcome.run));
    let as_requested = stops_early && outcome.ending.outcome == Outcome::Interrupted && !stop.raised();
    let code = report_end(&outcome, reported, as_requested, display, terminal);
    (outcome, code)
}

/// Replaces this program by one that resumes the run: what the device's driver holds ends with a program. Returns only where that
/// fails.
fn resume_in_this_place(run: &Path, last: Option<u64>, display: &Display) -> std::io::Error {
    let mut command = match child::program_path() {
        Ok(program) => std::process::Command::new(program),
        Err(error) => return error,
    };
    command.arg("resume").arg(run).arg(format!("--progress={}", display.progress.name()));
    command.args(last.map(|step| format!("--until={step}")));
    let flags = [(display.json, "--json"), (display.quiet, "--quiet"), (display.verbose, "--verbose")];
    command.args(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag));
    command.exec()
}

/// Reports the outcome of a run and where its report is; returns the exit code.
pub fn report_end(
    outcome: &RunOutcome,
    reported: Result<Vec<String>, ReportError>,
    as_requested: bool,
    display: &Display,
    terminal: Terminal,
) -> u8 {
    if let Err(error) = &reported {
        // Before the outcome, whose advice stands last.
        let program = invocation::program();
        terminal.error(&format!("cannot write the report: {error}; `{program} export --to report` writes it again"));
    }
    report_outcome(outcome, as_requested, display, terminal);
    match (reported, if as_requested { 0 } else { outcome.ending.exit_code() }) {
        (Err(_), 0) => exit_code(Outcome::Failed),
        (Err(_), code) => code,
        (Ok(damage), code) => {
            // Damage in records of earlier processes.
            damage.iter().for_each(|damage| terminal.info(&format!("damaged: {damage}")));
            if !terminal.events {
                terminal.info(&format!("report: {}", outcome.run.path.join(layout::REPORT).display()));
            }
            code
        }
    }
}

/// Reports the outcome of a run, as text or as an event, and on stdout with `--json`. `as_requested` is true for a run that
/// stopped at the requested step, which is a success.
fn report_outcome(outcome: &RunOutcome, as_requested: bool, display: &Display, terminal: Terminal) {
    match terminal.events {
        true => emit_outcome(outcome, as_requested, terminal),
        false => ending::print(outcome, as_requested, terminal),
    }
    let RunOutcome { ending, run } = outcome;
    if display.json {
        terminal.json(&serde_json::json!({
            "run": run.path.display().to_string(),
            "outcome": ending.outcome,
            "exit_code": if as_requested { 0 } else { ending.exit_code() },
            "is_data_error": ending.is_data_error,
            "stopped_as_requested": as_requested,
            "message": ending.message,
            "parameters": run.plan().map(|plan| plan.parameters),
            "summary": run.summary(),
        }));
    }
}

/// Emits the last event of a run.
fn emit_outcome(RunOutcome { ending, run }: &RunOutcome, as_requested: bool, terminal: Terminal) {
    let summary = run.summary();
    let report = run.path.join(layout::REPORT);
    terminal.event(&serde_json::json!({
        "event": "ended", "time": timestamp::now(), "run": run.path.display().to_string(),
        "outcome": ending.outcome, "exit_code": if as_requested { 0 } else { ending.exit_code() },
        "message": ending.message,
        "report": report.is_file().then(|| report.display().to_string()),
        "verdict": run.verdict().map(|found| serde_json::json!({ "verdict": found.verdict, "message": found.message })),
        "training": summary.and_then(|summary| summary.training.as_ref()).map(|found| {
            serde_json::json!({ "verdict": found.verdict, "message": found.message })
        }),
        "steps": summary.map(|summary| summary.steps),
        "seconds": summary.map(|summary| summary.seconds),
        "metrics_first": summary.map(|summary| &summary.metrics_first),
        "metrics_last": summary.map(|summary| &summary.metrics_last),
        "best": summary.and_then(|summary| summary.best.as_ref()),
    }));
}
