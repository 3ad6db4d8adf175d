//! Names of the series of a verdict.

use crate::thresholds::{COUNT, Thresholds};

/// Prefix of the names of owners' series.
pub const OWNER_PREFIX: &str = "owner:";
/// Memory footprint of all processes of a command together: private and shared pages, without the file cache.
pub const FOOTPRINT: &str = "held";
/// GPU memory of all processes of a command together.
pub const GPU_FOOTPRINT: &str = "held_on_gpus";
/// Owner of shared memory that no process has mapped: files in `/dev/shm` and files without a name.
pub const UNMAPPED_SHM: &str = "/dev/shm";
/// Suffix of an owner that is a group of processes: their private memory.
pub const PRIVATE_SUFFIX: &str = "/private";
/// Suffix of an owner that is a group of processes: their shared memory.
pub const SHARED_SUFFIX: &str = "/shared";
/// Suffix of an owner that is a group of processes: their GPU memory.
pub const GPU_SUFFIX: &str = "/GPU";

/// Suffix of an owner that the command reports itself: its GPU memory.
pub const REPORTED_GPU_SUFFIX: &str = " on GPU";

/// Suffix of a series of the peaks above a level floor.
pub const PEAKS_SUFFIX: &str = ":peaks";

/// Suffix of a column of a table that is summed over all processes.
pub const ALL_PROCESSES: &str = ", all processes";

/// RSS beyond the heap in use: free pages of the allocator, memory of C libraries.
pub const RSS_BEYOND: &str = "rss_beyond_heap";
/// Memory allocated by C libraries.
pub const LIBRARIES: &str = "libraries";
/// Device memory that the pool has reserved beyond what tensors use.
pub const RESERVED_BEYOND: &str = "reserved_beyond_in_use";
/// Device memory that the driver counts beyond the pool: contexts, and pools of other threads.
pub const DRIVER_BEYOND: &str = "driver_beyond_reserved";
/// Series that grow with memory in use or hold what is beyond it: their growth alone is not a leak.
pub(crate) const TOTALS: &[&str] = &[
    "files",
    "open_files",
    "processes",
    "threads",
    "rss",
    "anonymous",
    LIBRARIES,
    "container",
    "device_reserved",
    "driver_process",
    "driver_device",
    RSS_BEYOND,
    RESERVED_BEYOND,
    DRIVER_BEYOND,
];
/// Prefix of internal series: a total without the buffers whose growth will end.
pub(crate) const UNCAPPED: &str = "rest:";

/// Returns whether a series is that of an owner of GPU memory.
pub(crate) fn is_on_gpus(name: &str) -> bool {
    name.starts_with(OWNER_PREFIX) && (name.ends_with(GPU_SUFFIX) || name.ends_with(REPORTED_GPU_SUFFIX))
}

/// Returns whether an owner of a command is a group of its processes, or one that the command reports itself.
pub fn is_group(owner: &str) -> bool {
    owner.contains('/')
}

/// Returns whether the owner of a series may be part of a total; for a command the name says where it lives.
pub(crate) fn lives_in(total: &str, owner: &str) -> bool {
    match total {
        FOOTPRINT => !is_on_gpus(owner),
        GPU_FOOTPRINT => is_on_gpus(owner),
        _ => true,
    }
}

/// Returns the unit of a series.
pub(crate) fn unit(name: &str, thresholds: Thresholds) -> &'static str {
    match name {
        "open_files" => "files",
        "processes" => "processes",
        "threads" => "threads",
        _ if thresholds == COUNT => "allocations",
        _ => "bytes",
    }
}
