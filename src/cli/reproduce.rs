//! `xrun reproduce RUN`: run the experiment of an existing run again and compare the metrics.

use std::path::Path;
use std::time::Instant;

use clap::Args;

use super::changeable::{WITHOUT_EFFECT, refuse_other_keys};
use super::command;
use super::programs::{CommandLineOf, Programs};
use super::resume::{find_experiment_run, recorded_experiment};
use super::terminal::{Failure, Terminal};
use super::training;
use super::{Data, Display, Overrides, Results};
use crate::device::{self, DeviceKind};
use crate::exit::exit_code;
use crate::experiment::overrides::overridden_key;
use crate::files::{layout, write};
use crate::invocation;
use crate::report;
use crate::results::format::Outcome;
use crate::results::resolved;
use crate::results::trust;
use crate::run::fingerprint::{data_path_keys, excluded_keys};
use crate::run::new_run::{NewRun, RunLocation};
use crate::run::prepare::Planned;
use crate::run::reproduce::{self, Original, TOLERANCE_CPU, TOLERANCE_GPU};

#[derive(Clone, Debug, Args)]
pub struct ReproduceArguments {
    #[arg(help = super::RUN_HELP)]
    run: String,
    #[command(flatten)]
    overrides: Overrides,
    /// Largest mean relative error of a metric. Default: 0 (bit-identical) on the CPU, 0.1 on a GPU.
    #[arg(long, value_name = "FRACTION", value_parser = tolerance)]
    tolerance: Option<f64>,
    /// Run the programs that the run names, even if another user created its directory.
    #[arg(long)]
    allow_command: bool,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    pub(super) display: Display,
}

fn tolerance(text: &str) -> Result<f64, String> {
    let fraction = text.parse().ok().filter(|fraction: &f64| fraction.is_finite() && *fraction >= 0.0);
    fraction.ok_or_else(|| "expected a number from 0 up, such as 0.05".into())
}

pub fn run(arguments: &ReproduceArguments) -> Result<u8, Failure> {
    let started = Instant::now();
    let terminal = arguments.display.terminal();
    let path = find_experiment_run(&arguments.results, &arguments.run)?;
    let original = Original::read(&path).map_err(Failure::failed)?;
    if original.last_step.is_none() {
        return Err(Failure::Failed(format!("{}: the run has no metrics to compare", path.display())));
    }
    if let Some(parent) = &original.manifest.parent {
        return Err(Failure::Usage(format!(
            "{}: the run is a fork of {parent}, and a reproduction starts at step 0; reproduce that run, then fork it again",
            path.display()
        )));
    }
    let planned = plan(&path, &original, arguments, terminal)?;
    let chosen = planned.chosen.clone();
    let changes = reproduce::changes(&original.manifest, &planned.plan, &chosen);
    for change in &changes {
        terminal.info(&format!("changed: {}", report::reproduction::change(change)));
    }
    let text = resolved::read_text(&path).map_err(Failure::failed)?;
    let new = NewRun {
        location: RunLocation::Reproductions(&arguments.results.directory),
        text: text.as_bytes(),
        origins: &original.manifest.origins,
        extent: original.extent(),
        fork: None,
        sign: trust::check_run(&path).is_ok(),
    };
    let mut display = arguments.display.clone();
    display.json = false;
    let (outcome, code) = match planned.plan.experiment.command().is_some() {
        true => {
            let working_directory = original.manifest.existing_working_directory();
            let mode = command::CommandMode { working_directory, ..command::CommandMode::new_run(new.extent) };
            command::start(&new, planned, mode, &display, terminal)?
        }
        false => {
            let (opened, task) = planned.open(1)?;
            training::start(&new, &opened, task, started, &display, terminal)?
        }
    };
    if code == exit_code(Outcome::Interrupted) {
        terminal.info(&format!("stopped before the comparison; run `{} reproduce` again", invocation::program()));
        return Ok(code);
    }
    let on_cpu = chosen.kind == DeviceKind::Cpu && original.manifest.device.chosen.starts_with("cpu");
    let tolerance = arguments.tolerance.unwrap_or(if on_cpu { TOLERANCE_CPU } else { TOLERANCE_GPU });
    let directory = outcome.run.path.as_path();
    let reproduction =
        reproduce::conclude(&original, (&path, &outcome.run), tolerance, &chosen, changes).map_err(Failure::failed)?;
    write::replace_json(&directory.join(layout::REPRODUCTION), &reproduction).map_err(Failure::failed)?;
    terminal.answer(arguments.display.json, &reproduction, || report::reproduction::text(&reproduction));
    Ok(reproduction.exit_code)
}

/// Plans the experiment of the original on its device, without limits that only stop a run: a slower machine must not change
/// the result.
fn plan(
    path: &Path,
    original: &Original,
    arguments: &ReproduceArguments,
    terminal: Terminal,
) -> Result<Planned, Failure> {
    let overrides = arguments.overrides.all();
    let mut experiment = recorded_experiment(path, &overrides)?.experiment;
    Programs::for_run(path, &experiment, CommandLineOf::Program).check(arguments.allow_command)?;
    let paths = data_path_keys(&experiment);
    let changeable: Vec<&str> =
        excluded_keys().iter().chain(WITHOUT_EFFECT).copied().chain(paths.iter().map(String::as_str)).collect();
    refuse_other_keys(&overrides, &changeable, "cannot be changed in a reproduction", "run the experiment")?;
    arguments.data.prepare(&experiment);
    let named = |key: &str| overrides.iter().any(|text| overridden_key(text) == key);
    experiment.training.time_limit = experiment.training.time_limit.filter(|_| named("training.time_limit"));
    experiment.limits.host_memory = experiment.limits.host_memory.filter(|_| named("limits.host_memory"));
    experiment.limits.device_memory = experiment.limits.device_memory.filter(|_| named("limits.device_memory"));
    let device = &original.manifest.device.chosen;
    // A command chooses its device itself.
    if named("experiment.device") || experiment.command().is_some() {
        return Ok(Planned::new(experiment, terminal)?);
    }
    experiment.experiment.device.clone_from(device);
    device::select(device).map_err(|error| {
        Failure::Failed(format!("the original ran on `{device}`: {error}; use --device for another device"))
    })?;
    Ok(Planned::new(experiment, terminal)?)
}
