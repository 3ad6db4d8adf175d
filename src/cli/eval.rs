//! `xrun eval RUN`: validate a checkpoint, on its own data or on other data.

use clap::{Args, ValueHint};

use super::changeable::refuse_other_keys;
use super::resume::{find_experiment_run, keep_device, recorded_experiment};
use super::terminal::{Failure, Terminal};
use super::{Data, Display, Overrides, Results};
use crate::experiment::Experiment;
use crate::report::evaluation::text;
use crate::results::format::Manifest;
use crate::results::read as read_results;
use crate::run::evaluate::{self, CheckpointChoice};
use crate::run::prepare::Planned;

/// Keys and sections that an evaluation may change; the model is fixed.
pub(super) const CHANGEABLE: &[&str] =
    &["dataset.", "validation.", "limits.", "memory.", "device.", "experiment.device"];

#[derive(Clone, Debug, Args)]
pub struct EvalArguments {
    #[arg(help = super::RUN_HELP, value_hint = ValueHint::DirPath)]
    run: String,
    /// Checkpoint: best, last, or the step after which it was written.
    #[arg(long, value_name = "CHECKPOINT", default_value = "best", value_parser = checkpoint_choice)]
    checkpoint: CheckpointChoice,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    pub(super) display: Display,
}

/// Parses `--checkpoint`.
pub(super) fn checkpoint_choice(text: &str) -> Result<CheckpointChoice, String> {
    match text {
        "best" => Ok(CheckpointChoice::Best),
        "last" => Ok(CheckpointChoice::Last),
        number => number
            .parse()
            .map(CheckpointChoice::Step)
            .map_err(|_| "expected `best`, `last`, or a step such as 400".into()),
    }
}

/// Plans the experiment of a run for inference with a checkpoint. Returns whether the data is the run's own.
///
/// # Errors
/// The experiment cannot be planned, or the model cannot read this data.
pub fn plan_inference(
    mut experiment: Experiment,
    overrides: &[String],
    manifest: &Manifest,
    data: Data,
    terminal: Terminal,
) -> Result<(Planned, bool), Failure> {
    keep_device(&mut experiment, overrides, manifest);
    // Without training no batch is prefetched, and the checkpoint has all weights.
    experiment.limits.workers = 0;
    experiment.training.initial_weights = None;
    data.prepare(&experiment);
    let planned = Planned::new(experiment, terminal)?;
    // Before the model is moved to the device.
    let same_data = evaluate::check_data(&planned.plan, manifest).map_err(Failure::Failed)?;
    Ok((planned, same_data))
}

pub fn run(arguments: &EvalArguments) -> Result<u8, Failure> {
    let terminal = arguments.display.terminal();
    let run = find_experiment_run(&arguments.results, &arguments.run)?;
    let manifest = read_results::manifest(&run).map_err(Failure::failed)?;
    let checkpoint = evaluate::select_checkpoint(&run, &manifest, arguments.checkpoint).map_err(Failure::Failed)?;
    let overrides = arguments.overrides.all();
    refuse_other_keys(&overrides, CHANGEABLE, "cannot be changed for a trained checkpoint", "train another model")?;
    let experiment = recorded_experiment(&run, &overrides)?.experiment;
    let (planned, same_data) = plan_inference(experiment, &overrides, &manifest, arguments.data, terminal)?;
    let (opened, task) = planned.open(1)?;
    let (directory, evaluation) =
        evaluate::evaluate(&opened, task, &run, &manifest, &checkpoint, &overrides, same_data)?;
    terminal.answer(arguments.display.json, &evaluation, || text(&evaluation, terminal.width()));
    terminal.info(&format!("evaluation: {}", directory.display()));
    Ok(0)
}
