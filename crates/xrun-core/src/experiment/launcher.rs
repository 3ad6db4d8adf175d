//! Where are the runs of a sweep started, other than on this machine?

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{schema, shape, tree, walk};
use crate::problem::Source;
use crate::units::{Bytes, Span};

crate::settings::kinds::kinds! {
    /// What to request from a cluster when `xrun sweep --launcher` runs a sweep there. Without `--launcher` the section
    /// is left out.
    pub enum Launcher {
        "slurm" => Slurm(Slurm),
    }
}

/// All runs of a sweep as job arrays, or a search as jobs one after another, for `xrun sweep --launcher slurm`. Each run gets
/// what is requested here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Slurm {
    /// The partition, or several with commas (`--partition`). Default: the cluster's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._,-]*$"))]
    pub partition: Option<String>,
    /// Who pays (`--account`). Default: the cluster's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"))]
    pub account: Option<String>,
    /// How long a run may take (`--time`); one that takes longer saves a checkpoint, is submitted again, and goes on.
    /// Default: the partition's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
    /// Memory of a run (`--mem`), one size for all. Default: by point, in at most four sizes: what probes say that its points
    /// need, and a quarter more, at least 256 MiB more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// GPUs of a run (`--gres=gpu:N`); 0 asks for none. Default: 1 where `experiment.device` is `cuda` or `vulkan`, or is
    /// `auto` and this machine has a GPU; otherwise 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 64))]
    pub gpus: Option<u32>,
    /// Processor cores of a run (`--cpus-per-task`). Default: the cluster's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4096))]
    pub cpus: Option<u32>,
    /// How many runs may go on at once (`%N` behind the array). Of a search, how many jobs run and wait at once. Default: as many
    /// as the cluster gives; of a search 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub array_limit: Option<u32>,
    /// The most tasks of one job array; a sweep with more runs becomes several, with `array_limit` one after another.
    /// Default: MaxArraySize, as the cluster's `scontrol show config` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_000_001))]
    pub array_size: Option<u32>,
    /// How long before the end of `time`, and where the cluster allows it before a pre-emption, a run is told to save a
    /// checkpoint and stop (`--signal=B:TERM@`).
    pub grace: Span,
    /// How often a run that was pre-empted, killed or out of time is submitted again while the sweep is watched.
    #[schemars(range(min = 0, max = 1000))]
    pub requeue: u32,
    /// More lines of the job's script, before xrun is started: `#SBATCH --constraint=a100`, `module load cuda`.
    #[schemars(length(max = 100), inner(regex(pattern = "^[^\\x00-\\x08\\x0A-\\x1F\\x7F]+$")))]
    pub extra_lines: Vec<String>,
}

/// Whether a text, such as a `slurm.toml` that somebody edited, has only keys and values that `[launcher.slurm]` may have;
/// says what is wrong first.
pub fn check_slurm(text: &str) -> Result<(), String> {
    let source = Arc::new(Source::new("slurm.toml", text));
    let mut entries = tree::parse(&source).map_err(|problem| problem.to_string())?;
    let Some(part) = shape::at(schema::shared(), "launcher.slurm") else { return Ok(()) };
    match walk::walk(&mut entries, part).problems.iter().next() {
        Some(problem) => Err(problem.to_string()),
        None => Ok(()),
    }
}

impl Default for Slurm {
    fn default() -> Self {
        Self {
            partition: None,
            account: None,
            time: None,
            memory: None,
            gpus: None,
            cpus: None,
            array_limit: None,
            array_size: None,
            grace: Span(std::time::Duration::from_secs(60)),
            requeue: 3,
            extra_lines: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_edited_file_asks_for_is_held_to_the_schema() {
        assert_eq!(check_slurm("partition = \"gpu,long\"\nextra_lines = [\"module load\\tcuda\"]\n"), Ok(()));
        for text in [
            "partition = \"x\\n#SBATCH --uid=0\\ntouch pwn\"\n",
            "account = \"a b\"\n",
            "cpus = 0\n",
            "extra_lines = [\"a\\u0000b\"]\n",
            "extra_lines = [\"a\\u000Bb\"]\n",
            "extra_lines = [\"a\\nb\"]\n",
            "shell = \"/bin/sh\"\n",
            "partition = ",
        ] {
            let message = check_slurm(text).unwrap_err();
            assert!(message.contains("slurm.toml:1:"), "{text}: {message}");
        }
    }
}
