//! `[launcher]`: clusters that run a sweep.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::settings;
use crate::units::{Bytes, Span};

crate::settings::kinds::kinds! {
    /// Resources to request from a cluster for `xrun sweep --launcher`. Ignored without `--launcher`.
    pub enum LauncherSettings {
        "slurm" => Slurm(Slurm),
    }
}

settings! {
    /// Slurm, for `xrun sweep --launcher slurm`: a sweep as job arrays, a search as single jobs. Resources are per run.
    pub struct Slurm {
        /// Partition, or several separated by commas (`--partition`). Default: the cluster's.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._,-]*$"))]
        pub partition: Option<String> = None,
        /// Account that is charged (`--account`). Default: the cluster's.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"))]
        pub account: Option<String> = None,
        /// Time limit of a job (`--time`), also as Slurm has it: `"04:00:00"`. A run that takes longer saves a checkpoint, and is
        /// resubmitted and continued. Default: the partition's.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub time: Option<Span> = None,
        /// Memory of a run (`--mem`), the same for all. Default: from probes of the trials, in at most four sizes, plus a margin of
        /// 25 %, at least 256 MiB.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub memory: Option<Bytes> = None,
        /// GPUs of a run (`--gres=gpu:N`), or their type and number, as Slurm has it: `"a100:1"`; 0 requests none. Default:
        /// 1 if `experiment.device` is `cuda` or `vulkan`, or is `auto` and this machine has a GPU; otherwise 0.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub gpus: Option<Gpus> = None,
        /// CPU cores of a run (`--cpus-per-task`). Default: the cluster's.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 4096))]
        pub cpus: Option<u32> = None,
        /// Maximum number of concurrent runs (`%N` of the array); in a search, of running and queued jobs. Default: no limit; 4 in
        /// a search.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 10_000))]
        pub array_limit: Option<u32> = None,
        /// Maximum number of tasks in a job array; a larger sweep uses several arrays, sequential if `array_limit` is set. Default:
        /// MaxArraySize of the cluster.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 4_000_001))]
        pub array_size: Option<u32> = None,
        /// Time before the end of `time`, and before a pre-emption where the cluster supports it, at which a run is signalled to
        /// save a checkpoint and stop (`--signal=B:TERM@`).
        pub grace: Span = Span(std::time::Duration::from_secs(60)),
        /// Maximum number of resubmissions of a run that was pre-empted, killed or out of time, while xrun watches the sweep.
        #[schemars(range(min = 0, max = 1000))]
        pub requeue: u32 = 3,
        /// Extra lines of the job script, before the start of xrun: `#SBATCH --constraint=a100`, `module load cuda`.
        #[schemars(length(max = 100), inner(regex(pattern = "^[^\\x00-\\x08\\x0A-\\x1F\\x7F]+$")))]
        pub extra_lines: Vec<String> = Vec::new(),
    }
}

/// Number of GPUs, or as Slurm writes it, type and number. The schema bounds both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Gpus {
    /// Number of GPUs.
    Count(u32),
    /// Such as `a100:1`.
    Typed(String),
}

impl Gpus {
    /// Number of GPUs.
    pub fn count(&self) -> u32 {
        match self {
            Self::Count(count) => *count,
            Self::Typed(text) => text.rsplit(':').next().and_then(|count| count.parse().ok()).unwrap_or_default(),
        }
    }
}

/// `a100:1`, or `1`.
impl fmt::Display for Gpus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(formatter, "{count}"),
            Self::Typed(text) => formatter.write_str(text),
        }
    }
}

impl JsonSchema for Gpus {
    fn schema_name() -> Cow<'static, str> {
        "Gpus".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "integer", "minimum": 0, "maximum": 64 },
                { "type": "string", "pattern": "^([A-Za-z0-9][A-Za-z0-9._-]*:)?[0-9]{1,2}$" }
            ]
        })
    }
}
