//! What do the kernel, the container and the driver say? Bytes, or `None` where they do not tell.

use std::fs;

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;

use super::cgroup::{Cgroup, share_of_pressure};
use super::gpus;
use xrun_core::device::machine::kibibytes;
use xrun_core::heap::HeapUse;
use xrun_results::format::{ContainerMemory, DriverMemory};

/// Resident bytes of this process. From `/proc/self/statm`: a few microseconds; the kernel counts in batches, so it
/// may be off by some hundred KiB.
pub fn resident() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_size())
}

fn page_size() -> u64 {
    // SAFETY: `sysconf` takes a number and gives one.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// The parts of resident memory, exact; from `/proc/self/smaps_rollup`, which walks the page tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentParts {
    /// Bytes that are backed by no file.
    pub anonymous: Option<u64>,
    /// Bytes that are backed by files.
    pub file: Option<u64>,
    /// Bytes that were swapped out.
    pub swap: Option<u64>,
}

/// The highest that resident memory of this process has been.
pub fn resident_peak() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// The parts of this process; all `None` where there is no `/proc`. Takes the longer the more memory is mapped.
pub fn resident_parts() -> ResidentParts {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let anonymous = kibibytes(&rollup, "Anonymous:");
    let file = kibibytes(&rollup, "Rss:").zip(anonymous).map(|(all, anonymous)| all.saturating_sub(anonymous));
    ResidentParts { anonymous, file, swap: kibibytes(&rollup, "Swap:") }
}

/// What the allocator adds to an allocation, in bytes, in the middle: a word before it, and what it is rounded up by.
const ALLOCATION_OVERHEAD: u64 = 16;

/// What others than this program have from the C library's allocator, which is below the heap that is counted: C
/// libraries. `None` where the C library does not tell.
pub fn libraries(heap: &HeapUse) -> Option<u64> {
    let in_use = malloc_in_use()?;
    Some(in_use.saturating_sub(heap.bytes + heap.allocations * ALLOCATION_OVERHEAD))
}

/// As `mallinfo2` of glibc 2.33 and newer counts it. Looked up by name, so that the program starts with older ones.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn malloc_in_use() -> Option<u64> {
    type Tell = unsafe extern "C" fn() -> libc::mallinfo2;
    // SAFETY: the name ends with a zero; the function has had this signature since it is there, and cannot fail.
    let told = unsafe {
        let function = libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr());
        if function.is_null() {
            return None;
        }
        std::mem::transmute::<*mut libc::c_void, Tell>(function)()
    };
    u64::try_from(told.uordblks + told.hblkhd).ok()
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn malloc_in_use() -> Option<u64> {
    None
}

/// Processes of the container that the kernel killed for want of memory, since there is the container.
pub fn oom_kills() -> Option<u64> {
    Cgroup::of_self()?.oom_kills()
}

/// The share of the last ten seconds in which something in the container waited for memory, in percent; of the whole
/// machine where the container has no such file.
pub fn pressure() -> Option<f64> {
    let of_machine = || share_of_pressure(&fs::read_to_string("/proc/pressure/memory").ok()?);
    Cgroup::of_self().and_then(|cgroup| cgroup.pressure()).or_else(of_machine)
}

/// The container's view: the memory cgroup of this process, version 2 or 1; `None` outside one.
pub fn container() -> Option<ContainerMemory> {
    Cgroup::of_self()?.memory()
}

/// The driver's view of one GPU. The library is loaded at run time; without it there is no such source.
pub struct Driver {
    nvml: Nvml,
    gpu: GpuInUse,
}

/// The GPU that a run uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuInUse {
    /// The driver's number of it.
    pub index: u32,
    /// Bytes that others had in use on it before this process opened it.
    pub used_before: Option<u64>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Driver({})", self.gpu.index)
    }
}

impl Driver {
    /// `None` where the management library (NVML) does not load, or does not know the GPU.
    pub fn open(gpu: GpuInUse) -> Option<Self> {
        let nvml = Nvml::init().ok()?;
        nvml.device_by_index(gpu.index).ok()?;
        Some(Self { nvml, gpu })
    }

    /// What is in use now; `None` where the driver does not tell.
    pub fn read(&self) -> Option<DriverMemory> {
        let device = self.nvml.device_by_index(self.gpu.index).ok()?;
        let memory = device.memory_info().ok()?;
        let own = std::process::id();
        // In a container the driver sees other process numbers; then it does not tell.
        let process = device.running_compute_processes().ok().and_then(|processes| {
            processes.iter().find(|process| process.pid == own).and_then(|process| match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            })
        });
        let before = self.gpu.used_before;
        let load = gpus::load(&device);
        Some(DriverMemory { process, device: memory.used, before, total: Some(memory.total), load })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn resident_memory_follows_what_is_touched() {
        const SIZE: u64 = 64 << 20;
        let before = resident().unwrap();
        let held = std::hint::black_box(vec![1u8; SIZE as usize]);
        let during = resident().unwrap();
        assert!(during > before + SIZE / 2, "{before} then {during} with {} held", held.len());
        assert!(resident_peak().unwrap() >= during / 2);
        assert!(resident_parts().anonymous.unwrap() > SIZE / 2);
    }
}
