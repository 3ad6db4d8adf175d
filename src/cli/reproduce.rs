//! `xrun reproduce RUN`: does the same come out when a result's experiment is run again?

use std::path::Path;
use std::time::Instant;

use clap::Args;

use super::command;
use super::hooks::Ask;
use super::programs::{Programs, Words};
use super::resume::{find, refuse_command, refuse_other_keys};
use super::terminal::{Failure, Terminal};
use super::training;
use super::{Data, Display, Overrides, Results};
use crate::command::EarlyEnd;
use crate::device::{self, Kind};
use crate::experiment::overrides::key_of;
use crate::experiment::read;
use crate::files::{layout, write};
use crate::invocation;
use crate::report;
use crate::results::format::Outcome;
use crate::results::resolved;
use crate::results::trust;
use crate::run::begin::{NewRun, Place};
use crate::run::fingerprint::{LEFT_OUT, places_of_data};
use crate::run::prepare::Planned;
use crate::run::reproduce::{self, Original, TOLERANCE_CPU, TOLERANCE_GPU};
use crate::stop::exit_code;

/// What may be otherwise and still has to give the same numbers, besides what no fingerprint covers.
const CHANGEABLE: &[&str] = &[
    "limits.workers",
    "limits.prefetch",
    "limits.frame_cache",
    "limits.decoding",
    "limits.metrics_queue",
    "limits.log_queue",
    "cleanup.",
    "memory.",
    "checkpoint.every_steps",
    "checkpoint.keep_last",
];

#[derive(Clone, Debug, Args)]
pub struct ReproduceArguments {
    /// A run: a folder, `experiment/run`, the beginning of a run's name or its last six digits, an experiment's name, `latest` or `latest~2`.
    run: String,
    #[command(flatten)]
    overrides: Overrides,
    /// The share of its mean size by which a number may be off on average. Default: 0 on the CPU, which asks for the same
    /// bits, and 0.1 on a GPU.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    tolerance: Option<f64>,
    /// Start the programs that the experiment names in `[hooks]`.
    #[arg(long)]
    hooks: bool,
    /// Start the programs that the run names, also where this user did not create its folder.
    #[arg(long)]
    allow_command: bool,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    pub(super) display: Display,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share: &f64| share.is_finite() && *share >= 0.0);
    share.ok_or_else(|| "expected a number from 0 up, such as 0.05".into())
}

pub fn run(arguments: &ReproduceArguments) -> Result<u8, Failure> {
    let started = Instant::now();
    let terminal = arguments.display.terminal();
    let path = find(&arguments.results, &arguments.run)?;
    refuse_command(&path)?;
    let original = Original::read(&path).map_err(Failure::failed)?;
    if original.last_step.is_none() {
        return Err(Failure::Failed(format!("{}: this run has no metrics to compare with", path.display())));
    }
    let planned = plan(&path, &original, arguments, terminal)?;
    let chosen = planned.chosen.clone();
    let changes = reproduce::changes(&original.manifest, &planned.plan, &chosen);
    for change in &changes {
        terminal.say(&format!("not as it was: {}", report::reproduction::change(change)));
    }
    let text = resolved::text_of(&path).map_err(Failure::failed)?;
    let new = NewRun {
        place: Place::Reproductions(&arguments.results.folder),
        text: text.as_bytes(),
        origins: &original.manifest.origins,
        stop_after: original.stop_after(),
        until: None,
        own: trust::check_run(&path).is_ok(),
    };
    let mut display = arguments.display.clone();
    display.json = false;
    let (directory, code) = match planned.plan.experiment.command().is_some() {
        true => {
            let enough = new.stop_after.map(|steps| EarlyEnd { steps, after: None });
            let how = command::How { enough, folder: command::folder_of(&original.manifest), resumes: false };
            command::begin(&new, planned, how, &display, terminal)?
        }
        false => {
            let (opened, task) = planned.open(1)?;
            let ask = Ask::of_result(arguments.hooks, &opened.plan.experiment.hooks, terminal);
            training::begin(&new, &opened, task, started, &display, terminal, ask)?
        }
    };
    if code == exit_code(Outcome::Interrupted) {
        terminal.say(&format!("nothing was compared; `{} reproduce` begins anew", invocation::program()));
        return Ok(code);
    }
    let on_cpu = chosen.kind == Kind::Cpu && original.manifest.device.chosen.starts_with("cpu");
    let tolerance = arguments.tolerance.unwrap_or(if on_cpu { TOLERANCE_CPU } else { TOLERANCE_GPU });
    let reproduction =
        reproduce::conclude(&original, (&path, &directory), tolerance, &chosen, changes).map_err(Failure::failed)?;
    write::replace_json(&directory.join(layout::REPRODUCTION), &reproduction).map_err(Failure::failed)?;
    match arguments.display.json {
        true => terminal.json(&reproduction),
        false => terminal.answer(&report::reproduction::text(&reproduction)),
    }
    Ok(reproduction.exit_code)
}

/// The original's experiment on the device that it ran on, without the limits that only stop it: a slower machine is no
/// other result.
fn plan(
    path: &Path,
    original: &Original,
    arguments: &ReproduceArguments,
    terminal: Terminal,
) -> Result<Planned, Failure> {
    let overrides = arguments.overrides.all();
    resolved::text_of(path).map_err(Failure::failed)?;
    let mut experiment = read::read_resolved(&path.join(layout::RESOLVED), &overrides)?.experiment;
    Programs::of_run(path, &experiment, Words::Program, arguments.hooks).check(arguments.allow_command)?;
    let places = places_of_data(&experiment);
    let changeable: Vec<&str> =
        LEFT_OUT.iter().chain(CHANGEABLE).copied().chain(places.iter().map(String::as_str)).collect();
    refuse_other_keys(
        &overrides,
        &changeable,
        "a run is reproduced: its numbers would no longer be those of one run",
        "run the experiment",
    )?;
    arguments.data.prepare(&experiment);
    let named = |key: &str| overrides.iter().any(|text| key_of(text) == key);
    experiment.training.time_limit = experiment.training.time_limit.filter(|_| named("training.time_limit"));
    experiment.limits.host_memory = experiment.limits.host_memory.filter(|_| named("limits.host_memory"));
    experiment.limits.device_memory = experiment.limits.device_memory.filter(|_| named("limits.device_memory"));
    let device = &original.manifest.device.chosen;
    // What a command works on is its own choice.
    if named("experiment.device") || experiment.command().is_some() {
        return Ok(Planned::new(experiment, terminal)?);
    }
    experiment.experiment.device.clone_from(device);
    device::choose(device).map_err(|error| {
        Failure::Failed(format!("the run was on `{device}`: {error}; --device reproduces it on another one"))
    })?;
    Ok(Planned::new(experiment, terminal)?)
}
