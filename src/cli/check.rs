//! `xrun check FILE…`: check experiment files and their data, and report all problems.

use std::path::Path;

use super::CheckArguments;
use super::contract;
use super::devices;
use super::problems;
use super::terminal::{Failure, Terminal};
use crate::dataset::error::{DataError, NAMED_MAX};
use crate::device::DeviceKind;
use crate::exit::{EXIT_BAD_INPUT, EXIT_VERDICT};
use crate::experiment::INITIAL_WEIGHTS;
use crate::experiment::inspect;
use crate::experiment::pipeline::Inspection;
use crate::experiment::read::CheckedExperiment;
use crate::experiment::{read, read_sweep, resolved};
use crate::problem::{Location, Problem, Problems};
use crate::run::observer::Silent;
use crate::run::prepare::{Planned, skipped_lines};
use crate::sweep::plan;
use crate::units::pluralize;

/// Result of a check.
enum CheckResult {
    /// File and data are valid.
    Valid { checked: Box<CheckedExperiment>, trials: Option<usize>, inspection: Inspection },
    /// The file is invalid.
    InvalidFile {
        problems: Problems,
        /// The experiment, if the only problem is that the disk lacks something that the file names.
        checked: Option<Box<CheckedExperiment>>,
    },
    /// The file is valid, but its data is not.
    InvalidData { checked: Box<CheckedExperiment>, error: DataError },
}

pub fn run(arguments: &CheckArguments, terminal: &Terminal) -> Result<u8, Failure> {
    if arguments.devices {
        return devices::list(arguments.json, terminal);
    }
    let overrides = arguments.overrides.all();
    let mut answers = Vec::with_capacity(arguments.files.len());
    let (mut invalid, mut violated) = (false, false);
    for file in &arguments.files {
        let result = check_file(file, &overrides, arguments);
        invalid |= !matches!(result, CheckResult::Valid { .. });
        let name = file.display().to_string();
        let violations = match &result {
            CheckResult::Valid { checked, .. } if arguments.locked => {
                contract_problems(file, checked, &overrides, *terminal)?
            }
            _ => Problems::default(),
        };
        violated |= !violations.is_empty();
        if arguments.json {
            answers.push(as_json(&name, &result, arguments.locked.then_some(&violations)));
            continue;
        }
        if !violations.is_empty() {
            terminal.problems(&violations);
            continue;
        }
        match result {
            CheckResult::Valid { checked, .. } if arguments.resolved || arguments.origins => {
                print_resolved(&checked, arguments.origins, terminal);
            }
            CheckResult::Valid { checked, trials, inspection } => {
                let sweep = trials
                    .map_or_else(String::new, |trials| format!(", sweep of {}", pluralize(trials as u64, "trial")));
                terminal.info(&format!("{name}: valid ({}{sweep})", checked.experiment.pipeline.name()));
                checked.warnings.iter().for_each(|warning| terminal.info(&format!("warning: {warning}")));
                inspection.description.lines.iter().for_each(|line| terminal.info(&format!("{name}: data: {line}")));
                for warning in &inspection.description.warnings {
                    terminal.info(&format!("{name}: warning: {warning}"));
                }
                skipped_lines(&name, &inspection.skipped, NAMED_MAX).iter().for_each(|line| terminal.info(line));
                for lowered in &inspection.lowered {
                    terminal.info(&format!("{name}: {lowered}"));
                }
                for note in &inspection.notes {
                    terminal.info(&format!("{name}: {note}"));
                }
            }
            CheckResult::InvalidFile { problems, checked } => {
                if let Some(checked) = checked.filter(|_| arguments.resolved || arguments.origins) {
                    print_resolved(&checked, arguments.origins, terminal);
                }
                terminal.problems(&problems);
            }
            CheckResult::InvalidData { checked, error } => {
                if arguments.resolved || arguments.origins {
                    // The values do not depend on the data.
                    print_resolved(&checked, arguments.origins, terminal);
                }
                terminal.problems(&data_problems(&checked, &error));
                if let DataError::Several(items) = &error {
                    let (count, reasons) = (pluralize(items.total(), "problem"), items.by_reason());
                    terminal.info(&format!("{count} in the data: {reasons}{}", items.advice()));
                }
            }
        }
    }
    if arguments.json {
        terminal.json(&answers);
    }
    Ok(match (invalid, violated) {
        (true, _) => EXIT_BAD_INPUT,
        (false, true) => EXIT_VERDICT,
        (false, false) => 0,
    })
}

/// Violations of the memory contract by a valid experiment, as problems.
fn contract_problems(
    file: &Path,
    checked: &CheckedExperiment,
    overrides: &[String],
    terminal: Terminal,
) -> Result<Problems, Failure> {
    let mut experiment = checked.experiment.clone();
    experiment.sweep = None;
    let mut planned = Planned::new(experiment, Terminal { quiet: true, ..terminal })?;
    let locked = contract::read(file, &planned)?;
    let (forecast, _) = planned.forecast(file, overrides)?;
    let advice = contract::advice(file, &locked, &planned);
    let mut problems = Problems::default();
    for violation in contract::violations(&locked, &planned, &forecast) {
        let key = violation.key.clone().unwrap_or_default();
        let place = checked.locations.get(&key).cloned();
        let message = format!("memory contract violated: {violation}");
        problems.add(Problem::new(key, message).help(advice.as_str()).at(place));
    }
    Ok(problems)
}

fn check_file(file: &Path, overrides: &[String], arguments: &CheckArguments) -> CheckResult {
    let (checked, disk_problems) = match read::read_with_disk_problems(file, overrides, super::environment()) {
        Ok(read) => read,
        Err(problems) => return CheckResult::InvalidFile { problems, checked: None },
    };
    let checked = Box::new(checked);
    if !disk_problems.is_empty() {
        return CheckResult::InvalidFile { problems: disk_problems, checked: Some(checked) };
    }
    let trials = match count_trials(&checked, file, overrides) {
        Ok(trials) => trials,
        Err(problems) => return CheckResult::InvalidFile { problems, checked: None },
    };
    let inspection = if arguments.no_data { Ok(Inspection::default()) } else { inspect::inspect(&checked.experiment) };
    let inspection = match inspection {
        Ok(inspection) => inspection,
        Err(error) => return CheckResult::InvalidData { checked, error },
    };
    match (!arguments.no_data).then(|| initial_weights(&checked)).flatten() {
        None => CheckResult::Valid { checked, trials, inspection },
        Some(problem) => CheckResult::InvalidFile { problems: problem.into(), checked: Some(checked) },
    }
}

/// Problem of initial weights that a run would refuse. The model is built on the CPU and loads them, because only the model
/// knows the names and shapes of its tensors.
fn initial_weights(checked: &CheckedExperiment) -> Option<Problem> {
    checked.experiment.training.initial_weights.as_ref()?;
    if !cfg!(feature = "train") {
        return None;
    }
    let mut experiment = checked.experiment.clone();
    experiment.sweep = None;
    experiment.experiment.device = DeviceKind::Cpu.to_string();
    let message = Planned::new(experiment, Silent).and_then(|planned| planned.open(1)).err()?.to_string();
    let message = message.strip_prefix(&format!("{INITIAL_WEIGHTS}: ")).unwrap_or(&message);
    let help = "name weights of a model with these settings, or remove the key";
    Some(Problem::new(INITIAL_WEIGHTS, message).help(help).at(checked.locations.get(INITIAL_WEIGHTS).cloned()))
}

fn print_resolved(checked: &CheckedExperiment, with_origins: bool, terminal: &Terminal) {
    terminal.print(&resolved::to_toml(&checked.experiment, with_origins.then_some(&checked.origins)));
}

fn as_json(name: &str, result: &CheckResult, violations: Option<&Problems>) -> serde_json::Value {
    let mut value = match result {
        CheckResult::Valid { checked, inspection, .. } => {
            let data = serde_json::json!({
                "skipped": inspection.skipped.counts,
                "lowered": inspection.lowered,
                "notes": inspection.notes,
                "summary": inspection.description.lines,
                "warnings": checked.warnings.iter().map(ToString::to_string).chain(inspection.description.warnings.iter().cloned()).collect::<Vec<_>>(),
            });
            serde_json::json!({ "file": name, "problems": [], "data": data })
        }
        CheckResult::InvalidFile { problems, .. } => {
            serde_json::json!({ "file": name, "problems": problems::json(problems) })
        }
        CheckResult::InvalidData { checked, error } => {
            let counts = match error {
                DataError::Several(broken) => Some(&broken.counts),
                _ => None,
            };
            let problems = data_problems(checked, error);
            serde_json::json!({
                "file": name,
                "problems": problems::json(&problems),
                "problems_not_named": problems.left_out,
                "data": { "wrong": counts },
            })
        }
    };
    if let Some(violations) = violations {
        value["beyond_contract"] = problems::json(violations);
    }
    value
}

/// Problem for each invalid item that is named; the first has the position of the key that names the data.
fn data_problems(checked: &CheckedExperiment, error: &DataError) -> Problems {
    let (data, place) = &checked.data;
    let mut shown: Vec<String> = Vec::new();
    let mut problems = Problems::default();
    let mut add = |problems: &mut Problems, error: &DataError| {
        let (key, place, message) = match error {
            DataError::Value { key, message, entry } => {
                let place = checked.locations.get(key).cloned();
                (key, place.map(|place| entry_of(place, entry.as_deref())), message.clone())
            }
            other => (data, place.clone(), other.to_string()),
        };
        // The position of each key is shown once.
        let first = !shown.contains(key);
        if first {
            shown.push(key.clone());
        }
        problems.add(Problem::new(key.as_str(), message).at(place.filter(|_| first)));
    };
    match error {
        DataError::Several(broken) => {
            broken.first.iter().for_each(|item| add(&mut problems, &item.error));
            problems.left_out = usize::try_from(broken.unnamed()).unwrap_or(usize::MAX);
        }
        other => add(&mut problems, other),
    }
    problems
}

/// Location of an entry within that of a list, where the list has it as it is.
fn entry_of(list: Location, entry: Option<&str>) -> Location {
    let text = list.source.text.get(list.span.clone());
    let found = entry.zip(text).and_then(|(entry, text)| {
        let quoted = format!("\"{entry}\"");
        text.find(&quoted).map(|at| list.span.start + at..list.span.start + at + quoted.len())
    });
    match found {
        Some(span) => Location { span, ..list },
        None => list,
    }
}

/// Checks all trials of the file's sweep and returns their number; `None` without a sweep.
fn count_trials(checked: &CheckedExperiment, file: &Path, overrides: &[String]) -> Result<Option<usize>, Problems> {
    if checked.experiment.sweep.is_none() {
        return Ok(None);
    }
    plan::check(&read_sweep::read(file, overrides, super::environment())?).map(Some)
}
