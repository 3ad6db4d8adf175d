//! `xrun fork RUN -s KEY=VALUE`: start a new run from a checkpoint of another run, with other settings.

use std::path::Path;
use std::time::Instant;

use clap::{Args, ValueHint};

use super::eval::checkpoint_choice;
use super::programs::{CommandLineOf, Programs};
use super::resume::{find_experiment_run, keep_device, new_run_advice, recorded_experiment};
use super::terminal::Failure;
use super::until::Until;
use super::{Data, Display, Overrides, Results, training};
use crate::experiment::overrides::overridden_key;
use crate::experiment::resolved;
use crate::files::layout;
use crate::invocation;
use crate::panics;
use crate::plan::Plan;
use crate::printable;
use crate::results::format::Manifest;
use crate::results::timestamp;
use crate::results::{read as read_results, trust};
use crate::run::evaluate::{self, CheckpointChoice};
use crate::run::fork::Fork;
use crate::run::launch::Extent;
use crate::run::new_run::{NewRun, RunLocation};
use crate::run::prepare::{self, Planned};
use crate::task::TaskError;
use crate::units::pluralize;

#[derive(Clone, Debug, Args)]
pub struct ForkArguments {
    #[arg(help = super::RUN_HELP, value_hint = ValueHint::DirPath)]
    run: String,
    /// Checkpoint: best, last, or the step after which it was written.
    #[arg(long, value_name = "CHECKPOINT", default_value = "last", value_parser = checkpoint_choice)]
    checkpoint: CheckpointChoice,
    /// Use this name in place of `experiment.name`.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    overrides: Overrides,
    /// Start even if the plan does not fit the limits or the machine.
    #[arg(long)]
    force: bool,
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

pub fn run(arguments: &ForkArguments) -> Result<u8, Failure> {
    let started = Instant::now();
    let terminal = arguments.display.terminal();
    let path = find_experiment_run(&arguments.results, &arguments.run)?;
    let manifest = read_results::manifest(&path).map_err(Failure::failed)?;
    let mut overrides = arguments.overrides.all();
    overrides.extend(arguments.name.iter().map(|name| format!("--name={name}")));
    let mut experiment = recorded_experiment(&path, &overrides)?.experiment;
    if experiment.command().is_some() {
        return Err(Failure::Usage(format!(
            "{}: the checkpoints of a command are its own; start it again with an argument that names one",
            path.display()
        )));
    }
    Programs::for_run(&path, &experiment, CommandLineOf::Program).check(arguments.allow_command)?;
    let checkpoint = evaluate::select_checkpoint(&path, &manifest, arguments.checkpoint).map_err(Failure::Failed)?;
    let fork = Fork::new(&manifest, &checkpoint, &overrides).map_err(Failure::failed)?;
    keep_device(&mut experiment, &overrides, &manifest);
    arguments.data.prepare(&experiment);
    // The checkpoint replaces them.
    experiment.training.initial_weights = None;
    let text = resolved::to_toml(&experiment, None);
    let mut planned = Planned::new(experiment, terminal)?;
    // A model that depends on its data, for example by its tokenizer, cannot read other data.
    evaluate::check_data(&planned.plan, &manifest).map_err(Failure::Failed)?;
    fork.add_to(&mut planned);
    check_length(&planned.plan, &fork, &path)?;
    planned.forecast_if_enabled(&path.join(layout::RESOLVED), &overrides, arguments.force)?;
    let (opened, mut task) = planned.open(fork.parent.step + 1)?;
    let loaded = panics::caught(|| task.load(&fork.checkpoint));
    loaded
        .map_err(|panic| Failure::from(prepare::device_error(&opened.chosen, &panic)))?
        .map_err(|error| not_loadable(&error, &path, &overrides))?;
    let origins = origins(&manifest, &overrides);
    let new = NewRun {
        location: RunLocation::Results(&arguments.results.directory),
        text: text.as_bytes(),
        origins: &origins,
        extent: Extent::until(arguments.until.step),
        sign: trust::check_run(&path).is_ok(),
        fork: Some(&fork),
    };
    terminal.info(&format!("fork of {}", fork.parent));
    let (_, code) = training::start(&new, &opened, task, started, &arguments.display, terminal)?;
    Ok(code)
}

/// Refuses a plan without steps after the checkpoint.
fn check_length(plan: &Plan, fork: &Fork, run: &Path) -> Result<(), Failure> {
    let done = fork.parent.step;
    if done < plan.steps {
        return Ok(());
    }
    let word = printable::shell_word(&run.to_string_lossy());
    Err(Failure::Usage(format!(
        "the checkpoint has already done {done} of {}; train longer with -s training.epochs=N (an epoch has {}), or start \
         earlier: `{} fork {word} --checkpoint STEP`",
        pluralize(plan.steps, "step"),
        pluralize(plan.steps_per_epoch, "step"),
        invocation::program()
    )))
}

/// Failure of a checkpoint that does not suit the changed experiment.
fn not_loadable(error: &TaskError, run: &Path, overrides: &[String]) -> Failure {
    let advice = if overrides.iter().any(|text| overridden_key(text).starts_with("model.")) {
        new_run_advice(run, overrides)
    } else {
        let word = printable::shell_word(&run.to_string_lossy());
        format!(
            "to take over the weights alone, for example with another optimizer, start a new run with \
             -s training.initial_weights={word}"
        )
    };
    Failure::Failed(format!("the checkpoint cannot be loaded with these settings: {error}; {advice}"))
}

/// Origins of the values: those of the other run, and the command line for the changed keys.
fn origins(manifest: &Manifest, overrides: &[String]) -> std::collections::BTreeMap<String, String> {
    let mut origins = manifest.origins.clone();
    let now = timestamp::now();
    for key in overrides.iter().map(|text| overridden_key(text)) {
        origins.insert(key.to_owned(), format!("command line of the fork at {now}"));
    }
    origins
}
