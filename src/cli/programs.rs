//! Which programs would a result's folder start, and are they started? One rule for commands, hooks and lines of Slurm's
//! scripts: unasked only where this user created the folder, and nothing was changed in it since.

use std::path::{Path, PathBuf};

use super::terminal::Failure;
use crate::experiment::command::Words as Filled;
use crate::experiment::{Experiment, read};
use crate::files::layout;
use crate::printable;
use crate::results::secrets;
use crate::results::trust::{self, Untrusted};
use crate::sweep::launcher::ALLOW_COMMAND;
use crate::sweep::records::sweep::Record;
use crate::sweep::{record, slurm};

/// More characters of a program are not shown.
const CHARACTERS_MAX: usize = 2000;

/// The words of a command that are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    Program,
    Resume,
}

/// The programs that a folder names.
#[derive(Debug)]
pub struct Programs {
    folder: PathBuf,
    /// As one would type them.
    shown: Vec<String>,
    untrusted: Option<Untrusted>,
}

impl Programs {
    /// Those of a run: its command, and its hooks where they are asked for.
    pub fn of_run(run: &Path, experiment: &Experiment, words: Words, hooks: bool) -> Self {
        let mut shown: Vec<String> = command(run, experiment, words).into_iter().collect();
        if hooks {
            let hooks = &experiment.hooks;
            let all = [&hooks.on_end, &hooks.on_growing, &hooks.on_limit, &hooks.on_failed];
            shown.extend(all.into_iter().filter(|words| !words.is_empty()).map(|words| typed(words)));
        }
        Self::checked(run, shown, trust::check_run)
    }

    /// Those of a sweep: the command of its points, the words that differ between them, and what Slurm's scripts begin with.
    pub fn of_sweep(sweep: &Path, points: &Record) -> Result<Self, Failure> {
        let base = match read::read_resolved(&sweep.join(layout::BASE), &[]) {
            Ok(checked) => checked.experiment,
            // Where data are gone, the runs say so that need them.
            Err(_) if record::check_creator(sweep).is_ok() => return Ok(Self::checked(sweep, Vec::new(), |_| Ok(()))),
            Err(problems) => return Err(problems.into()),
        };
        let mut shown: Vec<String> = command(sweep, &base, Words::Program).into_iter().collect();
        // A point may be of another pipeline than the base.
        let own = format!("pipeline.{}.", base.pipeline.name());
        for (at, key) in points.keys.iter().enumerate() {
            let of_pipeline = key == "pipeline" || key.starts_with("pipeline.");
            if of_pipeline && (base.command().is_some() || !key.starts_with(&own)) {
                let mut values: Vec<String> = points.points.iter().map(|point| point[at].to_string()).collect();
                values.sort();
                values.dedup();
                shown.push(format!("{key} = {}", values.join(", ")));
            }
        }
        shown.extend(
            slurm::read_settings(sweep).map_err(Failure::failed)?.into_iter().flat_map(|slurm| slurm.extra_lines),
        );
        Ok(Self::checked(sweep, shown, record::check_creator))
    }

    fn checked(folder: &Path, shown: Vec<String>, check: impl Fn(&Path) -> Result<(), Untrusted>) -> Self {
        let untrusted = if shown.is_empty() { None } else { check(folder).err() };
        Self { folder: folder.to_path_buf(), shown, untrusted }
    }

    /// Goes on where none is named, this user created the folder, or it is allowed.
    ///
    /// # Errors
    /// Otherwise, with the programs.
    pub fn check(&self, allowed: bool) -> Result<(), Failure> {
        let Some(why) = self.untrusted.as_ref().filter(|_| !allowed) else { return Ok(()) };
        let shown: Vec<String> = self
            .shown
            .iter()
            .map(|text| format!("`{}`", printable::line(&secrets::text(text), CHARACTERS_MAX)))
            .collect();
        Err(Failure::Usage(format!(
            "{}: {why}; so nothing that it names is started: {}; if you trust it, {ALLOW_COMMAND} does so",
            self.folder.display(),
            shown.join(", ")
        )))
    }
}

/// A command with the variables of its environment, as one would type it.
fn command(folder: &Path, experiment: &Experiment, words: Words) -> Option<String> {
    let command = experiment.command()?;
    let meant = command.resume.as_ref().filter(|_| words == Words::Resume).unwrap_or(&command.program);
    let filled = Filled::of(experiment, command, (folder.join(layout::RESOLVED).is_file()).then_some(folder));
    // What cannot be filled in is refused before it is started.
    let fill = |word: &String| filled.fill(word).unwrap_or_else(|_| word.clone());
    let set = |(name, value): (&String, &String)| {
        format!("{name}={}", printable::shell_word(&secrets::value(name, &fill(value))))
    };
    let variables = command.environment.iter().map(set);
    let words: Vec<String> = meant.iter().map(fill).collect();
    Some(variables.chain([typed(&words)]).collect::<Vec<String>>().join(" "))
}

fn typed(words: &[String]) -> String {
    secrets::words(words).iter().map(|word| printable::shell_word(word)).collect::<Vec<String>>().join(" ")
}
