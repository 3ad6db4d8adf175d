//! `xrun resume RUN`: go on where a run was stopped or killed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueHint};

use super::command;
use super::further::Further;
use super::hooks::Ask;
use super::programs::{Programs, Words};
use super::terminal::{Failure, Terminal};
use super::training;
use super::until::Until;
use super::{Data, Display, Overrides, Results};
use crate::directory;
use crate::experiment::overrides::key_of;
use crate::experiment::read;
use crate::files::{layout, write};
use crate::killed;
use crate::panics;
use crate::printable;
use crate::problem::{Problem, Problems};
use crate::results::built;
use crate::results::{index, read as read_results, resolved as resolved_text};
use crate::run::checkpoint::CHANGED;
use crate::run::fingerprint::fingerprint;
use crate::run::launch::Launch;
use crate::run::prepare::{self, Planned};
use crate::run::resume::{self, ResumeError};

/// What may change when a run goes on: nothing that its numbers depend on.
const CHANGEABLE: &[&str] = &[
    "experiment.device",
    "experiment.tensorboard",
    "device.autotune",
    "limits.batch_size",
    "limits.workers",
    "limits.prefetch",
    "limits.frame_cache",
    "limits.decoding",
    "limits.metrics_queue",
    "limits.log_queue",
    "limits.host_memory",
    "limits.device_memory",
    "training.time_limit",
    "training.activation_checkpointing",
    "cleanup.",
    "memory.",
    "hooks.",
    "checkpoint.every_steps",
    "checkpoint.keep_last",
];

#[derive(Clone, Debug, Args)]
pub struct ResumeArguments {
    /// A run: a folder, `experiment/run`, the beginning of a run's name or its last six digits, an experiment's name, `latest` or `latest~2`.
    #[arg(value_hint = ValueHint::DirPath)]
    run: String,
    #[command(flatten)]
    further: Further,
    #[command(flatten)]
    overrides: Overrides,
    /// Start the programs that the experiment names in `[hooks]`.
    #[arg(long)]
    hooks: bool,
    /// Start the programs that the run names, also where this user did not create its folder.
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

/// A command that `xrun watch` ran is no experiment: only the command itself knows how it goes on.
pub fn refuse_command(run: &Path) -> Result<(), Failure> {
    let Ok(manifest) = read_results::manifest(run) else { return Ok(()) };
    if manifest.watched.is_none() || run.join(layout::RESOLVED).exists() {
        return Ok(());
    }
    let words: Vec<String> = manifest.command.iter().map(|word| printable::shell_word(word)).collect();
    Err(Failure::Usage(format!(
        "{}: this is a command that was watched, and no experiment; start it again: {}",
        run.display(),
        words.join(" ")
    )))
}

/// The folder of the run that is meant. Not through `latest`, which would be another one when a run starts meanwhile.
pub fn find(results: &Results, text: &str) -> Result<PathBuf, Failure> {
    let found = index::find(&results.folder, text).map_err(|error| Failure::Usage(error.to_string()))?;
    std::fs::canonicalize(&found).map_err(|error| Failure::Failed(format!("{}: {error}", found.display())))
}

pub fn run(arguments: &ResumeArguments) -> Result<u8, Failure> {
    let started = Instant::now();
    let terminal = arguments.display.terminal();
    let path = find(&arguments.results, &arguments.run)?;
    if !path.join(layout::MANIFEST).is_file() {
        let message = format!(
            "{}: this run ended before its first step, so there is nothing to continue; start it again",
            path.display()
        );
        return Err(Failure::Failed(message));
    }
    refuse_command(&path)?;
    let overrides = arguments.overrides.all();
    refuse_other_keys(
        &overrides,
        CHANGEABLE,
        "a run is resumed: its numbers would no longer be those of one run",
        "start a new run",
    )?;
    let further = arguments.further;
    let overrides: Vec<String> = overrides.into_iter().chain(further.overrides()).collect();
    resolved_text::text_of(&path).map_err(Failure::failed)?;
    let checked = read::read_resolved(&path.join(layout::RESOLVED), &overrides)?;
    Programs::of_run(&path, &checked.experiment, Words::Resume, arguments.hooks).check(arguments.allow_command)?;
    let directory = directory::reopen(&path).map_err(|error| match error.source.kind() {
        ErrorKind::WouldBlock => Failure::failed(ResumeError::Busy { run: path.clone() }),
        _ => Failure::failed(error),
    })?;
    let mut continuation = resume::continuation(&path, further.is_asked()).map_err(|error| match error {
        ResumeError::Finished { .. } | ResumeError::StoppedEarly { .. } => Failure::Usage(error.to_string()),
        other => Failure::failed(other),
    })?;
    if !path.join(layout::SUMMARY).is_file() {
        tell_killer(&path, terminal);
    }
    for damage in &continuation.passed_over {
        terminal.say(&format!("damaged and passed over: {damage}"));
    }
    if !continuation.passed_over.is_empty() {
        terminal.say(&match &continuation.checkpoint {
            Some(checkpoint) => format!("the run goes on from {}", checkpoint.display()),
            None => "there is no whole checkpoint: the run begins again at step 0".into(),
        });
    }
    let mut experiment = checked.experiment;
    arguments.until.check(experiment.command().is_some())?;
    if experiment.command().is_some() {
        if further.is_asked() {
            let message = "how far a command goes, its own words say; run it again with others";
            return Err(Failure::Usage(format!("{}: {message}", path.display())));
        }
        let planned = Planned::new(experiment, terminal)?;
        return command::resume(directory, &mut continuation, planned, &overrides, &arguments.display, terminal);
    }
    if !overrides.iter().any(|text| key_of(text) == "experiment.device") {
        // Another device gives other numbers, so `auto` does not choose again.
        experiment.experiment.device.clone_from(&continuation.manifest.device.chosen);
    }
    if continuation.manifest.code.lock_digest != built::lock_digest() {
        terminal.say("this program was built with other libraries than the one that began the run: numbers may differ");
    }
    arguments.data.prepare(&experiment);
    let needless = experiment.training.initial_weights.take_if(|_| continuation.checkpoint.is_some());
    let mut planned = Planned::new(experiment, terminal)?;
    if needless.is_some() {
        planned.began_with(needless, &continuation.manifest);
    }
    resume::same_data(&path, &continuation.manifest, &planned.plan).map_err(Failure::failed)?;
    if let Some(until) =
        arguments.until.step.filter(|until| *until < continuation.state.step && continuation.state.validated)
    {
        let step = continuation.state.step;
        return Err(Failure::Usage(format!("--until {until}: the run stands at step {step}; name a later one")));
    }
    let planned_before = read_results::plan(&path).map_or(0, |plan| plan.steps);
    further.check(&planned.plan, &continuation.state, planned_before, terminal)?;
    match overrides.is_empty() {
        true => planned.plan.forecast = read_results::plan(&path).ok().and_then(|plan| plan.forecast),
        // Another batch size may be why it is resumed: does that fit?
        false => planned.forecast_if_asked(&path.join(layout::RESOLVED), &overrides)?,
    }
    let (opened, mut task) = planned.open(continuation.state.step + 1)?;
    if let Some(checkpoint) = &continuation.checkpoint {
        let loaded = panics::caught(|| task.load(checkpoint));
        loaded.map_err(|panic| Failure::from(prepare::not_opened(&opened.chosen, &panic)))?.map_err(Failure::failed)?;
    }
    // First of all: what says that the run has ended would be wrong beside another plan.
    resume::open_again(&path).map_err(Failure::failed)?;
    if !overrides.is_empty() {
        resume::replace_experiment(&path, &opened.plan).map_err(Failure::failed)?;
        let plan = opened.plan.to_file(task.parameters());
        write::replace_json(&path.join(layout::PLAN), &plan).map_err(Failure::failed)?;
    }
    let fingerprint = fingerprint(&opened.plan);
    continuation.state.run = continuation.manifest.whose();
    continuation.state.fingerprint.clone_from(&fingerprint);
    if fingerprint != continuation.manifest.fingerprint {
        // Its numbers are those of two experiments, or of two programs: no other run has the same.
        continuation.manifest.fingerprint = CHANGED.into();
    }
    continuation.manifest.until = arguments.until.step;
    let ask = Ask::of_result(arguments.hooks, &opened.plan.experiment.hooks, terminal);
    let stop = training::listen(&arguments.display, terminal)?;
    resume::rewind(&path, &mut continuation, &overrides).map_err(Failure::failed)?;
    let launch = Launch {
        plan: &opened.plan,
        ledger: &opened.ledger,
        directory: &directory,
        state: continuation.state,
        segment: continuation.segment,
        gpu: opened.gpu(),
        started,
        stop_after: None,
        until: arguments.until.step,
    };
    Ok(training::train(launch, task, &stop, &arguments.display, terminal, ask))
}

/// The run did not end by itself: who killed it, and what would be killed again.
fn tell_killer(run: &Path, terminal: Terminal) {
    let killed = killed::explain(run);
    terminal.say(&format!("the run was killed: {}", killed.who));
    if killed.is_oom {
        let rest = [&killed.held, &killed.growing, &Some(killed.to_do.clone())];
        rest.into_iter().flatten().for_each(|line| terminal.say(&format!("  {line}")));
    }
}

fn all_of_section(key: &str) -> String {
    if key.ends_with('.') { format!("{key}*") } else { key.to_owned() }
}

/// Whether a run that goes on may have another value of this key.
pub fn may_change(key: &str) -> bool {
    is_among(CHANGEABLE, key)
}

fn is_among(keys: &[&str], key: &str) -> bool {
    keys.iter().any(|may| key == *may || (may.ends_with('.') && key.starts_with(may)))
}

/// Refuses `-s` of keys that are not in the list; one that ends in a dot stands for a section.
pub fn refuse_other_keys(overrides: &[String], changeable: &[&str], when: &str, instead: &str) -> Result<(), Failure> {
    let mut problems = Problems::default();
    for text in overrides {
        let key = key_of(text);
        if !is_among(changeable, key) {
            let message = format!("cannot change when {when}");
            // `cleanup.` stands for all of a section.
            let keys: Vec<String> = changeable.iter().map(|key| all_of_section(key)).collect();
            let help = format!("{instead}, or change one of: {}", keys.join(", "));
            problems.add(Problem::new(key, message).help(help));
        }
    }
    Ok(problems.into_result()?)
}
