//! A sweep on a Slurm cluster. Each task of its job arrays is a run, by its place in the order of the sweep. There is an array
//! for each size of memory, or several where the cluster limits their length; a job of a search is an array of one task.
//!
//! ```text
//! launcher::SlurmLauncher  runs -> script::script -> queue::submit, then squeue and the run directories until they end
//! outcome::ActiveJob       a job that left the queue -> the end of its run, or another submission
//! task::start              the number of a task -> the process of its run, on the node
//! ```
//! The jobs have the sweep's name: with the queue and the run directories, any shell can continue the sweep.

pub mod arrays;
pub mod jobs;
pub mod launcher;
pub mod outcome;
pub mod queue;
pub mod script;
pub mod task;

use std::path::Path;

use super::record;
use crate::records::read_text;
use xrun_core::experiment::launcher::Slurm;
use xrun_core::experiment::validate::check_section;
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::printable;

/// Largest `slurm.toml`.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Slurm cannot be asked, or refuses.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// `sbatch` refused the job array.
    #[error("Slurm refused the job: {message}{}", advice(message))]
    Refused {
        /// Its standard error, cleaned for a terminal.
        message: String,
    },
    /// One of Slurm's commands cannot be started or fails, or a path or a setting of the sweep cannot be used: a message.
    #[error("{0}")]
    Failed(String),
    /// The script or the settings cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Advice on a refusal.
fn advice(message: &str) -> &'static str {
    let message = message.to_lowercase();
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
            "; the number of your jobs in the queue is limited: resume the sweep when some have ended, submitted jobs continue",
        ),
        ("time limit", "; set a shorter `time` in [launcher.slurm]: `sinfo` lists what partitions allow"),
        ("contact slurm controller", "; the cluster's controller does not answer: try again later"),
    ]
    .into_iter()
    .find(|(part, _)| message.contains(part))
    .map_or("", |(_, advice)| advice)
}

/// Writes `slurm.toml`: what each run asks Slurm for.
pub fn write_settings(sweep: &Path, settings: &Slurm) -> Result<(), SlurmError> {
    let path = sweep.join(layout::SLURM);
    let text = toml::to_string(settings).map_err(|error| invalid(&path, &error.to_string()))?;
    let head = "# What each run of the sweep asks Slurm for. May be edited: `sweep --resume` reads it.\n";
    let own = record::check_creator(sweep).is_ok();
    write::replace(&path, format!("{head}{text}").as_bytes())?;
    if own {
        // Without a signature, the resume asks.
        let _ = record::sign(sweep);
    }
    Ok(())
}

fn invalid(path: &Path, message: &str) -> SlurmError {
    SlurmError::Failed(format!("{} is invalid: {}", path.display(), printable::line(message, 400)))
}

/// Reads `slurm.toml`; `None` where the sweep was never submitted.
pub fn read_settings(sweep: &Path) -> Result<Option<Slurm>, SlurmError> {
    let path = sweep.join(layout::SLURM);
    let wrong = |message: &str| invalid(&path, message);
    let Some(text) = read_text(&path, FILE_BYTES_MAX).map_err(|message| wrong(&message))? else { return Ok(None) };
    // The file may have been edited: a value that an experiment may not have could add lines to the script.
    check_section("launcher.slurm", layout::SLURM, &text).map_err(|message| wrong(&message))?;
    Ok(Some(toml::from_str(&text).map_err(|error| wrong(error.message()))?))
}
