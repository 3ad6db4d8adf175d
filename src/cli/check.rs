//! `xrun check FILE…`: is everything right, and if not, what is wrong?

use super::CheckArguments;
use super::terminal::{Failure, Terminal};
use crate::experiment::{read, render, resolved};
use crate::run::stop::EXIT_BAD_INPUT;

pub fn run(arguments: &CheckArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let overrides = arguments.overrides.all();
    let mut answers = Vec::with_capacity(arguments.files.len());
    let mut wrong = false;
    for file in &arguments.files {
        let checked = read::read(file, &overrides, super::environment());
        wrong |= checked.is_err();
        let name = file.display().to_string();
        match (checked, arguments.json) {
            (Ok(_), true) => answers.push(serde_json::json!({ "file": name, "problems": [] })),
            (Err(problems), true) => {
                answers.push(serde_json::json!({ "file": name, "problems": render::json(&problems) }));
            }
            (Ok(checked), false) if arguments.resolved => {
                let origins = arguments.origins.then_some(&checked.origins);
                terminal.answer(&resolved::to_toml(&checked.experiment, origins));
            }
            (Ok(checked), false) => terminal.say(&format!("{name}: correct ({})", checked.experiment.pipeline.kind())),
            (Err(problems), false) => terminal.problems(&problems),
        }
    }
    if arguments.json {
        terminal.json(&answers);
    }
    Ok(if wrong { EXIT_BAD_INPUT } else { 0 })
}
