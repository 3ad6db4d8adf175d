//! The names of the series that a verdict is of.

use crate::judge::{COUNT, Scale};

/// The beginning of the names of owners' series.
pub const OWNER: &str = "owner:";
/// Memory of all processes of a command together that is no file.
pub const HELD: &str = "held";
/// Memory of GPUs of all processes of a command together.
pub const ON_GPUS: &str = "held_on_gpus";
/// Files in `/dev/shm` that no process has mapped: an owner of a command's memory.
pub const UNMAPPED: &str = "/dev/shm";
/// The end of the name of an owner that is a group of processes: memory of their own.
pub const PRIVATE: &str = "/private";
/// The same, of memory that they share.
pub const SHARED: &str = "/shared";
/// The same, of memory of GPUs.
pub const GPU: &str = "/GPU";

/// Resident memory that is no heap in use: pages of free memory, memory of C libraries.
pub const RESIDENT_BEYOND: &str = "resident_beyond_heap";
/// Memory of C libraries.
pub const LIBRARIES: &str = "libraries";
/// Memory that a device's pool has reserved and that is not in use: pages without a tensor.
pub const RESERVED_BEYOND: &str = "reserved_beyond_in_use";
/// Memory that the driver counts and the pool has not reserved: contexts, and pools of other threads.
pub const DRIVER_BEYOND: &str = "driver_beyond_reserved";
/// Totals that grow with what is in use, and what is beyond it.
pub(crate) const KEPT: &[&str] = &[
    "files",
    "open_files",
    "processes",
    "threads",
    "resident",
    "anonymous",
    LIBRARIES,
    "container",
    "device_reserved",
    "driver_process",
    "driver_device",
    RESIDENT_BEYOND,
    RESERVED_BEYOND,
    DRIVER_BEYOND,
];
/// The beginning of the names of series that hold a total less the buffers that have a cap. They are not shown.
pub(crate) const REST: &str = "rest:";

/// Returns whether it is the series of an owner of memory on GPUs.
pub(crate) fn is_on_gpus(name: &str) -> bool {
    name.starts_with(OWNER) && name.ends_with(GPU)
}

/// Returns whether the owner of a series may live in the memory of a total: of a command the name says where.
pub(crate) fn lives_in(total: &str, owner: &str) -> bool {
    match total {
        HELD => !is_on_gpus(owner),
        ON_GPUS => is_on_gpus(owner),
        _ => true,
    }
}

/// Returns the unit of a series.
pub(crate) fn unit(name: &str, scale: Scale) -> &'static str {
    match name {
        "open_files" => "files",
        "processes" => "processes",
        "threads" => "threads",
        _ if scale == COUNT => "allocations",
        _ => "bytes",
    }
}
