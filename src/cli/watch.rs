//! `xrun watch -- COMMAND`: run any command, record its memory and judge whether it grows.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueHint};

use super::fail_on::{self, FailingVerdict};
use super::terminal::{Failure, Terminal};
use super::{Results, choice};
use crate::command::{LimitNames, StepSource, WatchError, WatchRequest, session};
use crate::experiment::command::{NO_STEPS, RECOGNISE};
use crate::experiment::pattern::valid_name;
use crate::files::layout;
use crate::invocation;
use crate::report;
use crate::results::format::Outcome;
use crate::results::view::{EndRecords, RunView};
use crate::settings::signal::Signal;
use crate::settings::step_pattern::StepPattern;
use crate::units::{Bytes, Span, seconds};

/// Text after the options in the help.
pub const HELP: &str = "\
Exit codes:
    that of the command, or 128 plus the number of the signal that killed it; xrun's own are 100 higher than elsewhere:
  101  the results cannot be written
  102  invalid command line, or no such program
  105  a memory limit was reached
  106  memory grows or training failed (with --fail-on)
  107  the time limit was reached";

/// Added to codes of xrun's own, because a command may return any small code.
pub const OWN_CODES: u8 = 100;

/// Shortest sampling period.
const EVERY_MIN: Duration = Duration::from_millis(10);

#[derive(Clone, Debug, Args)]
pub struct WatchArguments {
    /// Name of the experiment. Default: the name of the script or the program.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    results: Results,
    /// Sampling period of its memory after five minutes; before, samples are more frequent.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    every: Span,
    /// Limit on the memory of all its processes, without file cache, for example 14GiB.
    #[arg(long, value_name = "SIZE")]
    host_memory: Option<Bytes>,
    /// Limit on the NVIDIA GPU memory of all its processes, for example 20GiB.
    #[arg(long, value_name = "SIZE")]
    device_memory: Option<Bytes>,
    /// Limit enforced by the kernel in a separate cgroup, if the system allows one.
    #[arg(long, value_name = "SIZE")]
    hard_limit: Option<Bytes>,
    /// Fraction of a limit at which the command is stopped.
    #[arg(long, value_name = "FRACTION", default_value_t = STOP_FRACTION, value_parser = fraction)]
    at: f64,
    /// Signal to send first at a limit, so that the command can save a checkpoint.
    #[arg(long, value_parser = choice::parser(Signal::as_str), value_name = "SIGNAL", default_value = "TERM")]
    signal: Signal,
    /// Time between that signal and SIGKILL.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    grace: Span,
    /// Time after which the command is stopped as at a limit.
    #[arg(long, value_name = "TIME")]
    time_limit: Option<Span>,
    /// Fail with exit code 106 from this verdict on memory or on training on (repeatable).
    #[arg(long, value_enum, value_name = "VERDICT", value_delimiter = ',')]
    fail_on: Vec<FailingVerdict>,
    /// Regular expression that finds steps in the output, with a group `(?<step>…)` and optionally `(?<loss>…)` and others.
    /// `auto` (default) recognises the progress bars and log lines of common trainers; `none` disables this.
    #[arg(long, value_name = "PATTERN", conflicts_with = "steps_file")]
    steps: Option<String>,
    /// JSON lines file with `step` and optionally `loss`, to which the command appends.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    steps_file: Option<PathBuf>,
    /// Omit the uncommitted changes of the git checkout from the manifest.
    #[arg(long)]
    no_patch: bool,
    /// Explain growth of Python programs: the line that adds, the object that holds, and the usual repair.
    #[arg(long)]
    explain: bool,
    /// Print errors only.
    #[arg(short, long)]
    quiet: bool,
    /// Command, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

fn fraction(text: &str) -> Result<f64, String> {
    let fraction = text.parse().ok().filter(|fraction: &f64| *fraction > 0.0 && *fraction <= 1.0);
    fraction.ok_or_else(|| "expected a fraction above 0 and up to 1, such as 0.95".into())
}

pub fn run(arguments: &WatchArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let terminal = Terminal { quiet: arguments.quiet, ..*terminal };
    let request = request(arguments)?;
    let watched = session::run(&request, &|text| info(terminal, text));
    let watched = watched.map_err(failure)?;
    let EndRecords { summary, verdict, explanation, .. } = watched.records.clone();
    let run = RunView::ended(&watched.directory.path, watched.records);
    let reported = report::write_view(&run);
    let program = invocation::program();
    if watched.within_line {
        terminal.end_line();
    }
    terminal.info(&format!("{program}: verdict {}: {}", verdict.verdict.words(), verdict.message));
    if let Some(explanation) = explanation {
        terminal.info(&format!("{program}: explanation: {}", explanation.message));
    }
    let ending = format!("{} ({})", summary.message, seconds(summary.seconds));
    match summary.outcome {
        Outcome::Finished if !watched.lost => terminal.info(&format!("{program}: {ending}")),
        // Also with --quiet.
        Outcome::Finished => terminal.error(&ending),
        outcome => terminal.error(&format!("{}: {ending}", outcome.label())),
    }
    match reported {
        Ok(_) => terminal.info(&format!("{program}: report: {}", run.path.join(layout::REPORT).display())),
        Err(error) => terminal.error(&format!("cannot write the report: {error}")),
    }
    let is_own = matches!(
        summary.outcome,
        Outcome::MemoryLimit | Outcome::TimeLimit | Outcome::MemoryGrew | Outcome::DidNotLearn | Outcome::Diverged
    );
    Ok(summary.exit_code + if is_own { OWN_CODES } else { 0 })
}

/// Shows a message of the watcher with the name of this program; one that begins with a line break ends a bar of the command.
pub fn info(terminal: Terminal, text: &str) {
    let program = invocation::program();
    let breaks = if text.starts_with('\n') && !terminal.events { "\n" } else { "" };
    terminal.info(&format!("{breaks}{program}: {}", text.trim_start_matches('\n')));
}

/// Converts an error of the watcher.
pub fn failure(error: WatchError) -> Failure {
    match error {
        WatchError::Input(message) => Failure::Usage(message),
        WatchError::Write(error) => Failure::failed(error),
        WatchError::System(message) => Failure::Failed(message),
    }
}

/// Default fraction of a limit at which a command is stopped.
pub const STOP_FRACTION: f64 = 0.95;

/// Checks a sampling period.
pub fn interval(every: Span) -> Result<Duration, Failure> {
    if every.0 < EVERY_MIN {
        let message = format!("--every: expected {} or more, found {every}", Span(EVERY_MIN));
        return Err(Failure::Usage(message));
    }
    Ok(every.0)
}

fn request(arguments: &WatchArguments) -> Result<WatchRequest, Failure> {
    let every = interval(arguments.every)?;
    let limits = [
        ("--host-memory", arguments.host_memory),
        ("--device-memory", arguments.device_memory),
        ("--hard-limit", arguments.hard_limit),
    ];
    for (option, limit) in limits {
        if limit == Some(Bytes(0)) {
            return Err(Failure::Usage(format!("{option}: expected a size such as 14GiB, found 0")));
        }
    }
    let file = arguments.steps_file.clone().map(StepSource::File);
    let steps =
        step_source(arguments.steps.as_deref(), file).map_err(|error| Failure::Usage(format!("--steps: {error}")))?;
    Ok(WatchRequest {
        name: name(arguments)?,
        command: arguments.command.clone(),
        results: arguments.results.directory.clone(),
        interval: every,
        host_memory: arguments.host_memory.map(|bytes| bytes.0),
        device_memory: arguments.device_memory.map(|bytes| bytes.0),
        hard_limit: arguments.hard_limit.map(|bytes| bytes.0),
        limit_fraction: arguments.at,
        signal: arguments.signal,
        grace: arguments.grace.0,
        time_limit: arguments.time_limit.map(|limit| limit.0),
        fail_on: fail_on::both(&arguments.fail_on).0.unwrap_or_default(),
        training_fail_on: fail_on::both(&arguments.fail_on).1.unwrap_or_default(),
        own_exit_code: true,
        names: LimitNames::OPTIONS,
        patch: patch(arguments)?,
        explain: arguments.explain,
        steps,
        ..WatchRequest::default()
    })
}

/// Source of steps: the one that is given, else the output by `pattern`, which may also be a word.
pub fn step_source(pattern: Option<&str>, given: Option<StepSource>) -> Result<Option<StepSource>, String> {
    Ok(match (pattern, given) {
        (_, Some(given)) => Some(given),
        (Some(NO_STEPS), None) => None,
        (Some(RECOGNISE) | None, None) => Some(StepSource::Recognised),
        (Some(pattern), None) => Some(StepSource::Output(StepPattern::new(pattern)?)),
    })
}

/// Environment variable of `experiment.patch`, since a watched command has no experiment file.
const PATCH: &str = "XRUN__EXPERIMENT__PATCH";

fn patch(arguments: &WatchArguments) -> Result<bool, Failure> {
    match std::env::var(PATCH).as_deref() {
        _ if arguments.no_patch => Ok(false),
        Err(_) | Ok("true") => Ok(true),
        Ok("false") => Ok(false),
        Ok(_) => Err(Failure::Usage(format!("{PATCH}: expected true or false"))),
    }
}

/// Name of the experiment: `--name`, or else the first script among the arguments, or the program.
fn name(arguments: &WatchArguments) -> Result<String, Failure> {
    let name = match &arguments.name {
        Some(name) if valid_name(name) == *name => name.clone(),
        Some(name) => {
            let shown = crate::printable::line(name, 100);
            let message = format!("--name: `{shown}` is not a valid directory name; use `{}`", valid_name(name));
            return Err(Failure::Usage(message));
        }
        None => {
            let is_script =
                |word: &&OsString| Path::new(word).extension().is_some_and(|end| end == "py" || end == "sh");
            let word = arguments.command.iter().find(is_script).or(arguments.command.first());
            let stem = word.and_then(|word| Path::new(word).file_stem());
            valid_name(&stem.unwrap_or_default().to_string_lossy())
        }
    };
    match name.as_str() {
        layout::LATEST | layout::REFERENCE => {
            Err(Failure::Usage(format!("--name: `{name}` is reserved; choose another name")))
        }
        _ => Ok(name),
    }
}
