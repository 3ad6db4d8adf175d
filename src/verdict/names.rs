//! What are the series called that a verdict is of?

/// What is kept and not in use: pages of free memory, memory of C libraries, pages of the pool without a tensor, contexts and
/// pools of other threads.
pub const RESIDENT_BEYOND: &str = "resident_beyond_heap";
/// What C libraries hold.
pub const LIBRARIES: &str = "libraries";
pub const RESERVED_BEYOND: &str = "reserved_beyond_in_use";
pub const DRIVER_BEYOND: &str = "driver_beyond_reserved";
/// Totals that grow with what is in use, and what is beyond it.
pub(super) const KEPT: &[&str] = &[
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
/// What the names of series begin with that hold a total less the buffers that have a cap. They are not shown.
pub(super) const REST: &str = "rest:";
