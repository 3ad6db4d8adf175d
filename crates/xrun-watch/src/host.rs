//! The machine that a process runs on.

use crate::memory::sources;
use xrun_core::device::machine;
use xrun_results::format::Host;

fn line_of(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// The name of this machine.
pub fn name() -> String {
    line_of("/proc/sys/kernel/hostname")
}

/// This machine.
pub fn host() -> Host {
    let text = line_of;
    Host {
        name: name(),
        system: format!("{} {}", std::env::consts::OS, text("/proc/sys/kernel/osrelease")),
        processor: xrun_core::device::processor(),
        instruction_sets: xrun_core::device::instruction_sets(),
        cores: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
        memory: machine::memory().map(|(all, _)| all),
        memory_limit: sources::container().and_then(|container| container.limit),
    }
}
