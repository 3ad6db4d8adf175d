//! `xrun FILE`: check, plan, train, write down.

use std::path::Path;
use std::time::Instant;

use super::command;
use super::hooks::Ask;
use super::locked;
use super::terminal::{Failure, Terminal};
use super::training;
use super::{Display, RunArguments};
use crate::dataset::Dataset;
use crate::experiment::{Experiment, read};
use crate::files::layout;
use crate::invocation;
use crate::plan::{Plan, describe, disk, fit, shorten};
use crate::results::format::Outcome;
use crate::results::{index, read as read_results};
use crate::run::begin::{NewRun, Place};
use crate::run::fingerprint::fingerprint;
use crate::run::prepare::Planned;
use crate::stop::EXIT_VERDICT;
use crate::sweep::record;
use crate::units::counted;

pub fn run(arguments: &RunArguments) -> Result<u8, Failure> {
    let started = Instant::now();
    let terminal = arguments.display.terminal();
    let file = arguments
        .file
        .as_deref()
        .ok_or_else(|| Failure::Usage(format!("which file? {} FILE", invocation::program())))?;
    let mut overrides = arguments.overrides.all();
    overrides.extend(arguments.name.iter().map(|name| format!("--name={name}")));
    overrides.extend(arguments.fail_on.iter().map(|verdict| format!("--fail-on={}", verdict.word())));
    let mut checked = read::read(file, &overrides, super::environment())?;
    if let Some(steps) = arguments.steps.or(arguments.smoke.then_some(shorten::SMOKE_STEPS)) {
        overrides.extend(shortened(checked.experiment, steps, arguments, terminal)?);
        checked = read::read(file, &overrides, super::environment())?;
    }
    let mut experiment = checked.experiment.clone();
    if experiment.sweep.take().is_some() {
        let name = file.display();
        terminal.say(&format!(
            "{name} has a [sweep], which is left out here; `{} sweep {name}` runs its points",
            invocation::program()
        ));
    }
    arguments.data.prepare(&experiment);
    let mut planned = Planned::new(experiment, terminal)?;
    let is_command = planned.plan.experiment.command().is_some();
    arguments.until.check(is_command)?;
    if arguments.if_changed {
        let device = if is_command { UNKNOWN.to_owned() } else { planned.chosen.kind.to_string() };
        let kind = device.split(':').next().unwrap_or_default();
        if let Some(run) = index::finished(&arguments.results.folder, &fingerprint(&planned.plan), kind) {
            return Ok(unchanged(&run, arguments, terminal));
        }
    }
    let contract = if arguments.locked { Some(locked::contract(file, &planned)?) } else { None };
    match &contract {
        None if is_command => {}
        None => planned.forecast_if_asked(file, &overrides)?,
        Some(contract) => {
            let (forecast, _) = planned.forecast(file, &overrides)?;
            let moved = locked::broken(contract, &planned, &forecast);
            if !moved.is_empty() {
                moved.iter().for_each(|moved| terminal.error(&moved.to_string()));
                terminal.say(&locked::advice(file, contract, &planned));
                return Ok(EXIT_VERDICT);
            }
        }
    }
    if let Some(expected) = planned.plan.forecast.as_ref().and_then(|forecast| forecast.disk) {
        let results = arguments.directory.as_ref().unwrap_or(&arguments.results.folder);
        let (fits, sentence) = disk::sentence(&expected, disk::free(results), results, &planned.plan);
        match fits {
            true => terminal.detail(&format!("plan {sentence}")),
            false => terminal.say(&format!("plan {sentence}")),
        }
    }
    let new = NewRun {
        place: arguments.directory.as_deref().map_or(Place::Results(&arguments.results.folder), Place::Folder),
        text: &checked.text,
        origins: &checked.origins,
        stop_after: arguments.probe,
        until: arguments.until.step,
        // The points of a sweep name the programs that its folder names.
        own: arguments
            .directory
            .as_deref()
            .and_then(|folder| folder.ancestors().nth(2))
            .filter(|sweep| sweep.join(layout::SWEEP).is_file())
            .is_none_or(|sweep| record::check_creator(sweep).is_ok()),
    };
    let (run, code) = match is_command {
        true if arguments.dry_run => {
            describe_plan(&planned.plan, 0, "", &arguments.display, terminal);
            return Ok(0);
        }
        true => command::begin(&new, planned, command::How::until(arguments.probe), &arguments.display, terminal)?,
        false => {
            let rooms = planned.rooms();
            let (opened, task) = planned.open(1)?;
            if arguments.dry_run {
                let parameters = task.parameters();
                describe_plan(&opened.plan, parameters, &opened.chosen.words(), &arguments.display, terminal);
                if let Some(forecast) = opened.plan.forecast.as_ref().filter(|_| !arguments.display.json) {
                    let (_, sentence) = fit::sentence(forecast, &rooms);
                    terminal.answer(&format!("{}\n{sentence}", describe::forecast(forecast, terminal.width())));
                }
                return Ok(0);
            }
            let ask = if arguments.no_hooks || arguments.probe.is_some() { Ask::Leave } else { Ask::Run };
            training::begin(&new, &opened, task, started, &arguments.display, terminal, ask)?
        }
    };
    let broken = contract.map_or_else(Vec::new, |contract| locked::broken_by_run(&contract, &run));
    broken.iter().for_each(|said| terminal.error(&format!("the memory contract is broken: {said}")));
    Ok(if code == 0 && !broken.is_empty() { EXIT_VERDICT } else { code })
}

/// What the manifest says of the device of a command.
const UNKNOWN: &str = "unknown";

fn describe_plan(plan: &Plan, parameters: u64, device: &str, display: &Display, terminal: Terminal) {
    match display.json {
        true => terminal.json(&plan.to_file(parameters)),
        false => terminal.answer(&describe::describe(plan, parameters, device, terminal.width())),
    }
}

/// What makes a short run of the experiment. How long it is by itself, the data says.
fn shortened(
    mut experiment: Experiment,
    steps: u64,
    arguments: &RunArguments,
    terminal: Terminal,
) -> Result<Vec<String>, Failure> {
    experiment.sweep = None;
    if let Some(set) = shorten::of_command(&experiment, steps) {
        let mut set = set.map_err(|problem| Failure::Usage(problem.to_string()))?;
        terminal.say(&format!("{steps} steps: {}", set.join(", ")));
        if arguments.name.is_none() {
            set.push(shorten::name(&experiment));
        }
        return Ok(set);
    }
    // What is told of the data is told once, by the run itself; generating it may take minutes.
    let pending = experiment.dataset.as_ref().and_then(Dataset::pending).is_some();
    let whole = Planned::new(experiment, Terminal { quiet: terminal.quiet || !pending, verbose: false, ..terminal })?;
    let experiment = &whole.plan.experiment;
    let mut set = shorten::shortened(experiment, whole.plan.steps, steps);
    if arguments.smoke {
        set.push(shorten::small_validations(experiment));
    }
    let words = if set.is_empty() { "it is as short already".to_owned() } else { set.join(", ") };
    let all = whole.plan.steps;
    let of = if steps < all { format!("{steps} of {all} steps") } else { format!("all {}", counted(all, "step")) };
    terminal.say(&format!("{of}: {words}"));
    if arguments.name.is_none() {
        set.push(shorten::name(experiment));
    }
    Ok(set)
}

/// Says which run has the numbers already.
fn unchanged(run: &Path, arguments: &RunArguments, terminal: Terminal) -> u8 {
    let message = "the same experiment, data and code have a finished result; nothing was run";
    terminal.say(&format!("{}: {message}", run.display()));
    if arguments.display.json {
        let summary = read_results::summary(run).ok().flatten();
        terminal.json(&serde_json::json!({
            "run": run.display().to_string(),
            "outcome": Outcome::Finished,
            "exit_code": 0,
            "message": message,
            "summary": summary,
            "skipped": true,
        }));
    }
    0
}
