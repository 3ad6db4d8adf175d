//! A sweep on a Slurm cluster: all missing runs as job arrays, one for each size of memory, or several where the cluster's
//! are small; each task is one run of the sweep by its place in the order.
//!
//! ```text
//! launcher::SlurmLauncher  a run -> script::script -> queue::submit   job arrays
//!                          squeue and the run directories             until the runs end
//! outcome::ActiveJob       a job that is gone -> the run's end, or another submission
//! unwatched_deaths::find          deaths for want of memory before a launcher started
//! task::start              a task's number -> the run or resume that the node's process becomes
//! ```
//! The jobs bear the sweep's name, so the queue and the run directories say everything: any shell can go on.

pub mod arrays;
pub mod jobs;
pub mod launcher;
pub mod outcome;
pub mod queue;
pub mod script;
pub mod task;
pub mod unwatched_deaths;

use std::path::{Path, PathBuf};

use self::arrays::Arrays;
use super::record;
use xrun_core::experiment::launcher::{Slurm, check_slurm};
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::files::{file, layout};
use xrun_core::printable;

/// Longer files are not what Slurm is asked for.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Slurm cannot be asked, or refuses.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// One of Slurm's commands cannot be started.
    #[error(
        "`{command}` cannot be started: {source}; submit from a machine of the cluster that has Slurm's commands, or \
         run the sweep on this machine, without `--launcher slurm`"
    )]
    Command {
        /// The command's name, such as `sbatch`.
        command: &'static str,
        /// What the system answered.
        source: std::io::Error,
    },
    /// `sbatch` refused the job array.
    #[error("Slurm did not take the job: {said}{}", advice(said))]
    Refused {
        /// Its standard error, cleaned for a terminal.
        said: String,
    },
    /// A command was started and ended with an error.
    #[error("`{command}` failed: {said}")]
    Failed {
        /// The command's name.
        command: &'static str,
        /// Its standard error, cleaned for a terminal.
        said: String,
    },
    /// A folder has characters that a batch script or Slurm's `--output` cannot name.
    #[error("Slurm's scripts cannot name the folder {}: it has one of \" ' \\ % or a line break in it; \
             choose another with --results DIR", path.display())]
    Path {
        /// The folder.
        path: PathBuf,
    },
    /// The settings that were kept beside the sweep do not read.
    #[error("{} is not what it should be: {message}", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, for people.
        message: String,
    },
    /// The script or the settings cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What to do about a refusal.
fn advice(said: &str) -> &'static str {
    let said = said.to_lowercase();
    [
        ("invalid partition", "; set `partition` in [launcher.slurm]: `sinfo` lists the partitions"),
        ("invalid account", "; set `account` in [launcher.slurm]: `sacctmgr show associations user=$USER` lists yours"),
        (
            "job array",
            "; set `array_size` in [launcher.slurm] to MaxArraySize, which `scontrol show config` has: a sweep with more \
             runs becomes several arrays",
        ),
        (
            "node configuration is not available",
            "; no node has what [launcher.slurm] asks for: `sinfo -o '%P %m %G %c'` lists memory (MB), GPUs and cores",
        ),
        (
            "job submit limit",
            "; you may have only so many jobs in the queue: go on when some have ended, those that are submitted run",
        ),
        ("time limit", "; set a shorter `time` in [launcher.slurm]: `sinfo` lists what partitions allow"),
        ("contact slurm controller", "; the cluster's controller does not answer: try again later"),
    ]
    .into_iter()
    .find(|(part, _)| said.contains(part))
    .map_or("", |(_, advice)| advice)
}

/// The arrays of a sweep of so many runs, as it was submitted.
pub fn arrays_of(sweep: &Path, runs: usize) -> Result<Arrays, SlurmError> {
    Ok(Arrays::new(sweep, runs, read_settings(sweep)?.and_then(|settings| settings.array_size)))
}

/// Writes down what each run is to ask for.
pub fn write_settings(sweep: &Path, settings: &Slurm) -> Result<(), SlurmError> {
    let path = sweep.join(layout::SLURM);
    let text = toml::to_string(settings)
        .map_err(|error| SlurmError::Settings { path: path.clone(), message: error.to_string() })?;
    let head = "# What each run of the sweep asks Slurm for. May be changed: `sweep --resume` reads it anew.\n";
    let own = record::check_creator(sweep).is_ok();
    write::replace(&path, format!("{head}{text}").as_bytes())?;
    if own {
        // A folder of which nothing says so asks later.
        let _ = record::sign(sweep);
    }
    Ok(())
}

/// What each run asks for; `None` for a sweep that was never handed to Slurm.
pub fn read_settings(sweep: &Path) -> Result<Option<Slurm>, SlurmError> {
    let path = sweep.join(layout::SLURM);
    if !path.is_file() {
        return Ok(None);
    }
    let wrong = |message: &str| SlurmError::Settings { path: path.clone(), message: printable::line(message, 400) };
    let bytes = file::bytes(&path, FILE_BYTES_MAX).map_err(|error| wrong(&error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8"))?;
    // The file may have been edited: each value must be one that an experiment may have, or it could add lines of its own
    // to the script.
    check_slurm(&text).map_err(|message| wrong(&message))?;
    Ok(Some(toml::from_str(&text).map_err(|error| wrong(error.message()))?))
}
