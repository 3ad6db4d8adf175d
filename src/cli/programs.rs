//! Programs that a directory of results names: commands and lines of Slurm scripts. They are started without
//! confirmation only if this user created the directory and it has not been changed since.

use std::path::{Path, PathBuf};

use super::terminal::Failure;
use crate::experiment::command::Placeholders;
use crate::experiment::{Experiment, read};
use crate::files::layout;
use crate::printable;
use crate::results::secrets;
use crate::results::trust;
use crate::sweep::launcher::ALLOW_COMMAND;
use crate::sweep::records::sweep::SweepRecord;
use crate::sweep::{record, slurm};

/// Largest number of characters shown of a program.
const CHARACTERS_MAX: usize = 2000;

/// Command line of an experiment's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandLineOf {
    /// Key `program`.
    Program,
    /// Key `resume`, if it is set.
    Resume,
}

/// Programs that a directory names, and whether they are trusted.
#[derive(Debug)]
pub struct Programs {
    directory: PathBuf,
    /// Shell-quoted command lines.
    command_lines: Vec<String>,
    untrusted: Option<String>,
}

impl Programs {
    /// Programs of a run: its command.
    pub fn for_run(run: &Path, experiment: &Experiment, which: CommandLineOf) -> Self {
        Self::checked(run, command(run, experiment, which).into_iter().collect(), trust::check_run)
    }

    /// Programs of a sweep: the command, the arguments that differ between trials, and the extra lines of Slurm scripts.
    pub fn for_sweep(sweep: &Path, trials: &SweepRecord) -> Result<Self, Failure> {
        let base = match read::read_resolved(&sweep.join(layout::BASE), &[]) {
            Ok(checked) => checked.experiment,
            // If data is missing, the runs that need it report that.
            Err(_) if record::check_creator(sweep).is_ok() => return Ok(Self::checked(sweep, Vec::new(), |_| Ok(()))),
            Err(problems) => return Err(problems.into()),
        };
        let mut command_lines: Vec<String> = command(sweep, &base, CommandLineOf::Program).into_iter().collect();
        // A trial may have another pipeline than the base.
        let own = format!("pipeline.{}.", base.pipeline.name());
        for (at, key) in trials.keys.iter().enumerate() {
            let of_pipeline = key == "pipeline" || key.starts_with("pipeline.");
            if of_pipeline && (base.command().is_some() || !key.starts_with(&own)) {
                let mut values: Vec<String> = trials.trials.iter().map(|trial| trial[at].to_string()).collect();
                values.sort();
                values.dedup();
                command_lines.push(format!("{key} = {}", values.join(", ")));
            }
        }
        let slurm = slurm::read_settings(sweep).map_err(Failure::failed)?;
        command_lines.extend(slurm.into_iter().flat_map(|slurm| slurm.extra_lines));
        Ok(Self::checked(sweep, command_lines, record::check_creator))
    }

    fn checked(directory: &Path, command_lines: Vec<String>, check: impl Fn(&Path) -> Result<(), String>) -> Self {
        let untrusted = if command_lines.is_empty() { None } else { check(directory).err() };
        Self { directory: directory.to_path_buf(), command_lines, untrusted }
    }

    /// Refuses programs of an untrusted directory unless they are allowed explicitly.
    ///
    /// # Errors
    /// The directory is untrusted; the message lists the programs.
    pub fn check(&self, allowed: bool) -> Result<(), Failure> {
        let Some(why) = self.untrusted.as_ref().filter(|_| !allowed) else { return Ok(()) };
        let command_lines: Vec<String> = self
            .command_lines
            .iter()
            .map(|text| format!("`{}`", printable::line(&secrets::mask_text(text), CHARACTERS_MAX)))
            .collect();
        Err(Failure::Usage(format!(
            "{}: {why}; its programs were not started: {}; use {ALLOW_COMMAND} if you trust them",
            self.directory.display(),
            command_lines.join(", ")
        )))
    }
}

/// Shell-quoted command line with its environment variables.
fn command(directory: &Path, experiment: &Experiment, which: CommandLineOf) -> Option<String> {
    let command = experiment.command()?;
    let words = command.resume.as_ref().filter(|_| which == CommandLineOf::Resume).unwrap_or(&command.program);
    let placeholders =
        Placeholders::new(experiment, command, (directory.join(layout::RESOLVED).is_file()).then_some(directory));
    // Invalid placeholders are reported before the command is started.
    let fill = |word: &String| placeholders.fill(word).unwrap_or_else(|_| word.clone());
    let set = |(name, value): (&String, &String)| {
        format!("{name}={}", printable::shell_word(&secrets::mask_value(name, &fill(value))))
    };
    let variables = command.environment.iter().map(set);
    let words: Vec<String> = words.iter().map(fill).collect();
    Some(variables.chain([quoted(&words)]).collect::<Vec<String>>().join(" "))
}

fn quoted(words: &[String]) -> String {
    secrets::mask_arguments(words).iter().map(|word| printable::shell_word(word)).collect::<Vec<String>>().join(" ")
}
