//! Conversion of `memory.jsonl` lines and planned owners to the types of `xrun-verdict`.

use std::collections::BTreeMap;

use xrun_verdict::{DeclaredOwner, Driver, Pool, Processes, Sample};

use crate::format::{MemoryLine, PlanFile};
use crate::watched;
use xrun_core::bounded::planned::MemoryKind;

/// Converts a line to a sample.
pub fn sample(line: &MemoryLine) -> Sample<'_> {
    let host = &line.host;
    let own = host.rss.unwrap_or(host.heap);
    Sample {
        segment: line.segment,
        step: line.step,
        milliseconds: line.time_us / 1000,
        heap: host.heap,
        heap_high: host.heap_high,
        rss: host.rss,
        anonymous: host.anonymous,
        libraries: host.libraries,
        pool: line.device.map(|device| Pool {
            in_use: device.in_use,
            reserved: device.reserved,
            allocations: device.allocations,
        }),
        driver: line.driver.map(|driver| Driver { process: driver.process, device: driver.device }),
        container: line.container.and_then(|container| container.anonymous),
        container_budget: line.container.and_then(|container| container.budget(own)),
        owners: Some(&line.owners),
        processes: line.processes.as_ref().map(|processes| command_processes(processes, host.file)),
    }
}

fn command_processes(processes: &watched::ProcessMemory, files: Option<u64>) -> Processes {
    let on_gpus = processes.groups.values().filter_map(|group| group.gpu);
    Processes {
        count: processes.process_count,
        threads: processes.threads,
        open_files: processes.open_files,
        files,
        on_gpus: on_gpus.reduce(|all, one| all + one),
    }
}

/// Declared caps of a plan's owners, by name.
pub fn declared(plan: &PlanFile) -> BTreeMap<String, DeclaredOwner> {
    let owners = plan.owners.iter().map(|owner| {
        let declared = DeclaredOwner { memory: verdict_place(owner.place), cap: owner.bytes, full: owner.full() };
        (owner.name.clone(), declared)
    });
    owners.collect()
}

fn verdict_place(place: MemoryKind) -> xrun_verdict::MemoryKind {
    match place {
        MemoryKind::Host => xrun_verdict::MemoryKind::Host,
        MemoryKind::Device => xrun_verdict::MemoryKind::Device,
    }
}
