//! Memory of this process by the kernel, the container and the GPU driver, in bytes; `None` where they do not report it.

use std::fs;

use super::cgroup::{Cgroup, parse_pressure};
use super::gpus::{GpuSample, Gpus};
use xrun_core::device::machine::kibibytes;
use xrun_core::heap::HeapUse;
use xrun_results::format::{ContainerMemory, DriverMemory};

/// RSS of this process from `/proc/self/statm`. Takes a few microseconds; the kernel counts in batches and may be off by
/// some hundred KiB.
pub fn rss() -> Option<u64> {
    statm(1)
}

/// Part of the RSS that is backed by files or shared, from the same file.
pub fn rss_of_files() -> Option<u64> {
    statm(2)
}

fn statm(column: usize) -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(column)?.parse().ok()?;
    Some(pages * page_size())
}

fn page_size() -> u64 {
    // SAFETY: `sysconf` takes and returns numbers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// Exact parts of RSS from `/proc/self/smaps_rollup`, which walks the page tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RssParts {
    /// Bytes that are not backed by files.
    pub anonymous: Option<u64>,
    /// Bytes that are backed by files.
    pub file: Option<u64>,
    /// Bytes that were swapped out.
    pub swap: Option<u64>,
}

/// Peak RSS of this process.
pub fn rss_peak() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Parts of the RSS of this process; all `None` without `/proc`. Takes longer the more memory is mapped.
pub fn rss_parts() -> RssParts {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let anonymous = kibibytes(&rollup, "Anonymous:");
    let file = kibibytes(&rollup, "Rss:").zip(anonymous).map(|(all, anonymous)| all.saturating_sub(anonymous));
    RssParts { anonymous, file, swap: kibibytes(&rollup, "Swap:") }
}

/// Average overhead of an allocation in bytes: a header word, and rounding.
const ALLOCATION_OVERHEAD: u64 = 16;

/// Memory that C libraries have allocated: what the C library's allocator has in use beyond the counted heap. `None` where
/// it does not report that.
pub fn libraries(heap: &HeapUse) -> Option<u64> {
    let in_use = malloc_in_use()?;
    Some(in_use.saturating_sub(heap.bytes + heap.allocations * ALLOCATION_OVERHEAD))
}

/// Bytes in use by `mallinfo2` of glibc 2.33 and newer. Looked up by name, so that the program also starts with older
/// versions.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn malloc_in_use() -> Option<u64> {
    type MallInfo2 = unsafe extern "C" fn() -> libc::mallinfo2;
    // SAFETY: the name ends with a zero; the function has always had this signature and cannot fail.
    let info = unsafe {
        let function = libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr());
        if function.is_null() {
            return None;
        }
        std::mem::transmute::<*mut libc::c_void, MallInfo2>(function)()
    };
    u64::try_from(info.uordblks + info.hblkhd).ok()
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn malloc_in_use() -> Option<u64> {
    None
}

/// OOM kills in the container since it was created.
pub fn oom_kills() -> Option<u64> {
    Cgroup::of_self()?.oom_kills()
}

/// Percentage of the last ten seconds in which some tasks of the container stalled on memory (PSI); of the whole machine
/// where the container has no PSI file.
pub fn pressure() -> Option<f64> {
    let of_machine = || parse_pressure(&fs::read_to_string("/proc/pressure/memory").ok()?);
    Cgroup::of_self().and_then(|cgroup| cgroup.pressure()).or_else(of_machine)
}

/// Memory of the container: the memory cgroup of this process, version 2 or 1; `None` outside of one.
pub fn container() -> Option<ContainerMemory> {
    Cgroup::of_self()?.memory()
}

/// NVIDIA driver of one GPU.
#[derive(Debug)]
pub struct GpuDriver {
    gpus: Gpus,
    gpu: GpuInUse,
}

/// GPU that a run uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuInUse {
    /// Index of the GPU by the driver.
    pub index: u32,
    /// Bytes in use by other processes before this process opened it.
    pub used_before: Option<u64>,
}

impl GpuDriver {
    /// Opens the driver; `None` where NVML does not load, or does not know the GPU.
    pub fn open(gpu: GpuInUse) -> Option<Self> {
        let gpus = Gpus::open()?;
        gpus.device(gpu.index)?;
        Some(Self { gpus, gpu })
    }

    /// Memory in use now; `None` where the driver does not report it.
    pub fn read(&self) -> Option<DriverMemory> {
        let GpuSample { total, used, processes, load, .. } = self.gpus.read_one(self.gpu.index)?;
        // In a container the driver may see other process ids; then it is `None`.
        let process = processes.get(&std::process::id()).copied();
        Some(DriverMemory { process, device: used, before: self.gpu.used_before, total: Some(total), load })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn rss_follows_touched_pages() {
        const SIZE: u64 = 64 << 20;
        let before = rss().unwrap();
        let touched = std::hint::black_box(vec![1u8; SIZE as usize]);
        let during = rss().unwrap();
        assert!(during > before + SIZE / 2, "{before} then {during} with {} touched", touched.len());
        assert!(rss_peak().unwrap() >= during / 2);
        assert!(rss_parts().anonymous.unwrap() > SIZE / 2);
    }
}
