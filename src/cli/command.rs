//! An experiment whose work a command does: how it is run, resumed and run again.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Display;
use super::terminal::{Failure, Terminal};
use super::training;
use super::watch;
use crate::command::{EarlyEnd, LimitNames, PreparedRun, StepSource, WatchRequest, session, start};
use crate::directory::RunDirectory;
use crate::experiment::Experiment;
use crate::experiment::command::{NO_STEPS, RECOGNISE, Words};
use crate::files::layout;
use crate::invocation;
use crate::printable;
use crate::probe;
use crate::results::format::Manifest;
use crate::results::{read, secrets};
use crate::run::begin::NewRun;
use crate::run::prepare::Planned;
use crate::run::resume::{self, Continuation};
use crate::settings::command::{Command, Knob};
use crate::settings::step_pattern::StepPattern;
use crate::stop::{Ending, RunOutcome, exit_code};

/// A probe is short, and its peak is what is asked for.
const PROBE_EVERY: Duration = Duration::from_millis(50);
/// What the folder of the results is called while there is none.
const NO_RUN: &str = "{run}";

/// How a command is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct How<'a> {
    /// By the words that go on from its checkpoint.
    pub resumes: bool,
    pub enough: Option<EarlyEnd>,
    /// Where it ran before.
    pub folder: Option<&'a Path>,
}

impl How<'_> {
    /// To the end, or only as far as a probe looks.
    pub fn until(probe: Option<u64>) -> Self {
        Self { enough: probe.map(|steps| EarlyEnd { steps, after: Some(probe::OF_COMMAND) }), ..Self::default() }
    }
}

/// What the session is asked for. `run` is the folder of the results.
fn request(experiment: &Experiment, run: &Path, how: How<'_>, display: &Display) -> Result<WatchRequest, Failure> {
    let command = experiment.command().ok_or_else(|| Failure::Failed("this experiment is no command".into()))?;
    let filled = Words::of(experiment, command, Some(run));
    // `xrun check` looked at all of them.
    let all = |words: &[String]| filled.fill_all(words).map_err(Failure::Failed);
    let one = |text: &Option<String>| all(text.as_slice()).map(|words| words.into_iter().next());
    let words = match (how.resumes, &command.resume) {
        (true, Some(words)) => all(words)?,
        _ => all(&command.program)?,
    };
    let names: Vec<String> = command.environment.keys().cloned().collect();
    let values: Vec<String> = command.environment.values().cloned().collect();
    let environment: BTreeMap<String, String> = names.into_iter().zip(all(&values)?).collect();
    let knobs = command.values.iter().filter_map(|(name, knob)| match knob {
        Knob::Text(text) => Some((name, text)),
        _ => None,
    });
    let named = knobs.chain(&environment);
    let secret = named.filter(|(name, text)| secrets::value(name, text) == secrets::MASK);
    let secrets = secret.map(|(_, text)| text.clone()).collect();
    let folder = command.folder.as_ref().map(PathBuf::from).or_else(|| how.folder.map(Path::to_path_buf));
    let within = |path: String| folder.clone().unwrap_or_default().join(path);
    let probes = how.enough.is_some_and(|enough| enough.after.is_some());
    Ok(WatchRequest {
        command: words.into_iter().map(OsString::from).collect(),
        name: experiment.experiment.name.clone(),
        results: PathBuf::new(),
        interval: if probes { command.every.0.min(PROBE_EVERY) } else { command.every.0 },
        host_memory: experiment.limits.host_memory.map(|limit| limit.0),
        hard_limit: command.hard_limit.map(|limit| limit.0),
        device_memory: experiment.limits.device_memory.map(|limit| limit.0),
        limit_fraction: watch::AT,
        signal: command.signal,
        grace: command.grace.0,
        time_limit: experiment.training.time_limit.map(|limit| limit.0),
        fail_on: experiment.memory.fail_on,
        steps: {
            let file = one(&command.steps_file)?.map(within).map(StepSource::File);
            let events = one(&command.tensorboard)?.map(within).map(StepSource::Events);
            steps(command, file.or(events))?
        },
        environment,
        secrets,
        checkpoint: one(&command.checkpoint)?.map(within),
        working_directory: folder,
        metrics: command.metrics.clone(),
        early_end: how.enough,
        stdout_to_stderr: display.json,
        own_exit_code: false,
        names: LimitNames::KEYS,
        can_resume: command.resume.is_some(),
        patch: experiment.experiment.patch,
    })
}

/// Where its steps come from.
fn steps(command: &Command, written: Option<StepSource>) -> Result<Option<StepSource>, Failure> {
    Ok(match (command.steps.as_deref(), written) {
        (_, Some(written)) => Some(written),
        (Some(NO_STEPS), None) => None,
        (asked @ (Some(RECOGNISE) | None), None) => Some(StepSource::Recognised { asked: asked.is_some() }),
        (Some(pattern), None) => Some(StepSource::Output(StepPattern::new(pattern).map_err(Failure::Failed)?)),
    })
}

/// Makes the directory of a new run and runs the command there; returns the directory and the exit code.
pub fn begin(
    new: &NewRun<'_>,
    planned: Planned,
    how: How<'_>,
    display: &Display,
    terminal: Terminal,
) -> Result<(PathBuf, u8), Failure> {
    let opened = planned.without_task();
    let experiment = &opened.plan.experiment;
    // Before there is a directory: a program that is not there is a mistake in the file.
    start::find(&request(experiment, Path::new(NO_RUN), how, display)?).map_err(watch::failure)?;
    let begun = new.begin(&opened, 0)?.into_directory();
    let run = absolute(&begun.path)?;
    let request = request(experiment, &run, how, display)?;
    let code = run_in(PreparedRun { directory: begun, segment: 0, seconds: 0.0 }, &request, display, terminal)?;
    Ok((run, code))
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))
}

/// Goes on by the words of the experiment that say how.
pub fn resume(
    directory: RunDirectory,
    continuation: &mut Continuation,
    planned: Planned,
    overrides: &[String],
    display: &Display,
    terminal: Terminal,
) -> Result<u8, Failure> {
    let run = absolute(&directory.path)?;
    let opened = planned.without_task();
    let experiment = &opened.plan.experiment;
    let name = printable::shell_word(&run.join(layout::RESOLVED).to_string_lossy());
    let again = format!("a new run: {} {name}", invocation::program());
    if experiment.command().is_some_and(|command| command.resume.is_none()) {
        return Err(Failure::Usage(format!(
            "{}: the command does not say how it goes on; `resume = [...]` beside its `program` would; {again}",
            run.display()
        )));
    }
    let how = How { resumes: true, folder: folder_of(&continuation.manifest), enough: None };
    let request = request(experiment, &run, how, display)?;
    if let Some(checkpoint) = request.checkpoint.as_ref().filter(|checkpoint| !checkpoint.exists()) {
        return Err(Failure::Failed(format!(
            "{}: nothing was saved that the command could go on from; {again}",
            checkpoint.display()
        )));
    }
    start::find(&request).map_err(watch::failure)?;
    for (name, now) in &opened.plan.facts.data_digests {
        if continuation.manifest.data.get(name).is_some_and(|then| then != now) {
            terminal.say(&format!("{name} is not as it was when the run began"));
        }
    }
    let seconds = seconds_of(&run);
    resume::begin_again(&run, continuation, &opened.plan, overrides).map_err(Failure::failed)?;
    run_in(PreparedRun { directory, segment: continuation.segment, seconds }, &request, display, terminal)
}

/// Seconds that processes have worked on a run so far.
fn seconds_of(run: &Path) -> f64 {
    let summed = read::summary(run).ok().flatten().map(|summary| summary.seconds);
    let sampled = || read::memory(run).ok()?.flatten().last().map(|line| line.time_us as f64 / 1e6);
    summed.or_else(sampled).unwrap_or_default()
}

fn run_in(begun: PreparedRun, request: &WatchRequest, display: &Display, terminal: Terminal) -> Result<u8, Failure> {
    let run = begun.directory.path.clone();
    let program = invocation::program();
    let watched = session::run_in(begun, request, &|text| terminal.say(&format!("{program}: {text}")));
    let watched = watched.map_err(watch::failure)?;
    let reported = crate::report::write(&run);
    let enough = watched.ended_early;
    let ending = Ending::new(watched.summary.outcome, watched.summary.message.clone());
    let code = if enough { 0 } else { ending.exit_code() };
    let (summary, verdict) = (Some(watched.summary), Some(watched.verdict));
    let of = RunOutcome { summary, verdict, plan: watched.plan, ..RunOutcome::unrecorded(ending) };
    training::tell(&run, &of, enough, display, terminal);
    match reported {
        Ok(_) if code == 0 && !terminal.events => {
            terminal.say(&format!("report: {}", run.join(layout::REPORT).display()));
            Ok(code)
        }
        Ok(_) => Ok(code),
        Err(error) => {
            terminal.error(&format!("the report cannot be written: {error}; `{program} report` does it later"));
            Ok(if code == 0 { exit_code(crate::results::format::Outcome::Failed) } else { code })
        }
    }
}

/// The folder that a command of an earlier run was run in, if it is there.
pub fn folder_of(manifest: &Manifest) -> Option<&Path> {
    Some(Path::new(&manifest.working_directory)).filter(|folder| folder.is_dir())
}
