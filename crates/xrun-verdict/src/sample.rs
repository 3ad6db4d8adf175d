//! The memory of a process at one moment.

use std::collections::BTreeMap;

/// The memory of a process at one moment, in bytes, as far as it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample<'a> {
    /// The number of the process; samples of another one are judged by themselves.
    pub segment: u32,
    /// Steps done.
    pub step: u64,
    /// Milliseconds since the process started: its place on [`Axis::Clock`](crate::Axis::Clock).
    pub milliseconds: u64,
    /// Heap in use. Of a command: memory of all its processes that is no file.
    pub heap: u64,
    /// The highest that `heap` has been since the sample before.
    pub heap_high: Option<u64>,
    /// Resident memory.
    pub resident: Option<u64>,
    /// Resident memory that is backed by no file.
    pub anonymous: Option<u64>,
    /// Memory of C libraries.
    pub libraries: Option<u64>,
    /// The pool of the device.
    pub pool: Option<Pool>,
    /// The device's memory by its driver.
    pub driver: Option<Driver>,
    /// Memory of the whole container that is backed by no file.
    pub container: Option<u64>,
    /// The most that the process may use of its container's limit.
    pub room: Option<u64>,
    /// Bytes of each owner.
    pub owners: Option<&'a BTreeMap<String, u64>>,
    /// The processes of a command; `None` of a process that measures itself.
    pub processes: Option<Processes>,
}

/// A device's memory pool, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Held by live tensors.
    pub in_use: u64,
    /// Taken from the driver.
    pub reserved: u64,
    /// Live allocations.
    pub allocations: u64,
}

/// A device's memory by its driver, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// Memory of this process; `None` where the driver does not tell.
    pub process: Option<u64>,
    /// Memory of all processes.
    pub device: u64,
}

/// The processes of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    /// Their number.
    pub count: u64,
    /// Threads of all of them.
    pub threads: u64,
    /// Open files of all of them.
    pub open_files: Option<u64>,
    /// Bytes of files that they have resident.
    pub files: Option<u64>,
    /// Bytes that they hold on GPUs; `None` where they were never seen to hold any.
    pub on_gpus: Option<u64>,
}
