//! `xrun check FILE…`: is everything right, and if not, what is wrong?

use std::borrow::Cow;
use std::path::Path;

use clap::ValueEnum;

use super::CheckArguments;
use super::locked;
use super::terminal::{Failure, Terminal};
use super::training::tell_left_out;
use crate::dataset::error::{Broken, DataError, NAMED_MAX};
use crate::experiment::look::{self, Look};
use crate::experiment::read::Checked;
use crate::experiment::{annotate, read, read_sweep, render, resolved};
use crate::problem::{Problem, Problems};
use crate::run::prepare::Planned;
use crate::stop::{EXIT_BAD_INPUT, EXIT_VERDICT};
use crate::sweep::plan;

/// What was found in a file.
enum Found {
    Correct {
        checked: Box<Checked>,
        points: Option<usize>,
        look: Look,
    },
    Wrong {
        problems: Problems,
        /// There where only the disk does not have what the file names.
        checked: Option<Box<Checked>>,
    },
    /// The file is correct, and its data is not.
    WrongData {
        checked: Box<Checked>,
        error: DataError,
    },
}

/// How problems are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people, with excerpts, on standard error.
    Human,
    /// An object a file, on standard output.
    Json,
    /// Commands that GitHub shows beside the lines of a pull request.
    Github,
    /// SARIF 2.1.0, which code scanners and editors read.
    Sarif,
}

pub fn run(arguments: &CheckArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let overrides = arguments.overrides.all();
    let format = if arguments.json { Format::Json } else { arguments.format };
    let mut answers = Vec::with_capacity(arguments.files.len());
    let (mut wrong, mut broken) = (false, false);
    for file in &arguments.files {
        let found = look_at(file, &overrides, arguments.no_data);
        wrong |= !matches!(found, Found::Correct { .. });
        let name = file.display().to_string();
        let moved = match &found {
            Found::Correct { checked, .. } if arguments.locked => beyond(file, checked, &overrides, *terminal)?,
            _ => Problems::default(),
        };
        broken |= !moved.is_empty();
        match format {
            Format::Human => {}
            Format::Json => {
                answers.push(as_json(&name, &found, arguments.locked.then_some(&moved)));
                continue;
            }
            Format::Github | Format::Sarif => {
                for problems in [problems(&found).as_deref(), Some(&moved)].into_iter().flatten() {
                    match format {
                        Format::Github if problems.is_empty() => {}
                        Format::Github => terminal.answer(&annotate::github(&name, problems)),
                        _ => answers.extend(annotate::sarif_results(&name, problems)),
                    }
                }
                continue;
            }
        }
        if !moved.is_empty() {
            terminal.problems(&moved);
            continue;
        }
        match found {
            Found::Correct { checked, .. } if arguments.resolved || arguments.origins => {
                whole(&checked, arguments.origins, terminal);
            }
            Found::Correct { checked, points, look } => {
                let sweep = points.map_or_else(String::new, |points| format!(", a sweep of {points} trials"));
                terminal.say(&format!("{name}: correct ({}{sweep})", checked.experiment.pipeline.name()));
                tell_left_out(&name, &look.left_out, NAMED_MAX, *terminal);
                for smaller in &look.smaller {
                    terminal.say(&format!("{name}: {smaller}"));
                }
                for note in &look.notes {
                    terminal.say(&format!("{name}: {note}"));
                }
            }
            Found::Wrong { problems, checked } => {
                if let Some(checked) = checked.filter(|_| arguments.resolved || arguments.origins) {
                    whole(&checked, arguments.origins, terminal);
                }
                terminal.problems(&problems);
            }
            Found::WrongData { checked, error } => {
                if arguments.resolved || arguments.origins {
                    // Every value is known; that the data is not there changes none of them.
                    whole(&checked, arguments.origins, terminal);
                }
                terminal.problems(&of_data(&checked, &error));
                if let DataError::Several(broken) = &error {
                    terminal.say(&by_reason(broken));
                }
            }
        }
    }
    match format {
        Format::Json => terminal.json(&answers),
        Format::Sarif => terminal.json(&annotate::sarif(answers)),
        Format::Human | Format::Github => {}
    }
    Ok(match (wrong, broken) {
        (true, _) => EXIT_BAD_INPUT,
        (false, true) => EXIT_VERDICT,
        (false, false) => 0,
    })
}

/// What is wrong with a file, or with its data.
fn problems(found: &Found) -> Option<Cow<'_, Problems>> {
    match found {
        Found::Correct { .. } => None,
        Found::Wrong { problems, .. } => Some(Cow::Borrowed(problems)),
        Found::WrongData { checked, error } => Some(Cow::Owned(of_data(checked, error))),
    }
}

/// What a correct experiment is expected to need beyond its contract, a problem each.
fn beyond(file: &Path, checked: &Checked, overrides: &[String], terminal: Terminal) -> Result<Problems, Failure> {
    let mut experiment = checked.experiment.clone();
    experiment.sweep = None;
    let mut planned = Planned::new(experiment, Terminal { quiet: true, ..terminal })?;
    let contract = locked::contract(file, &planned)?;
    let (forecast, _) = planned.forecast(file, overrides)?;
    let moved = locked::broken(&contract, &planned, &forecast);
    let advice = locked::advice(file, &contract, &planned);
    let mut problems = Problems::default();
    for moved in moved {
        let key = moved.key.clone().unwrap_or_default();
        let place = checked.places.get(&key).cloned();
        problems
            .add(Problem::new(key, format!("the memory contract is broken: {moved}")).help(advice.as_str()).at(place));
    }
    Ok(problems)
}

fn look_at(file: &Path, overrides: &[String], no_data: bool) -> Found {
    let (checked, of_disk) = match read::read_as_written(file, overrides, super::environment()) {
        Ok(found) => found,
        Err(problems) => return Found::Wrong { problems, checked: None },
    };
    let checked = Box::new(checked);
    if !of_disk.is_empty() {
        return Found::Wrong { problems: of_disk, checked: Some(checked) };
    }
    let points = match points(&checked, file, overrides) {
        Ok(points) => points,
        Err(problems) => return Found::Wrong { problems, checked: None },
    };
    let look = if no_data { Ok(Look::default()) } else { look::look(&checked.experiment) };
    match look {
        Ok(look) => Found::Correct { checked, points, look },
        Err(error) => Found::WrongData { checked, error },
    }
}

fn whole(checked: &Checked, with_origins: bool, terminal: &Terminal) {
    terminal.answer(&resolved::to_toml(&checked.experiment, with_origins.then_some(&checked.origins)));
}

fn as_json(name: &str, found: &Found, moved: Option<&Problems>) -> serde_json::Value {
    let mut value = as_json_without_contract(name, found);
    if let (Some(object), Some(moved)) = (value.as_object_mut(), moved) {
        object.insert("beyond_contract".into(), render::json(moved));
    }
    value
}

fn as_json_without_contract(name: &str, found: &Found) -> serde_json::Value {
    match found {
        Found::Correct { look, .. } => {
            let data = serde_json::json!({
                "left_out": look.left_out.counts,
                "smaller": look.smaller,
                "notes": look.notes,
            });
            serde_json::json!({ "file": name, "problems": [], "data": data })
        }
        Found::Wrong { problems, .. } => serde_json::json!({ "file": name, "problems": render::json(problems) }),
        Found::WrongData { checked, error } => {
            let counts = match error {
                DataError::Several(broken) => Some(&broken.counts),
                _ => None,
            };
            let problems = of_data(checked, error);
            serde_json::json!({
                "file": name,
                "problems": render::json(&problems),
                "problems_not_named": problems.left_out,
                "data": { "wrong": counts },
            })
        }
    }
}

/// A problem for each item that is named, the first with the place of the key that names the data.
fn of_data(checked: &Checked, error: &DataError) -> Problems {
    let (data, place) = &checked.data;
    let mut shown: Vec<String> = Vec::new();
    let mut problems = Problems::default();
    let mut add = |problems: &mut Problems, error: &DataError| {
        let (key, place, message) = match error {
            DataError::Value { key, message } => (key, checked.places.get(key).cloned(), message.clone()),
            other => (data, place.clone(), other.to_string()),
        };
        // Each key is shown in its file once.
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

fn by_reason(broken: &Broken) -> String {
    format!("in the data by reason: {}{}", broken.by_reason(), broken.advice())
}

/// How many points the file's sweep has; each is checked.
fn points(checked: &Checked, file: &Path, overrides: &[String]) -> Result<Option<usize>, Problems> {
    if checked.experiment.sweep.is_none() {
        return Ok(None);
    }
    plan::check(&read_sweep::read(file, overrides, super::environment())?).map(Some)
}
