//! What is recorded of a command that `xrun watch` ran, besides what every run records?

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sample::GpuLoad;

/// In `manifest.json`: how a command was watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Watched {
    /// The time between two samples, at least, in milliseconds.
    pub every_ms: u64,
    /// `--host-memory`, in bytes.
    pub host_memory: Option<u64>,
    /// `--device-memory`, in bytes.
    pub device_memory: Option<u64>,
    /// The share of a limit at which the command is stopped.
    pub at: f64,
    /// The signal that is sent first.
    pub signal: String,
    /// Seconds that the command then has.
    pub grace_seconds: f64,
    /// `--time-limit` in seconds; `null` where there is none.
    pub time_limit_seconds: Option<f64>,
    /// Where its steps come from, for people; `null` where it is judged by the clock.
    pub steps: Option<String>,
    /// What could not be measured here, and why; for people.
    pub not_measured: Vec<String>,
    /// The command as it was run, word by word.
    pub command: Vec<String>,
    /// Whether it says how it goes on after a stop.
    pub resumes: bool,
}

impl Default for Watched {
    /// What a trace without its manifest is judged by.
    fn default() -> Self {
        Self {
            every_ms: 1000,
            host_memory: None,
            device_memory: None,
            at: 0.95,
            signal: "TERM".into(),
            grace_seconds: 30.0,
            time_limit_seconds: None,
            steps: None,
            not_measured: Vec::new(),
            command: Vec::new(),
            resumes: false,
        }
    }
}

/// In a line of `memory.jsonl`: the processes of a command. Each page counts once, however many processes share it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Processes {
    /// How many there are.
    pub count: u64,
    /// Threads of all of them.
    pub threads: u64,
    /// `null` where the system does not tell.
    pub open_files: Option<u64>,
    /// Processes whose pages could not be told apart: their shared pages count once for each of them.
    pub inexact: u64,
    /// By role: `main`, `workers`, the name of a program, `others`.
    pub groups: BTreeMap<String, Group>,
    /// Bytes of files in `/dev/shm` that this user made since the start and that no process has mapped; `null` where
    /// there is no such folder.
    pub unmapped_shared: Option<u64>,
    /// The share of the last ten seconds in which something waited for memory, in percent; `null` where the kernel does
    /// not tell.
    pub pressure: Option<f64>,
    /// Processes of the command's own cgroup, or else of the container, that the kernel has killed for want of memory, ever;
    /// `null` where it does not tell.
    pub oom_kills: Option<u64>,
    /// Bytes that the kernel charges to the command's own cgroup: memory of its processes, pages of files that they read, the
    /// kernel's own; `null` where it has none.
    pub charged: Option<u64>,
    /// NVIDIA GPUs; left out where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
}

/// An NVIDIA GPU, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gpu {
    /// The driver's number of it.
    pub index: u32,
    /// All memory that it has.
    pub total: u64,
    /// By all processes of the machine.
    pub used: u64,
    /// By processes of the command; 0 where the driver does not tell which process holds what.
    pub held: u64,
    /// What it does; absent where the driver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<GpuLoad>,
}

/// Processes of one role, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// How many there are.
    pub processes: u64,
    /// What they have resident, as each counts it: shared pages count once for each process.
    pub resident: u64,
    /// Pages that are theirs alone, and those that were copied nowhere since a process of theirs was forked; swapped
    /// pages among them.
    pub private: u64,
    /// Their share of memory that several processes write to: shared memory, and files in `/dev/shm`.
    pub shared: u64,
    /// Their share of pages of files, which the kernel can drop.
    pub file: u64,
    /// Of `private`, swapped out.
    pub swap: u64,
    /// What they hold on GPUs; `null` where they were never seen to hold any.
    pub gpu: Option<u64>,
}
