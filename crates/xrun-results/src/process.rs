//! Record of a process at its start, from which its killer can be identified later.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `process.json`: the newest process that wrote into the directory, with the counts of OOM kills when it started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessRecord {
    /// The version of this record's format.
    pub version: u32,
    /// Number of the process in this run, as in `memory.jsonl`: 0 for the first, one more for each resume.
    pub segment: u32,
    /// PID in the process's own namespace.
    pub process: u32,
    /// Host name.
    pub host: String,
    /// Linux boot id; `null` elsewhere.
    pub boot: Option<String>,
    /// Uptime of the machine in seconds.
    pub up_seconds: Option<f64>,
    /// OOM kills on the whole machine.
    pub machine_oom_kills: Option<u64>,
    /// Memory cgroup of the process and its ancestors.
    pub groups: Vec<CgroupRecord>,
    /// Slurm job of the process.
    pub slurm: Option<SlurmJob>,
}

/// State of a memory cgroup when the process started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupRecord {
    /// Absolute path of its directory in cgroupfs.
    pub directory: String,
    /// Inode of the directory; a recreated cgroup has another one.
    pub inode: u64,
    /// OOM kills in the cgroup.
    pub oom_kills: u64,
}

/// Slurm job of a process, from its environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlurmJob {
    /// Job id, also of an array task.
    pub job: String,
    /// Id of the job array; only for an array task.
    pub array: Option<String>,
    /// Index in the job array; only for an array task.
    pub task: Option<String>,
    /// Name of the node in the cluster.
    pub node: Option<String>,
    /// Name of the partition.
    pub partition: Option<String>,
    /// Name of the cluster.
    pub cluster: Option<String>,
    /// Memory of the job on its node in bytes; absent if Slurm does not state it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

impl SlurmJob {
    /// Job of this process; `None` outside Slurm.
    pub fn from_environment() -> Option<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty() && value.len() <= 200);
        Some(Self {
            job: variable("SLURM_JOB_ID")?,
            array: variable("SLURM_ARRAY_JOB_ID"),
            task: variable("SLURM_ARRAY_TASK_ID"),
            node: variable("SLURMD_NODENAME"),
            partition: variable("SLURM_JOB_PARTITION"),
            cluster: variable("SLURM_CLUSTER_NAME"),
            // In MiB; 0 means all memory of the node.
            memory: variable("SLURM_MEM_PER_NODE")
                .and_then(|text| text.parse::<u64>().ok())
                .filter(|mebibytes| *mebibytes > 0)
                .and_then(|mebibytes| mebibytes.checked_mul(1 << 20)),
        })
    }
}
