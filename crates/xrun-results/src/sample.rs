//! What is a line of `memory.jsonl`?

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use xrun_core::task::DeviceMemory;

use super::watched::Processes;

/// A line of `memory.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLine {
    /// The version of this record's format.
    pub version: u32,
    /// Counts the processes that wrote into this directory: 0, and one more for each resume.
    pub segment: u32,
    /// Microseconds since the process started.
    pub time_us: u64,
    /// Optimiser steps done.
    pub step: u64,
    /// The epoch of that step, from 1; 0 before the first step.
    pub epoch: u64,
    /// Where in the loop it was taken.
    pub point: Point,
    /// What the process holds, as it and the system count it.
    pub host: HostMemory,
    /// `null` where the device has no pool to ask.
    pub device: Option<DeviceMemory>,
    /// What the driver says; only at the slower cadence.
    pub driver: Option<DriverMemory>,
    /// What the container says; only at the slower cadence.
    pub container: Option<ContainerMemory>,
    /// Percent of the last ten seconds in which something in the container, or else on the machine, waited for memory (PSI,
    /// `some avg10`); only at the slower cadence, and absent where the kernel does not tell. Of a watched command it is in
    /// `processes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<f64>,
    /// Bytes of each owner in the ledger.
    pub owners: BTreeMap<String, u64>,
    /// Bytes that a cleanup gave back; only at `after_cleanup`.
    pub freed: Option<u64>,
    /// How long since the last sample of this process the parts of the loop took, in microseconds.
    pub phases_us: BTreeMap<String, u64>,
    /// What this sample cost.
    pub cost_us: u64,
    /// Of a command that `xrun watch` ran: its processes; absent of an experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<Processes>,
}

/// Where in the loop a sample was taken. All are rest points: the step's tensors are dropped and the device is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// Before the first step of the process.
    Start,
    /// After a step that was sampled.
    Step,
    /// Before a validation.
    BeforeValidation,
    /// After a validation.
    AfterValidation,
    /// Before memory is given back.
    BeforeCleanup,
    /// After memory was given back.
    AfterCleanup,
    /// After a checkpoint was written.
    Checkpoint,
    /// At the end of an epoch.
    Epoch,
    /// When the loop has ended.
    End,
}

/// The process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostMemory {
    /// Heap in use: what the program asked for and has not given back (a counting allocator). Of a watched command: what
    /// its processes hold that is no file, each page counted once.
    pub heap: u64,
    /// The highest that `heap` has been.
    pub heap_peak: u64,
    /// The highest that `heap` has been since the sample before: what the step, the validation or the checkpoint
    /// between them needed.
    pub heap_high: Option<u64>,
    /// Live heap allocations.
    pub heap_allocations: u64,
    /// Resident memory.
    pub resident: Option<u64>,
    /// The highest that `resident` has been, by the kernel's count (`VmHWM`).
    pub resident_peak: Option<u64>,
    /// Of it, not backed by files; only at the slower cadence.
    pub anonymous: Option<u64>,
    /// Of it, backed by files; only at the slower cadence.
    pub file: Option<u64>,
    /// Swapped out; only at the slower cadence.
    pub swap: Option<u64>,
    /// What C libraries have from `malloc`, such as LLVM, which makes CUDA's kernels; only
    /// on a GPU, at the slower cadence, where the C library tells (glibc 2.33). To some hundred KiB.
    pub libraries: Option<u64>,
}

/// The driver's view (NVML).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriverMemory {
    /// Of this process; `null` where the driver does not tell (containers).
    pub process: Option<u64>,
    /// Of the whole device, other people's processes included.
    pub device: u64,
    /// Of the whole device, before this process opened it.
    pub before: Option<u64>,
    /// All that the device has.
    pub total: Option<u64>,
    /// What the device does; absent where the driver does not tell. Of a watched command: the mean and the sum over the GPUs
    /// that its processes hold memory on, or over all where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<GpuLoad>,
}

/// How busy a GPU is, as its driver (NVML) tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuLoad {
    /// Percent of the driver's last period, a sixth of a second to a second, in which a kernel of anybody ran. One that uses a
    /// small part of the GPU counts as one that uses all of it.
    pub utilisation_percent: Option<u32>,
    /// What the board takes now, in milliwatts.
    pub power_milliwatts: Option<u32>,
}

impl GpuLoad {
    /// `None` where nothing is known.
    pub fn of(utilisation_percent: Option<u32>, power_milliwatts: Option<u32>) -> Option<Self> {
        let known = utilisation_percent.is_some() || power_milliwatts.is_some();
        known.then_some(Self { utilisation_percent, power_milliwatts })
    }
}

/// The container's view (its memory cgroup).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerMemory {
    /// Bytes that the group has now, the page cache among them.
    pub current: u64,
    /// Bytes of it that are backed by no file.
    pub anonymous: Option<u64>,
    /// The highest that `current` has been; `null` where the kernel does not tell.
    pub peak: Option<u64>,
    /// The least limit of the group and of those above it; `null` where there is none.
    pub limit: Option<u64>,
}

/// Of a container's limit, what a run may use: pages of files and of the kernel count there, too.
const CONTAINER_SHARE: f64 = 0.95;

impl ContainerMemory {
    /// Bytes that a process with `own` bytes resident may use of the limit; `None` without one.
    pub fn room(&self, own: u64) -> Option<u64> {
        let others = self.anonymous.unwrap_or(self.current).saturating_sub(own);
        Some((self.limit?.saturating_sub(others) as f64 * CONTAINER_SHARE) as u64)
    }
}
