//! Records of a command that `xrun watch` ran, in addition to those of every run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sample::GpuTelemetry;

/// Settings of `xrun watch`, in `manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchSettings {
    /// Minimum time between two samples, in milliseconds.
    #[serde(rename = "every_ms")]
    pub sampling_period_ms: u64,
    /// `--host-memory` in bytes.
    pub host_memory: Option<u64>,
    /// `--device-memory` in bytes.
    pub device_memory: Option<u64>,
    /// Fraction of a limit at which the command is stopped.
    #[serde(rename = "at")]
    pub limit_fraction: f64,
    /// Signal that is sent first.
    pub signal: String,
    /// Seconds between that signal and SIGKILL.
    pub grace_seconds: f64,
    /// `--time-limit` in seconds; `null` if there is none.
    pub time_limit_seconds: Option<f64>,
    /// Source of the steps, for people; `null` if the command is judged by the clock.
    #[serde(rename = "steps")]
    pub step_source: Option<String>,
    /// Quantities that could not be measured, and why, for people.
    pub not_measured: Vec<String>,
    /// The command, one argument per entry.
    pub command: Vec<String>,
    /// `true` if a command to resume after a stop was given.
    #[serde(rename = "resumes")]
    pub can_resume: bool,
}

impl Default for WatchSettings {
    /// Settings for judging a trace without its manifest.
    fn default() -> Self {
        Self {
            sampling_period_ms: 1000,
            host_memory: None,
            device_memory: None,
            limit_fraction: 0.95,
            signal: "TERM".into(),
            grace_seconds: 30.0,
            time_limit_seconds: None,
            step_source: None,
            not_measured: Vec::new(),
            command: Vec::new(),
            can_resume: false,
        }
    }
}

/// Starts of the roles of ranks of a distributed training and of Ray's workers, before their number.
pub const RANK_PREFIXES: [&str; 2] = ["rank ", "Ray worker "];

/// Processes of a command, in a line of `memory.jsonl`. Each page counts once, however many processes share it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessMemory {
    /// Number of processes.
    #[serde(rename = "count")]
    pub process_count: u64,
    /// Number of threads of all processes.
    pub threads: u64,
    /// Number of open files; `null` if the system does not report it.
    pub open_files: Option<u64>,
    /// Number of processes whose pages could not be attributed: their shared pages count once for each of them.
    pub inexact: u64,
    /// Memory by role: `main`, `workers`, the name of a program, `others`.
    pub groups: BTreeMap<String, ProcessGroup>,
    /// Bytes of shared memory of the command that no process has mapped: files in `/dev/shm` and files without a name;
    /// `null` if it cannot be read.
    #[serde(rename = "unmapped_shared")]
    pub unmapped_shm: Option<u64>,
    /// Percentage of the last ten seconds in which a task waited for memory (PSI); `null` if the kernel does not
    /// report it.
    pub pressure: Option<f64>,
    /// OOM kills so far in the command's cgroup, or otherwise in the container; `null` if the kernel does not report
    /// it.
    pub oom_kills: Option<u64>,
    /// Bytes charged to the command's own cgroup: memory of its processes, page cache and kernel memory; `null` if it
    /// has none.
    pub charged: Option<u64>,
    /// Bytes that the agent of `xrun watch --explain` needs in a window and has left in a process, by owner; they are not judged.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agent: BTreeMap<String, u64>,
    /// NVIDIA GPUs; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuMemory>,
}

/// An NVIDIA GPU, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuMemory {
    /// Index in the driver.
    pub index: u32,
    /// Total memory.
    pub total: u64,
    /// Memory in use by all processes of the machine.
    pub used: u64,
    /// Memory in use by processes of the command; 0 if the driver does not report memory by process.
    #[serde(rename = "held")]
    pub used_by_command: u64,
    /// Load; absent if the driver does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<GpuTelemetry>,
}

/// Memory of the processes of one role, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessGroup {
    /// Number of processes.
    #[serde(rename = "processes")]
    pub process_count: u64,
    /// Sum of RSS: shared pages count once for each process.
    pub rss: u64,
    /// Private pages, including swapped ones and copy-on-write pages not yet copied since a fork.
    pub private: u64,
    /// Proportional part of memory that several processes write to: shared memory, and files in `/dev/shm`.
    pub shared: u64,
    /// Proportional part of file pages, which the kernel can drop.
    #[serde(rename = "file")]
    pub file_pages: u64,
    /// Part of `private` that is swapped out.
    pub swap: u64,
    /// Memory on GPUs; `null` if the processes were never seen to hold any.
    pub gpu: Option<u64>,
}
