//! Memory samples: the lines of `memory.jsonl`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use xrun_core::task::DeviceMemory;

use super::watched::ProcessMemory;

/// A line of `memory.jsonl`: a memory sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLine {
    /// The version of this record's format.
    pub version: u32,
    /// Number of the process in this run: 0 for the first, one more for each resume.
    pub segment: u32,
    /// Microseconds since the process started.
    pub time_us: u64,
    /// Number of optimiser steps done.
    pub step: u64,
    /// The epoch of that step, from 1; 0 before the first step.
    pub epoch: u64,
    /// Sample point in the loop.
    pub point: SamplePoint,
    /// Memory of the process, by its own count and by the system's.
    pub host: HostMemory,
    /// Memory pool of the device; `null` if the device has none.
    pub device: Option<DeviceMemory>,
    /// Report of the driver; only at the slower cadence.
    pub driver: Option<DriverMemory>,
    /// Report of the container's cgroup; only at the slower cadence.
    pub container: Option<ContainerMemory>,
    /// Percentage of the last ten seconds in which a task of the container, or otherwise of the machine, waited for
    /// memory (PSI, `some avg10`); only at the slower cadence, absent if the kernel does not report it. For a watched
    /// command it is in `processes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<f64>,
    /// Bytes held by each owner in the ledger.
    pub owners: BTreeMap<String, u64>,
    /// Bytes released by a cleanup; only at `after_cleanup`.
    pub freed: Option<u64>,
    /// Time of each part of the loop since the previous sample of this process, in microseconds.
    pub phases_us: BTreeMap<String, u64>,
    /// Time that this sample took, in microseconds.
    pub cost_us: u64,
    /// Remaining seconds of the run, estimated with this sample; absent while unknown and for a watched command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<f64>,
    /// Processes of a command that `xrun watch` ran; absent for an experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<ProcessMemory>,
}

/// Peaks of memory over samples, in bytes; `None` if they were never measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Heap in use.
    pub heap: u64,
    /// RSS.
    pub rss: Option<u64>,
    /// Live tensors in the device's pool.
    pub device_in_use: Option<u64>,
    /// Memory that the pool reserved from the driver.
    pub device_reserved: Option<u64>,
}

impl Peaks {
    /// Adds a sample, in any order and of any process.
    pub fn add(&mut self, line: &MemoryLine) {
        self.heap = self.heap.max(line.host.heap_peak).max(line.host.heap);
        self.rss = self.rss.max(line.host.rss_peak).max(line.host.rss);
        self.device_in_use = self.device_in_use.max(line.device.map(|pool| pool.in_use));
        self.device_reserved = self.device_reserved.max(line.device.map(|pool| pool.reserved));
    }
}

/// Sample point in the loop. All are between steps: the step's tensors are dropped and the device is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SamplePoint {
    /// Before the first step of the process.
    Start,
    /// After a sampled step.
    #[default]
    Step,
    /// Before a validation.
    BeforeValidation,
    /// After a validation.
    AfterValidation,
    /// Before memory is released.
    BeforeCleanup,
    /// After memory was released.
    AfterCleanup,
    /// After a checkpoint was written.
    Checkpoint,
    /// At the end of an epoch.
    Epoch,
    /// After the loop.
    End,
    /// During a census of the agent of `xrun watch --explain`, which needs memory: it is not judged.
    Explained,
}

/// Memory of the process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostMemory {
    /// Heap in use: allocated and not yet freed (a counting allocator). For a watched command: memory footprint of
    /// its processes (private and shared pages, no file cache, each page once).
    pub heap: u64,
    /// Peak of `heap` since the start of the process.
    pub heap_peak: u64,
    /// Peak of `heap` since the previous sample: the demand of the step, validation or checkpoint between them.
    pub heap_high: Option<u64>,
    /// Number of live heap allocations.
    pub heap_allocations: u64,
    /// RSS (resident set size).
    pub rss: Option<u64>,
    /// Peak of `rss` by the kernel's count (`VmHWM`).
    pub rss_peak: Option<u64>,
    /// Part of `rss` that is not backed by files; only at the slower cadence.
    pub anonymous: Option<u64>,
    /// Part of `rss` that is backed by files; only at the slower cadence.
    pub file: Option<u64>,
    /// Swapped memory; only at the slower cadence.
    pub swap: Option<u64>,
    /// Memory that C libraries took from `malloc`, such as LLVM for CUDA kernels, to some hundred KiB; only on a GPU,
    /// at the slower cadence, with glibc 2.33 or later.
    pub libraries: Option<u64>,
}

/// Device memory as the driver (NVML) reports it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriverMemory {
    /// Memory of this process; `null` if the driver does not report it (containers).
    pub process: Option<u64>,
    /// Memory in use on the whole device, by all processes.
    pub device: u64,
    /// Memory in use on the whole device before this process opened it.
    pub before: Option<u64>,
    /// Total memory of the device.
    pub total: Option<u64>,
    /// Load of the device; absent if the driver does not report it. For a watched command: mean utilisation and total
    /// power of the GPUs on which its processes hold memory, or of all GPUs if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<GpuTelemetry>,
}

/// Load of a GPU as its driver (NVML) reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuTelemetry {
    /// Percentage of the driver's last period (a sixth of a second to a second) in which a kernel of any process ran,
    /// however little of the GPU it used.
    pub utilisation_percent: Option<u32>,
    /// Current power of the board in milliwatts.
    pub power_milliwatts: Option<u32>,
}

impl GpuTelemetry {
    /// Returns `None` if neither value is known.
    pub fn new(utilisation_percent: Option<u32>, power_milliwatts: Option<u32>) -> Option<Self> {
        let known = utilisation_percent.is_some() || power_milliwatts.is_some();
        known.then_some(Self { utilisation_percent, power_milliwatts })
    }
}

/// Memory of the container (its cgroup), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerMemory {
    /// Memory of the cgroup, including the page cache.
    pub current: u64,
    /// Part of `current` that is not backed by files.
    pub anonymous: Option<u64>,
    /// Part of `current` that the kernel uses itself, such as page tables and sockets; absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<u64>,
    /// Peak of `current`; `null` if the kernel does not report it.
    pub peak: Option<u64>,
    /// Smallest limit of the cgroup and its ancestors; `null` if there is none.
    pub limit: Option<u64>,
}

/// Fraction of a container's limit that a run may use: page cache counts towards the limit, too.
const CONTAINER_FRACTION: f64 = 0.95;

impl ContainerMemory {
    /// Memory budget in bytes of a process with an RSS of `own` bytes; `None` without a limit.
    pub fn budget(&self, own: u64) -> Option<u64> {
        let others = self.anonymous.unwrap_or(self.current).saturating_sub(own) + self.kernel.unwrap_or_default();
        Some((self.limit?.saturating_sub(others) as f64 * CONTAINER_FRACTION) as u64)
    }
}
