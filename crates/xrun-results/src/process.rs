//! What is noted of a process at its start, so that it can be said later who killed it?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `process.json`: the newest process that wrote into the directory, and how often the kernel had killed for want of memory
/// when it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessNote {
    /// The version of this record's format.
    pub version: u32,
    /// As in `memory.jsonl`: 0 for the first, one more for each resume.
    pub segment: u32,
    /// The process's number, as it sees it itself.
    pub process: u32,
    /// The machine.
    pub host: String,
    /// Linux's name for this start of the machine; `null` elsewhere.
    pub boot: Option<String>,
    /// Seconds that the machine was up.
    pub up_seconds: Option<f64>,
    /// Processes of the whole machine that the kernel had killed for want of memory.
    pub machine_oom_kills: Option<u64>,
    /// Its memory cgroup, and those above it.
    pub groups: Vec<GroupNote>,
    /// The Slurm job that it was part of.
    pub slurm: Option<SlurmJob>,
}

/// A memory cgroup when the process began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupNote {
    /// Its folder in the file system of cgroups, absolute.
    pub folder: String,
    /// Of the folder: a group that was made anew has another.
    pub inode: u64,
    /// Processes in it that the kernel had killed for want of memory.
    pub oom_kills: u64,
}

/// The Slurm job that a process is part of, as its environment says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlurmJob {
    /// The job's own number, also of a task of an array.
    pub job: String,
    /// Of a task of an array: the array's number.
    pub array: Option<String>,
    /// Of a task of an array: which one it is.
    pub task: Option<String>,
    /// The machine's name in the cluster.
    pub node: Option<String>,
    /// The partition that it runs in.
    pub partition: Option<String>,
    /// The cluster's name.
    pub cluster: Option<String>,
    /// Bytes that the job was given on its node; absent where Slurm does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

impl SlurmJob {
    /// Of this process; `None` outside of Slurm.
    pub fn here() -> Option<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty() && value.len() <= 200);
        Some(Self {
            job: variable("SLURM_JOB_ID")?,
            array: variable("SLURM_ARRAY_JOB_ID"),
            task: variable("SLURM_ARRAY_TASK_ID"),
            node: variable("SLURMD_NODENAME"),
            partition: variable("SLURM_JOB_PARTITION"),
            cluster: variable("SLURM_CLUSTER_NAME"),
            // In mebibytes; 0 is all that the node has.
            memory: variable("SLURM_MEM_PER_NODE")
                .and_then(|text| text.parse::<u64>().ok())
                .filter(|mebibytes| *mebibytes > 0)
                .and_then(|mebibytes| mebibytes.checked_mul(1 << 20)),
        })
    }
}
