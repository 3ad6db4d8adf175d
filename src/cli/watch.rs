//! `xrun watch -- COMMAND`: run somebody else's program, and say what its memory does.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueHint};

use super::Results;
use super::terminal::{Failure, Terminal};
use crate::command::{LimitNames, StepSource, WatchError, WatchRequest, session};
use crate::experiment::command::{NO_STEPS, RECOGNISE};
use crate::experiment::pattern::name_from;
use crate::files::layout;
use crate::invocation;
use crate::report;
use crate::results::format::Outcome;
use crate::settings::sections::FailOn;
use crate::settings::signal::Signal;
use crate::settings::step_pattern::StepPattern;
use crate::units::{Bytes, Span, seconds};

/// Below the options in the help.
pub const HELP: &str = "\
Exit codes:
    that of the command; 128 and the signal's number where a signal ended it
    2  the command line is wrong, or there is no such program
    5  a memory limit was reached
    6  memory is growing, and --fail-on says that this fails
    7  the time limit was reached";

/// Samples no closer than this.
const EVERY_MIN: Duration = Duration::from_millis(10);

#[derive(Clone, Debug, Args)]
pub struct WatchArguments {
    /// Names the folder below the results; the script's or the program's name when absent.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    results: Results,
    /// The time between two looks at its memory.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    every: Span,
    /// The memory that all its processes may hold, without files: 14GiB.
    #[arg(long, value_name = "SIZE")]
    host_memory: Option<Bytes>,
    /// The memory that all its processes may hold on NVIDIA GPUs together: 20GiB.
    #[arg(long, value_name = "SIZE")]
    device_memory: Option<Bytes>,
    /// The memory that the kernel lets it have, in a cgroup of its own: where the system allows one.
    #[arg(long, value_name = "SIZE")]
    hard_limit: Option<Bytes>,
    /// The share of a limit at which it is stopped.
    #[arg(long, value_name = "SHARE", default_value_t = AT, value_parser = share)]
    at: f64,
    /// What it is sent first at a limit, so that it can save.
    #[arg(long, value_enum, value_name = "SIGNAL", default_value = "TERM", ignore_case = true)]
    signal: Signal,
    /// How long it may take to save.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    grace: Span,
    /// How long it may run; then it is stopped as at a limit.
    #[arg(long, value_name = "TIME")]
    time_limit: Option<Span>,
    /// The verdict on memory that fails it.
    #[arg(long, value_enum, value_name = "VERDICT", default_value = "never")]
    fail_on: FailOn,
    /// Finds steps in its output: a regular expression with a group `(?<step>…)`, and perhaps `(?<loss>…)` and others; or
    /// `auto`, for progress bars of tqdm, Lightning, Hugging Face's Trainer and Keras, which is the default; `none` reads
    /// nothing.
    #[arg(long, value_name = "PATTERN", conflicts_with = "steps_file")]
    steps: Option<String>,
    /// A file of JSON lines with `step` and perhaps `loss`, to which it appends.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    steps_file: Option<PathBuf>,
    /// A folder of event files that it writes for TensorBoard.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["steps", "steps_file"])]
    tensorboard: Option<PathBuf>,
    /// Leave out of the manifest what was changed in the git checkout.
    #[arg(long)]
    no_patch: bool,
    /// Say only what is wrong.
    #[arg(short, long)]
    quiet: bool,
    /// The command, behind `--`.
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share: &f64| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "expected a share above 0 and up to 1, such as 0.95".into())
}

pub fn run(arguments: &WatchArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let terminal = Terminal { quiet: arguments.quiet, ..*terminal };
    let request = request(arguments)?;
    let watched = session::run(&request, &|text| terminal.say(&format!("{}: {text}", invocation::program())));
    let watched = watched.map_err(failure)?;
    let run = &watched.directory.path;
    let reported = report::write(run);
    let summary = &watched.summary;
    let verdict = &watched.verdict;
    let program = invocation::program();
    terminal.say(&format!("{program}: verdict {}: {}", verdict.verdict.words(), verdict.message));
    let ending = format!("{} ({})", summary.message, seconds(summary.seconds));
    match summary.outcome {
        Outcome::Finished if !watched.lost => terminal.say(&format!("{program}: {ending}")),
        // Also with --quiet.
        Outcome::Finished => terminal.error(&ending),
        outcome => terminal.error(&format!("{}: {ending}", outcome.words())),
    }
    match reported {
        Ok(_) => terminal.say(&format!("{program}: report: {}", run.join(layout::REPORT).display())),
        Err(error) => terminal.error(&format!("the report cannot be written: {error}")),
    }
    Ok(summary.exit_code)
}

/// How an error of a command is answered.
pub fn failure(error: WatchError) -> Failure {
    match error {
        WatchError::Input(message) => Failure::Usage(message),
        WatchError::Write(error) => Failure::failed(error),
        WatchError::System(message) => Failure::Failed(message),
    }
}

/// The share of a limit at which a command is stopped, unless somebody says otherwise.
pub const AT: f64 = 0.95;

/// The time between two looks, if it is one.
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
    let source = file.or_else(|| arguments.tensorboard.clone().map(StepSource::Events));
    let steps = match (arguments.steps.as_deref(), source) {
        (_, Some(source)) => Some(source),
        (None, None) => Some(StepSource::Recognised { asked: false }),
        (Some(RECOGNISE), None) => Some(StepSource::Recognised { asked: true }),
        (Some(NO_STEPS), None) => None,
        (Some(text), None) => {
            let pattern = StepPattern::new(text).map_err(|error| Failure::Usage(format!("--steps: {error}")))?;
            Some(StepSource::Output(pattern))
        }
    };
    Ok(WatchRequest {
        name: name(arguments)?,
        command: arguments.command.clone(),
        results: arguments.results.folder.clone(),
        interval: every,
        host_memory: arguments.host_memory.map(|bytes| bytes.0),
        device_memory: arguments.device_memory.map(|bytes| bytes.0),
        hard_limit: arguments.hard_limit.map(|bytes| bytes.0),
        limit_fraction: arguments.at,
        signal: arguments.signal,
        grace: arguments.grace.0,
        time_limit: arguments.time_limit.map(|limit| limit.0),
        fail_on: arguments.fail_on,
        environment: BTreeMap::new(),
        working_directory: None,
        checkpoint: None,
        metrics: BTreeMap::new(),
        early_end: None,
        stdout_to_stderr: false,
        own_exit_code: true,
        names: LimitNames::OPTIONS,
        can_resume: false,
        secrets: Vec::new(),
        patch: patch(arguments)?,
        steps,
    })
}

/// The environment's word for `experiment.patch`, which a watched command has no file for.
const PATCH: &str = "XRUN__EXPERIMENT__PATCH";

fn patch(arguments: &WatchArguments) -> Result<bool, Failure> {
    match std::env::var(PATCH).as_deref() {
        _ if arguments.no_patch => Ok(false),
        Err(_) | Ok("true") => Ok(true),
        Ok("false") => Ok(false),
        Ok(_) => Err(Failure::Usage(format!("{PATCH}: expected true or false"))),
    }
}

/// As it was asked for, or that of the first script among the words, or of the program.
fn name(arguments: &WatchArguments) -> Result<String, Failure> {
    let name = match &arguments.name {
        Some(name) if name_from(name) == *name => name.clone(),
        Some(name) => {
            let shown = crate::printable::line(name, 100);
            let message = format!("--name: `{shown}` cannot be the name of a folder; `{}` could be", name_from(name));
            return Err(Failure::Usage(message));
        }
        None => {
            let is_script =
                |word: &&OsString| Path::new(word).extension().is_some_and(|end| end == "py" || end == "sh");
            let word = arguments.command.iter().find(is_script).or(arguments.command.first());
            let stem = word.and_then(|word| Path::new(word).file_stem());
            name_from(&stem.unwrap_or_default().to_string_lossy())
        }
    };
    match name.as_str() {
        layout::LATEST | layout::REFERENCE => {
            Err(Failure::Usage(format!("--name: `{name}` has a meaning of its own among results; choose another")))
        }
        _ => Ok(name),
    }
}
