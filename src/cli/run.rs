//! `xrun FILE`: check, plan and train an experiment.

use std::time::Instant;

use super::command;
use super::contract;
use super::fail_on;
use super::terminal::{Failure, Terminal};
use super::training;
use super::{Display, RunArguments};
use crate::exit::EXIT_VERDICT;
use crate::experiment::{Experiment, read};
use crate::invocation;
use crate::plan::{Plan, describe, fit, shorten};
use crate::results::format::Outcome;
use crate::results::index;
use crate::results::view::RunView;
use crate::run::fingerprint::fingerprint;
use crate::run::launch::Extent;
use crate::run::new_run::{NewRun, RunLocation};
use crate::run::prepare::Planned;
use crate::sweep::record;
use crate::units::pluralize;

pub fn run(arguments: &RunArguments) -> Result<u8, Failure> {
    let started = Instant::now();
    let terminal = arguments.display.terminal();
    let file = arguments
        .file
        .as_deref()
        .ok_or_else(|| Failure::Usage(format!("FILE is missing: {} FILE", invocation::program())))?;
    let mut overrides = arguments.overrides.all();
    overrides.extend(arguments.name.iter().map(|name| format!("--name={name}")));
    overrides.extend(fail_on::overrides(&arguments.fail_on));
    let mut checked = read::read(file, &overrides, super::environment())?;
    if let Some(steps) = arguments.steps.or(arguments.smoke.then_some(shorten::SMOKE_STEPS)) {
        overrides.extend(short_run_overrides(checked.experiment, steps, arguments, terminal)?);
        checked = read::read(file, &overrides, super::environment())?;
    }
    checked.warnings.iter().for_each(|warning| terminal.info(&format!("warning: {warning}")));
    let mut experiment = checked.experiment.clone();
    if experiment.sweep.take().is_some() {
        let name = file.display();
        terminal.info(&format!("ignoring [sweep] of {name}; `{} sweep {name}` runs the sweep", invocation::program()));
    }
    arguments.data.prepare(&experiment);
    let mut planned = Planned::new(experiment, terminal)?;
    let is_command = planned.plan.experiment.command().is_some();
    arguments.until.check(is_command)?;
    if arguments.if_changed {
        let device = if is_command { UNKNOWN_DEVICE.to_owned() } else { planned.chosen.kind.to_string() };
        let kind = device.split(':').next().unwrap_or_default();
        if let Some(run) = index::find_finished(&arguments.results.directory, &fingerprint(&planned.plan), kind) {
            return Ok(report_skipped(&run, arguments, terminal));
        }
    }
    let locked = if arguments.locked { Some(contract::read(file, &planned)?) } else { None };
    match &locked {
        None if is_command => {}
        // A sweep has forecasts of its own.
        None => planned.forecast_if_enabled(file, &overrides, arguments.force || arguments.directory.is_some())?,
        Some(locked) => {
            let (forecast, _) = planned.forecast(file, &overrides)?;
            let violations = contract::violations(locked, &planned, &forecast);
            if !violations.is_empty() {
                violations.iter().for_each(|violation| terminal.error(&violation.to_string()));
                terminal.info(&contract::advice(file, locked, &planned));
                return Ok(EXIT_VERDICT);
            }
        }
    }
    let new = NewRun {
        location: match arguments.directory.as_deref() {
            Some(directory) => RunLocation::Exact(directory),
            None => RunLocation::Results(&arguments.results.directory),
        },
        text: &checked.text,
        origins: &checked.origins,
        extent: arguments.probe.map_or(Extent::until(arguments.until.step), Extent::Probe),
        fork: None,
        // A trial of a sweep names the programs of the sweep.
        sign: arguments
            .directory
            .as_deref()
            .and_then(record::sweep_of)
            .is_none_or(|sweep| record::check_creator(sweep).is_ok()),
    };
    let (outcome, code) = match is_command {
        true if arguments.dry_run => {
            describe_plan(&planned.plan, 0, "", &arguments.display, terminal);
            return Ok(0);
        }
        true => {
            let mode = command::CommandMode::new_run(new.extent);
            command::start(&new, planned, mode, &arguments.display, terminal)?
        }
        false => {
            let budgets = planned.memory_budgets();
            let (opened, task) = planned.open(1)?;
            if arguments.dry_run {
                let parameters = task.parameters();
                describe_plan(&opened.plan, parameters, &opened.chosen.description(), &arguments.display, terminal);
                if let Some(forecast) = opened.plan.forecast.as_ref().filter(|_| !arguments.display.json) {
                    let (_, message) = fit::message(forecast, &budgets);
                    terminal.print(&format!("{}\n{message}", describe::forecast(forecast, terminal.width())));
                }
                return Ok(0);
            }
            training::start(&new, &opened, task, started, &arguments.display, terminal)?
        }
    };
    let violations = locked.map_or_else(Vec::new, |locked| contract::run_violations(&locked, &outcome.run));
    violations.iter().for_each(|violation| terminal.error(&format!("memory contract violated: {violation}")));
    Ok(if code == 0 && !violations.is_empty() { EXIT_VERDICT } else { code })
}

/// Device of a command in its manifest.
const UNKNOWN_DEVICE: &str = "unknown";

fn describe_plan(plan: &Plan, parameters: u64, device: &str, display: &Display, terminal: Terminal) {
    let text = || describe::describe(plan, parameters, device, terminal.width());
    terminal.answer(display.json, &plan.to_file(parameters), text);
}

/// Overrides that make a short run of the experiment, whose full length depends on the data.
fn short_run_overrides(
    mut experiment: Experiment,
    steps: u64,
    arguments: &RunArguments,
    terminal: Terminal,
) -> Result<Vec<String>, Failure> {
    experiment.sweep = None;
    if let Some(set) = shorten::command_overrides(&experiment, steps) {
        let mut set = set.map_err(|problem| Failure::Usage(problem.to_string()))?;
        terminal.info(&format!("short run of {}: {}", pluralize(steps, "step"), set.join(", ")));
        if arguments.name.is_none() {
            set.push(shorten::name_override(&experiment));
        }
        return Ok(set);
    }
    // The run itself reports the facts about the data. Only generating the data, which may take minutes, is shown here.
    let pending = experiment.dataset.as_ref().and_then(|dataset| dataset.generation_notice()).is_some();
    let whole = Planned::new(experiment, Terminal { quiet: terminal.quiet || !pending, verbose: false, ..terminal })?;
    let experiment = &whole.plan.experiment;
    let mut set = shorten::overrides(experiment, whole.plan.steps, steps);
    if arguments.smoke {
        set.push(shorten::small_validations(experiment));
    }
    let changes = if set.is_empty() { "no changes needed".to_owned() } else { set.join(", ") };
    let all = pluralize(whole.plan.steps, "step");
    let length = if steps < whole.plan.steps { format!("{steps} of {all}") } else { format!("all {all}") };
    terminal.info(&format!("short run of {length}: {changes}"));
    if arguments.name.is_none() {
        set.push(shorten::name_override(experiment));
    }
    Ok(set)
}

/// Reports the finished run because of which `--if-changed` skips this one.
fn report_skipped(run: &RunView, arguments: &RunArguments, terminal: Terminal) -> u8 {
    let message = "skipped: this run has the same experiment, data and code";
    terminal.info(&format!("{}: {message}", run.path.display()));
    if arguments.display.json {
        terminal.json(&serde_json::json!({
            "run": run.path.display().to_string(),
            "outcome": Outcome::Finished,
            "exit_code": 0,
            "message": message,
            "summary": run.summary(),
            "skipped": true,
        }));
    }
    0
}
