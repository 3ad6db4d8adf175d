//! Memory of a process at one moment.

use std::collections::BTreeMap;

/// Memory of a process at one moment, in bytes; `None` where it was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample<'a> {
    /// Index of the process within the run; each process is judged separately.
    pub segment: u32,
    /// Steps done.
    pub step: u64,
    /// Milliseconds since the process started: its position on [`Axis::Clock`](crate::Axis::Clock).
    pub milliseconds: u64,
    /// Heap in use, or for a command the memory footprint of all its processes, without the file cache.
    pub heap: u64,
    /// Highest `heap` since the previous sample.
    pub heap_high: Option<u64>,
    /// RSS.
    pub rss: Option<u64>,
    /// Part of RSS that is not backed by a file.
    pub anonymous: Option<u64>,
    /// Memory allocated by C libraries.
    pub libraries: Option<u64>,
    /// Memory pool of the device.
    pub pool: Option<Pool>,
    /// Device memory as the driver reports it.
    pub driver: Option<Driver>,
    /// Memory of the whole container that is not backed by a file.
    pub container: Option<u64>,
    /// Bytes of the container's limit that are available to the process.
    pub container_budget: Option<u64>,
    /// Bytes held by each owner.
    pub owners: Option<&'a BTreeMap<String, u64>>,
    /// Processes of a command; `None` for a process that measures itself.
    pub processes: Option<Processes>,
}

/// Memory pool of a device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Bytes held by live tensors.
    pub in_use: u64,
    /// Bytes reserved from the driver.
    pub reserved: u64,
    /// Number of live allocations.
    pub allocations: u64,
}

/// Device memory as the driver reports it, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// Memory of this process; `None` where the driver does not report it.
    pub process: Option<u64>,
    /// Memory of all processes.
    pub device: u64,
}

/// Processes of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    /// Number of processes.
    pub count: u64,
    /// Threads of all processes.
    pub threads: u64,
    /// Open files of all processes.
    pub open_files: Option<u64>,
    /// Resident bytes of mapped files.
    pub files: Option<u64>,
    /// Bytes held on GPUs; `None` where no GPU memory was ever used.
    pub on_gpus: Option<u64>,
}
