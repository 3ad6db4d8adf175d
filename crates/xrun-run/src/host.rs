//! Facts about this machine.

use crate::memory::sources;
use xrun_core::device::machine;
use xrun_results::format::Host;

fn read_trimmed(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Host name of this machine.
pub fn name() -> String {
    read_trimmed("/proc/sys/kernel/hostname")
}

/// Record of this machine: name, system, processor, memory and its limit.
pub fn host() -> Host {
    Host {
        name: name(),
        system: format!("{} {}", std::env::consts::OS, read_trimmed("/proc/sys/kernel/osrelease")),
        processor: xrun_core::device::processor(),
        instruction_sets: xrun_core::device::instruction_sets(),
        cores: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
        memory: machine::memory().map(|(all, _)| all),
        memory_limit: sources::container().and_then(|container| container.limit),
    }
}
