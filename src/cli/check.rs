//! `xrun check FILE…`: is everything right, and if not, what is wrong?

use super::CheckArguments;
use super::terminal::{Failure, Terminal};
use std::path::Path;

use crate::experiment::{read, read_sweep, render, resolved};
use crate::problem::Problems;
use crate::run::stop::EXIT_BAD_INPUT;
use crate::sweep::plan;

pub fn run(arguments: &CheckArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let overrides = arguments.overrides.all();
    let mut answers = Vec::with_capacity(arguments.files.len());
    let mut wrong = false;
    for file in &arguments.files {
        let checked = read::read(file, &overrides, super::environment());
        let checked = checked.and_then(|checked| Ok((points(&checked, file, &overrides)?, checked)));
        wrong |= checked.is_err();
        let name = file.display().to_string();
        match (checked, arguments.json) {
            (Ok(_), true) => answers.push(serde_json::json!({ "file": name, "problems": [] })),
            (Err(problems), true) => {
                answers.push(serde_json::json!({ "file": name, "problems": render::json(&problems) }));
            }
            (Ok((_, checked)), false) if arguments.resolved => {
                let origins = arguments.origins.then_some(&checked.origins);
                terminal.answer(&resolved::to_toml(&checked.experiment, origins));
            }
            (Ok((points, checked)), false) => {
                let sweep = points.map_or_else(String::new, |points| format!(", a sweep of {points} points"));
                terminal.say(&format!("{name}: correct ({}{sweep})", checked.experiment.pipeline.kind()));
            }
            (Err(problems), false) => terminal.problems(&problems),
        }
    }
    if arguments.json {
        terminal.json(&answers);
    }
    Ok(if wrong { EXIT_BAD_INPUT } else { 0 })
}

/// How many points the file's sweep has; each is checked.
fn points(checked: &read::Checked, file: &Path, overrides: &[String]) -> Result<Option<usize>, Problems> {
    if checked.experiment.sweep.is_none() {
        return Ok(None);
    }
    plan::check(&read_sweep::read(file, overrides, super::environment())?).map(Some)
}
