//! Experiments whose work is done by a command: starting, resuming and reproducing them.

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
use crate::experiment::command::Placeholders;
use crate::files::layout;
use crate::invocation;
use crate::printable;
use crate::probe;
use crate::results::verdict::VerdictWord;
use crate::results::view::RunView;
use crate::results::{read, secrets};
use crate::run::launch::Extent;
use crate::run::new_run::{CreatedRun, NewRun};
use crate::run::prepare::Planned;
use crate::run::resume::{self, ResumePoint};
use crate::settings::command::ParameterValue;
use crate::stop::{Ending, RunOutcome};

/// Largest sampling period of a probe, which is short and measures the peak.
const PROBE_EVERY: Duration = Duration::from_millis(50);
/// Placeholder for the run's directory before it is created.
const NO_RUN: &str = "{run}";

/// Mode in which a command is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandMode<'a> {
    /// True if the command continues from its checkpoint.
    pub resumes: bool,
    /// Condition at which the command is stopped early.
    pub early_end: Option<EarlyEnd>,
    /// Working directory of the original run.
    pub working_directory: Option<&'a Path>,
}

impl CommandMode<'_> {
    /// Mode of a new run of that extent.
    pub fn new_run(extent: Extent) -> Self {
        let after = matches!(extent, Extent::Probe(_)).then_some(probe::COMMAND_TIME);
        Self { early_end: extent.last_step().map(|steps| EarlyEnd { steps, after }), ..Self::default() }
    }
}

/// Request to the watcher's session. `run` is the directory of the results.
fn request(
    experiment: &Experiment,
    run: &Path,
    mode: CommandMode<'_>,
    display: &Display,
) -> Result<WatchRequest, Failure> {
    let command = experiment.command().ok_or_else(|| Failure::Failed("this experiment has no command".into()))?;
    let placeholders = Placeholders::new(experiment, command, Some(run));
    let all = |words: &[String]| placeholders.fill_all(words).map_err(Failure::Failed);
    let one = |text: &Option<String>| all(text.as_slice()).map(|words| words.into_iter().next());
    let words = match (mode.resumes, &command.resume) {
        (true, Some(words)) => all(words)?,
        _ => all(&command.program)?,
    };
    let names: Vec<String> = command.environment.keys().cloned().collect();
    let values: Vec<String> = command.environment.values().cloned().collect();
    let environment: BTreeMap<String, String> = names.into_iter().zip(all(&values)?).collect();
    let knobs = command.values.iter().filter_map(|(name, knob)| match knob {
        ParameterValue::Text(text) => Some((name, text)),
        _ => None,
    });
    let named = knobs.chain(&environment);
    let secret = named.filter(|(name, text)| secrets::mask_value(name, text) == secrets::MASK);
    let secrets = secret.map(|(_, text)| text.clone()).collect();
    let directory =
        command.working_directory.as_ref().map(PathBuf::from).or_else(|| mode.working_directory.map(Path::to_path_buf));
    let within = |path: String| directory.clone().unwrap_or_default().join(path);
    let is_probe = mode.early_end.is_some_and(|end| end.after.is_some());
    Ok(WatchRequest {
        command: words.into_iter().map(OsString::from).collect(),
        name: experiment.experiment.name.clone(),
        interval: if is_probe { command.every.0.min(PROBE_EVERY) } else { command.every.0 },
        host_memory: experiment.limits.host_memory.map(|limit| limit.0),
        hard_limit: command.hard_limit.map(|limit| limit.0),
        device_memory: experiment.limits.device_memory.map(|limit| limit.0),
        limit_fraction: watch::STOP_FRACTION,
        signal: command.signal,
        grace: command.grace.0,
        time_limit: experiment.training.time_limit.map(|limit| limit.0),
        fail_on: experiment.memory.fail_on,
        training_fail_on: experiment.training.fail_on,
        steps: {
            let file = one(&command.steps_file)?.map(within).map(StepSource::File);
            watch::step_source(command.steps.as_deref(), file).map_err(Failure::Failed)?
        },
        environment,
        secrets,
        checkpoint: one(&command.checkpoint)?.map(within),
        working_directory: directory,
        metrics: command.metrics.clone(),
        early_end: mode.early_end,
        stdout_to_stderr: display.json,
        names: LimitNames::KEYS,
        can_resume: command.resume.is_some(),
        patch: experiment.experiment.patch,
        explain: command.explain && !is_probe,
        ..WatchRequest::default()
    })
}

/// Creates the directory of a new run and runs the command; returns the outcome and the exit code.
pub fn start(
    new: &NewRun<'_>,
    planned: Planned,
    mode: CommandMode<'_>,
    display: &Display,
    terminal: Terminal,
) -> Result<(RunOutcome, u8), Failure> {
    let opened = planned.without_task();
    let experiment = &opened.plan.experiment;
    // Before the directory is created, because a missing program is a mistake in the file.
    start::find(&request(experiment, Path::new(NO_RUN), mode, display)?).map_err(watch::failure)?;
    let CreatedRun { directory, manifest, .. } = new.create(&opened, 0)?;
    let run = absolute(&directory.path)?;
    let request = request(experiment, &run, mode, display)?;
    let prepared = PreparedRun { directory, segment: 0, seconds: 0.0, manifest, plan: opened.plan.to_file(0) };
    run_in(prepared, &request, display, terminal)
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))
}

/// Resumes the command by the experiment's key `resume`.
pub fn resume(
    directory: RunDirectory,
    point: &mut ResumePoint,
    planned: Planned,
    overrides: &[String],
    display: &Display,
    terminal: Terminal,
) -> Result<u8, Failure> {
    let run = absolute(&directory.path)?;
    let opened = planned.without_task();
    let experiment = &opened.plan.experiment;
    let name = printable::shell_word(&run.join(layout::RESOLVED).to_string_lossy());
    let new_run = format!("start a new run: {} {name}", invocation::program());
    if experiment.command().is_some_and(|command| command.resume.is_none()) {
        return Err(Failure::Usage(format!(
            "{}: the command cannot be resumed, because `pipeline.command.resume` is not set; {new_run}",
            run.display()
        )));
    }
    let working_directory = point.manifest.existing_working_directory();
    let mode = CommandMode { resumes: true, working_directory, early_end: None };
    let request = request(experiment, &run, mode, display)?;
    if let Some(checkpoint) = request.checkpoint.as_ref().filter(|checkpoint| !checkpoint.exists()) {
        return Err(Failure::Failed(format!(
            "{}: the command has saved no checkpoint; {new_run}",
            checkpoint.display()
        )));
    }
    start::find(&request).map_err(watch::failure)?;
    for (name, now) in &opened.plan.facts.data_digests {
        if point.manifest.data.get(name).is_some_and(|then| then != now) {
            terminal.info(&format!("{name} has changed since the run started"));
        }
    }
    let seconds = seconds_of(&run);
    resume::rewind_command(&run, point, &opened.plan, overrides).map_err(Failure::failed)?;
    let (segment, manifest) = (point.segment, point.manifest.clone());
    let prepared = PreparedRun { directory, segment, seconds, manifest, plan: opened.plan.to_file(0) };
    run_in(prepared, &request, display, terminal).map(|(_, code)| code)
}

/// Seconds that the processes of a run have taken so far.
fn seconds_of(run: &Path) -> f64 {
    let summed = read::summary(run).ok().flatten().map(|summary| summary.seconds);
    let sampled = || read::memory(run).ok()?.flatten().last().map(|line| line.time_us as f64 / 1e6);
    summed.or_else(sampled).unwrap_or_default()
}

fn run_in(
    begun: PreparedRun,
    request: &WatchRequest,
    display: &Display,
    terminal: Terminal,
) -> Result<(RunOutcome, u8), Failure> {
    let watched = session::run_in(begun, request, &|text| watch::info(terminal, text));
    let watched = watched.map_err(watch::failure)?;
    let (outcome, message) = (watched.records.summary.outcome, watched.records.summary.message.clone());
    let run = RunView::ended(&watched.directory.path, watched.records);
    let reported = crate::report::write_view(&run);
    if watched.within_line {
        terminal.end_line();
    }
    let outcome = RunOutcome { ending: Ending::new(outcome, message), run };
    let run = &outcome.run;
    let code = training::report_end(&outcome, reported, watched.ended_early, display, terminal);
    let grows = run.verdict().is_some_and(|verdict| verdict.verdict >= VerdictWord::Suspect);
    if let Some(explanation) = run.explanation() {
        terminal.info(&format!("explanation: {}", explanation.message));
    } else if grows && !request.explain && request.runs_python() {
        terminal.info(&format!("which line adds to it: {}", request.names.explain));
    }
    Ok((outcome, code))
}
