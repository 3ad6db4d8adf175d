//! `xrun eval RUN`: validate a checkpoint once more, on its own data or on other data.

use clap::{Args, ValueHint};

use super::resume::{find, refuse_command, refuse_other_keys};
use super::terminal::{Failure, Terminal};
use super::{Data, Display, Overrides, Results};
use crate::experiment::overrides::key_of;
use crate::experiment::{Experiment, read};
use crate::files::layout;
use crate::report::evaluation::text;
use crate::results::format::Manifest;
use crate::results::{read as read_results, resolved};
use crate::run::evaluate::{self, Which};
use crate::run::prepare::Planned;

/// What may be otherwise: the model is what was trained.
pub(super) const CHANGEABLE: &[&str] =
    &["dataset.", "validation.", "limits.", "memory.", "device.", "experiment.device"];

#[derive(Clone, Debug, Args)]
pub struct EvalArguments {
    /// A run: a folder, `experiment/run`, the beginning of a run's name or its last six digits, an experiment's name, `latest` or `latest~2`.
    #[arg(value_hint = ValueHint::DirPath)]
    run: String,
    /// Which checkpoint: `best`, `last`, or the number of steps after which it was written.
    #[arg(long, value_name = "WHICH", default_value = "best", value_parser = which)]
    checkpoint: Which,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    pub(super) display: Display,
}

pub(super) fn which(text: &str) -> Result<Which, String> {
    match text {
        "best" => Ok(Which::Best),
        "last" => Ok(Which::Last),
        number => number
            .parse()
            .map(Which::Step)
            .map_err(|_| "expected `best`, `last`, or a number of steps such as 400".into()),
    }
}

/// Plans a run's experiment for what only looks at a checkpoint; and whether the data is the run's.
///
/// # Errors
/// The experiment cannot be planned, or the model cannot read this data.
pub fn untrained(
    mut experiment: Experiment,
    overrides: &[String],
    manifest: &Manifest,
    data: Data,
    terminal: Terminal,
) -> Result<(Planned, bool), Failure> {
    if !overrides.iter().any(|text| key_of(text) == "experiment.device") {
        experiment.experiment.device.clone_from(&manifest.device.chosen);
    }
    // Nothing is trained: no batch is prepared ahead, and the checkpoint has all weights.
    experiment.limits.workers = 0;
    experiment.training.initial_weights = None;
    data.prepare(&experiment);
    let planned = Planned::new(experiment, terminal)?;
    // Before the model is on the device.
    let same_data = evaluate::fits(&planned.plan, manifest).map_err(Failure::Failed)?;
    Ok((planned, same_data))
}

pub fn run(arguments: &EvalArguments) -> Result<u8, Failure> {
    let terminal = arguments.display.terminal();
    let run = find(&arguments.results, &arguments.run)?;
    refuse_command(&run)?;
    let manifest = read_results::manifest(&run).map_err(Failure::failed)?;
    let chosen = evaluate::choose(&run, &manifest, arguments.checkpoint).map_err(Failure::Failed)?;
    let overrides = arguments.overrides.all();
    refuse_other_keys(
        &overrides,
        CHANGEABLE,
        "a checkpoint is evaluated: the model is what was trained",
        "train another model",
    )?;
    resolved::text_of(&run).map_err(Failure::failed)?;
    let experiment = read::read_resolved(&run.join(layout::RESOLVED), &overrides)?.experiment;
    let (planned, same_data) = untrained(experiment, &overrides, &manifest, arguments.data, terminal)?;
    let (opened, task) = planned.open(1)?;
    let (folder, evaluation) = evaluate::evaluate(&opened, task, &run, &manifest, &chosen, &overrides, same_data)?;
    match arguments.display.json {
        true => terminal.json(&evaluation),
        false => terminal.answer(&text(&evaluation, terminal.width())),
    }
    terminal.say(&format!("evaluation: {}", folder.display()));
    Ok(0)
}
