//! `xrun resume RUN`: resume a run that was stopped or killed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueHint};

use super::changeable::{by_resume, refuse_keys};
use super::command;
use super::programs::{CommandLineOf, Programs};
use super::terminal::{Failure, Terminal};
use super::training;
use super::until::Until;
use super::{Data, Display, Overrides, Results};
use crate::directory;
use crate::experiment::Experiment;
use crate::experiment::overrides::{as_arguments, overridden_key};
use crate::experiment::read::{CheckedExperiment, read_resolved};
use crate::files::{layout, write};
use crate::invocation;
use crate::killed;
use crate::panics;
use crate::printable;

use crate::results::build_info;
use crate::results::format::Manifest;
use crate::results::{index, read as read_results, resolved as resolved_text};
use crate::run::checkpoint::CHANGED_BY_RESUME;
use crate::run::fingerprint::fingerprint;
use crate::run::fork;
use crate::run::launch::{Extent, Launch};
use crate::run::prepare::{self, Planned};
use crate::run::resume::{self, ResumeError};

#[derive(Clone, Debug, Args)]
pub struct ResumeArguments {
    #[arg(help = super::RUN_HELP, value_hint = ValueHint::DirPath)]
    run: String,
    #[command(flatten)]
    overrides: Overrides,
    /// Start even if the plan does not fit the limits or the machine.
    #[arg(long)]
    force: bool,
    /// Start again at step 0 if the run has lost its checkpoints.
    #[arg(long)]
    from_start: bool,
    /// Run the programs that the run names, even if another user created its directory.
    #[arg(long)]
    allow_command: bool,
    #[command(flatten)]
    until: Until,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    pub(super) display: Display,
}

/// Refuses a run of `xrun watch`, which is not an experiment.
fn refuse_watched(run: &Path) -> Result<(), Failure> {
    let Ok(manifest) = read_results::manifest(run) else { return Ok(()) };
    if manifest.watched.is_none() || run.join(layout::RESOLVED).exists() {
        return Ok(());
    }
    let words: Vec<String> = manifest.command.iter().map(|word| printable::shell_word(word)).collect();
    Err(Failure::Usage(format!(
        "{}: this is a watched command, not an experiment; start it again: {}",
        run.display(),
        words.join(" ")
    )))
}

/// Directory of the run of an experiment with this name; refuses a watched command.
pub fn find_experiment_run(results: &Results, text: &str) -> Result<PathBuf, Failure> {
    let run = find_run(results, text)?;
    refuse_watched(&run).map(|()| run)
}

/// Directory of the run with this name. `latest` is resolved, because another run may start meanwhile.
pub fn find_run(results: &Results, text: &str) -> Result<PathBuf, Failure> {
    let found = index::find(&results.directory, text)?;
    std::fs::canonicalize(&found).map_err(|error| Failure::Failed(format!("{}: {error}", found.display())))
}

/// Experiment of a run with overrides, from its intact `resolved.toml`.
pub fn recorded_experiment(run: &Path, overrides: &[String]) -> Result<CheckedExperiment, Failure> {
    resolved_text::read_text(run).map_err(Failure::failed)?;
    Ok(read_resolved(&run.join(layout::RESOLVED), overrides)?)
}

pub fn run(arguments: &ResumeArguments) -> Result<u8, Failure> {
    let started = Instant::now();
    let terminal = arguments.display.terminal();
    let path = find_run(&arguments.results, &arguments.run)?;
    let is_missing = |name: &str| matches!(path.join(name).try_exists(), Ok(false));
    if is_missing(layout::MANIFEST) && is_missing(layout::METRICS) {
        let message = format!("{}: the run ended before its first step; start it again", path.display());
        return Err(Failure::Failed(message));
    }
    refuse_watched(&path)?;
    let overrides = arguments.overrides.all();
    refuse_fixed_keys(&overrides, &path)?;
    let checked = recorded_experiment(&path, &overrides)?;
    Programs::for_run(&path, &checked.experiment, CommandLineOf::Resume).check(arguments.allow_command)?;
    let directory = directory::reopen(&path).map_err(|error| match error.source.kind() {
        ErrorKind::WouldBlock => {
            Failure::failed(ResumeError::refused(&path, format!("{}; wait for it or stop it", error.source)))
        }
        _ => Failure::failed(error),
    })?;
    // Only a command knows its own checkpoints.
    let from_start = arguments.from_start || checked.experiment.command().is_some();
    let mut point = resume::find_resume_point(&path, from_start).map_err(|error| match error {
        ResumeError::Ended { .. } => Failure::Usage(error.to_string()),
        other => Failure::failed(other),
    })?;
    if !path.join(layout::SUMMARY).is_file() {
        explain_kill(&path, terminal);
    }
    for damage in &point.ignored {
        terminal.info(&format!("ignored damaged file: {damage}"));
    }
    if !point.ignored.is_empty() {
        terminal.info(&match &point.checkpoint {
            Some(checkpoint) => format!("resuming from {}", checkpoint.display()),
            None => "no intact checkpoint: restarting at step 0".into(),
        });
    }
    let mut experiment = checked.experiment;
    arguments.until.check(experiment.command().is_some())?;
    if experiment.command().is_some() {
        let planned = Planned::new(experiment, terminal)?;
        return command::resume(directory, &mut point, planned, &overrides, &arguments.display, terminal);
    }
    keep_device(&mut experiment, &overrides, &point.manifest);
    if point.manifest.code.lock_digest != build_info::lock_digest() {
        terminal
            .info("the dependencies of this build differ from those with which the run started: numbers may differ");
    }
    arguments.data.prepare(&experiment);
    let recorded_weights = experiment.training.initial_weights.take_if(|_| point.checkpoint.is_some());
    let mut planned = Planned::new(experiment, terminal)?;
    if recorded_weights.is_some() {
        planned.set_recorded_initial_weights(recorded_weights, &point.manifest);
    }
    fork::add_recorded(&mut planned.plan, &point.manifest);
    resume::check_data(&path, &point.manifest, &planned.plan).map_err(Failure::failed)?;
    if let Some(until) = arguments.until.step.filter(|until| *until < point.state.step && point.state.validated) {
        let step = point.state.step;
        return Err(Failure::Usage(format!("--until {until}: the run is already at step {step}; choose a later step")));
    }
    match overrides.is_empty() {
        true => planned.plan.forecast = read_results::plan(&path).ok().and_then(|plan| plan.forecast),
        // A changed value, such as another batch size, may not fit.
        false => planned.forecast_if_enabled(&path.join(layout::RESOLVED), &overrides, arguments.force)?,
    }
    let (opened, mut task) = planned.open(point.state.step + 1)?;
    if let Some(checkpoint) = &point.checkpoint {
        let loaded = panics::caught(|| task.load(checkpoint));
        loaded
            .map_err(|panic| Failure::from(prepare::device_error(&opened.chosen, &panic)))?
            .map_err(Failure::failed)?;
    }
    // First, because the records of the ending would contradict a changed plan.
    resume::clear_ending(&path).map_err(Failure::failed)?;
    if !overrides.is_empty() {
        resume::replace_experiment(&path, &opened.plan).map_err(Failure::failed)?;
        let plan = opened.plan.to_file(task.parameters());
        write::replace_json(&path.join(layout::PLAN), &plan).map_err(Failure::failed)?;
    }
    let fingerprint = fingerprint(&opened.plan);
    point.state.run = point.manifest.run_id();
    point.state.fingerprint.clone_from(&fingerprint);
    if fingerprint != point.manifest.fingerprint {
        // The numbers are those of two experiments or two programs: no other run is equal.
        point.manifest.fingerprint = CHANGED_BY_RESUME.into();
    }
    point.manifest.until = arguments.until.step;
    let stop = training::listen(&arguments.display, terminal)?;
    directory.note_process(point.segment);
    resume::rewind(&path, &mut point, &overrides).map_err(Failure::failed)?;
    let launch = Launch {
        plan: &opened.plan,
        ledger: &opened.ledger,
        directory: &directory,
        manifest: &point.manifest,
        state: point.state,
        segment: point.segment,
        gpu: opened.gpu(),
        started,
        extent: Extent::until(arguments.until.step),
    };
    Ok(training::train(launch, task, &stop, &arguments.display, terminal).1)
}

/// Explains who killed a run, and after an OOM kill how to avoid the next one.
fn explain_kill(run: &Path, terminal: Terminal) {
    let killed = killed::explain(run);
    terminal.info(&format!("the run was killed: {}", killed.who));
    if killed.is_oom {
        let rest = [&killed.held, &killed.growing, &Some(killed.to_do.clone())];
        rest.into_iter().flatten().for_each(|line| terminal.info(&format!("  {line}")));
    }
}

/// Sets the device that a run chose, where no override names one: another device gives other numbers.
pub fn keep_device(experiment: &mut Experiment, overrides: &[String], manifest: &Manifest) {
    if !overrides.iter().any(|text| overridden_key(text) == "experiment.device") {
        experiment.experiment.device.clone_from(&manifest.device.chosen);
    }
}

/// Advice for a change of the model, whose tensors the checkpoints have: a new run.
pub fn new_run_advice(run: &Path, overrides: &[String]) -> String {
    let file = run.join(layout::RESOLVED).to_string_lossy().into_owned();
    let words = std::iter::once(file).chain(overrides.iter().flat_map(|text| as_arguments(text)));
    let words: Vec<String> = words.map(|word| printable::shell_word(&word)).collect();
    let program = invocation::program();
    format!("the checkpoints are of another model; `{program} {}` starts a new run", words.join(" "))
}

/// Refuses overrides of keys that a resume cannot change, and names the command that can.
fn refuse_fixed_keys(overrides: &[String], run: &Path) -> Result<(), Failure> {
    let (program, word) = (invocation::program(), printable::shell_word(&run.to_string_lossy()));
    refuse_keys(overrides, &by_resume(), "cannot be changed by a resume", |key, text| {
        if key.starts_with("model.") {
            return new_run_advice(run, &[text.to_owned()]);
        }
        let value = text.split_once('=').map_or("N", |(_, value)| value.trim());
        let set = printable::shell_word(&format!("{key}={value}"));
        format!("`{program} fork {word} -s {set}` starts a new run from the last checkpoint")
    })
}
