//! What do processes hold on NVIDIA GPUs? As their driver tells it, whatever library they use.

use std::collections::BTreeMap;

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;

/// More GPUs are not looked at.
const GPUS_MAX: u32 = 32;

/// All GPUs of this machine. The driver's library is loaded at run time.
pub struct Gpus {
    nvml: Nvml,
    count: u32,
}

/// One GPU at one moment, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub index: u32,
    pub total: u64,
    /// By all processes.
    pub used: u64,
    /// By process. In a container the driver may see other process numbers, and on some cards it tells of none.
    pub processes: BTreeMap<u32, u64>,
}

impl std::fmt::Debug for Gpus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Gpus({})", self.count)
    }
}

impl Gpus {
    /// `None` where there is no driver, or no GPU.
    pub fn open() -> Option<Self> {
        let nvml = Nvml::init().ok()?;
        let count = nvml.device_count().ok()?.min(GPUS_MAX);
        (count > 0).then_some(Self { nvml, count })
    }

    /// Those that answer.
    pub fn read(&self) -> Vec<Held> {
        (0..self.count).filter_map(|index| self.one(index)).collect()
    }

    fn one(&self, index: u32) -> Option<Held> {
        let device = self.nvml.device_by_index(index).ok()?;
        let memory = device.memory_info().ok()?;
        let mut processes = BTreeMap::new();
        for process in device.running_compute_processes().unwrap_or_default() {
            if let UsedGpuMemory::Used(bytes) = process.used_gpu_memory {
                *processes.entry(process.pid).or_default() += bytes;
            }
        }
        Some(Held { index, total: memory.total, used: memory.used, processes })
    }
}
