//! `[launcher]`: clusters that run a sweep.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Span};

crate::settings::kinds::kinds! {
    /// Resources to request from a cluster for `xrun sweep --launcher`. Ignored without `--launcher`.
    pub enum LauncherSettings {
        "slurm" => Slurm(Slurm),
    }
}

/// Slurm, for `xrun sweep --launcher slurm`: a sweep as job arrays, a search as single jobs. Resources are per run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Slurm {
    /// Partition, or several separated by commas (`--partition`). Default: the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._,-]*$"))]
    pub partition: Option<String>,
    /// Account that is charged (`--account`). Default: the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"))]
    pub account: Option<String>,
    /// Time limit of a job (`--time`). A run that takes longer saves a checkpoint, and is resubmitted and continued. Default:
    /// the partition's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
    /// Memory of a run (`--mem`), the same for all. Default: from probes of the trials, in at most four sizes, plus a margin of
    /// 25 %, at least 256 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// GPUs of a run (`--gres=gpu:N`); 0 requests none. Default: 1 if `experiment.device` is `cuda` or `vulkan`, or is `auto`
    /// and this machine has a GPU; otherwise 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 64))]
    pub gpus: Option<u32>,
    /// CPU cores of a run (`--cpus-per-task`). Default: the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4096))]
    pub cpus: Option<u32>,
    /// Maximum number of concurrent runs (`%N` of the array); in a search, of running and queued jobs. Default: no limit; 4 in
    /// a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub array_limit: Option<u32>,
    /// Maximum number of tasks in a job array; a larger sweep uses several arrays, sequential if `array_limit` is set. Default:
    /// MaxArraySize of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_000_001))]
    pub array_size: Option<u32>,
    /// Time before the end of `time`, and before a pre-emption where the cluster supports it, at which a run is signalled to
    /// save a checkpoint and stop (`--signal=B:TERM@`).
    pub grace: Span,
    /// Maximum number of resubmissions of a run that was pre-empted, killed or out of time, while xrun watches the sweep.
    #[schemars(range(min = 0, max = 1000))]
    pub requeue: u32,
    /// Extra lines of the job script, before the start of xrun: `#SBATCH --constraint=a100`, `module load cuda`.
    #[schemars(length(max = 100), inner(regex(pattern = "^[^\\x00-\\x08\\x0A-\\x1F\\x7F]+$")))]
    pub extra_lines: Vec<String>,
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
