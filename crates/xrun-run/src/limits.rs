//! Memory limits of a run, checked at every sample: those of the file, the container and the device. A run that reaches one
//! ends with a checkpoint instead of an OOM kill.

use crate::memory::sources;
use xrun_core::bounded::planned::MemoryKind;
use xrun_core::settings::sections::Limits;
use xrun_core::units::Bytes;
use xrun_results::format::{Demand, DriverMemory, MemoryLine};

/// Memory limits in bytes; `None` for one that is not set.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryLimits {
    host: Option<u64>,
    device: Option<u64>,
    /// Part of the container's limit that the memory of this process without files may have.
    container: Option<u64>,
    /// RSS that is backed by files, which the kernel takes back before it kills.
    file: u64,
    /// Highest `file`: under pressure it falls.
    file_peak: u64,
    /// Peak of the memory without files beyond that of the heap: stacks, fragments, libraries.
    beside_heap: u64,
}

/// Limit that is reached, or that the next step would exceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// Key that sets the limit; `None` for that of the container or the device.
    pub key: Option<&'static str>,
    /// Memory that it limits.
    pub place: MemoryKind,
    /// Limit in bytes.
    pub limit: u64,
    /// Bytes that are held, that the next step would hold, or that were held and requested.
    pub held: u64,
    /// Kind of detection.
    pub trigger: Trigger,
}

/// Kind of detection of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A sample exceeds it.
    Measured,
    /// The next step would exceed it.
    NextStep,
    /// Tasks wait for memory, in this percentage of the last ten seconds (PSI).
    Stalled(u32),
    /// The device refused an allocation in the middle of a step.
    Refused {
        /// Bytes of the refused page, where the backend reports them.
        requested: Option<u64>,
        /// Bytes that are free now, where the driver reports them.
        free: Option<u64>,
        /// Bytes of other processes, where the driver reports them and the page would fit without these processes.
        others: Option<u64>,
    },
}

impl LimitReached {
    /// Message such as "RSS is 2 GiB, above `limits.host_memory` = 1 GiB".
    pub fn message(&self) -> String {
        let (held, limit) = (Bytes(self.held), Bytes(self.limit));
        let what = match (self.place, self.trigger) {
            (MemoryKind::Device, _) => "device memory reserved",
            (MemoryKind::Host, Trigger::NextStep) => "memory",
            (MemoryKind::Host, _) => "RSS",
        };
        let bound = match (self.key, self.place) {
            (Some(key), _) => format!("`{key}` = {limit}"),
            (None, MemoryKind::Host) => format!("the container's limit of {limit}"),
            (None, MemoryKind::Device) => format!("the {limit} that other processes leave on the device"),
        };
        match self.trigger {
            Trigger::Refused { requested, free, others } => refusal_message(requested, free, others, self.limit),
            Trigger::Stalled(percent) => format!("tasks waited for memory in {percent} % of the last ten seconds"),
            Trigger::NextStep => format!("{what} would be {held} in the next step, above {bound}"),
            Trigger::Measured => format!("{what} is {held}, above {bound}"),
        }
    }

    /// Limit of a device that refused a page of `requested` bytes. `device` is its memory by the driver, `reserved` that of
    /// the pool at the newest sample.
    pub fn refused(requested: Option<u64>, device: Option<DriverMemory>, reserved: u64) -> Self {
        let limit = device.and_then(|device| device.total).unwrap_or(reserved);
        let held = limit.saturating_add(requested.unwrap_or_default());
        let free = device.and_then(|device| Some(device.total?.saturating_sub(device.device)));
        let others = device.and_then(|device| Some(device.device.saturating_sub(device.process?)));
        let would_fit = |others: &u64| *others > 0 && *others >= requested.unwrap_or_default();
        let trigger = Trigger::Refused { requested, free, others: others.filter(would_fit) };
        Self { key: None, place: MemoryKind::Device, limit, held, trigger }
    }

    /// Bytes above the limit.
    pub fn excess(&self) -> u64 {
        self.held.saturating_sub(self.limit)
    }
}

/// Message such as "the device is out of memory: an allocation of 3 GiB failed, 1 GiB of 80 GiB free".
fn refusal_message(requested: Option<u64>, free: Option<u64>, others: Option<u64>, all: u64) -> String {
    let page = requested.map(|bytes| format!("an allocation of {} failed", Bytes(bytes)));
    let free = free.map(|free| format!("{} of {} free", Bytes(free), Bytes(all)));
    let others = others.map(|bytes| format!("{} held by other processes (see `nvidia-smi`)", Bytes(bytes)));
    let parts: Vec<String> = page.into_iter().chain(free).chain(others).collect();
    match parts.is_empty() {
        true => "the device is out of memory".into(),
        false => format!("the device is out of memory: {}", parts.join(", ")),
    }
}

impl MemoryLimits {
    /// Limits of the file and the container.
    pub fn new(limits: &Limits) -> Self {
        Self {
            host: limits.host_memory.map(|limit| limit.0),
            device: limits.device_memory.map(|limit| limit.0),
            ..Self::default()
        }
    }

    /// Reads the limit of the container again, which may change while a run works: with the sample, or at once.
    pub fn refresh(&mut self, line: &MemoryLine, at_once: bool) {
        let Some(container) = line.container.or_else(|| at_once.then(sources::container).flatten()) else { return };
        self.file = sources::rss_of_files().unwrap_or_default();
        self.container = container.budget(line.host.rss.unwrap_or_default().saturating_sub(self.file));
        self.file_peak = self.file_peak.max(self.file);
        if let Some(peak) = line.host.rss_peak {
            self.beside_heap = peak.saturating_sub(self.file_peak).saturating_sub(line.host.heap_peak);
        }
    }

    /// Limit that a sample exceeds, or that the next step would exceed by the demand of the run so far and its `working` memory.
    pub fn reached(&self, line: &MemoryLine, demand: &Demand, working: u64) -> Option<LimitReached> {
        self.reached_at(1.0, line, demand, working)
    }

    /// As [`Self::reached`], of limits that are this fraction of what they are.
    pub fn reached_at(&self, fraction: f64, line: &MemoryLine, demand: &Demand, working: u64) -> Option<LimitReached> {
        let over = |key, place, trigger, limit: Option<u64>, held: Option<u64>| {
            let (limit, held) = limit.zip(held)?;
            (held as f64 > limit as f64 * fraction).then_some(LimitReached { key, place, limit, held, trigger })
        };
        let rss = line.host.rss;
        // The OOM killer strikes in the middle of a step, so the demand of the next step is checked before it starts. A
        // validation, which is rare, counts as a step.
        let next = rss.map(|rss| rss.saturating_sub(self.file).max(line.host.heap + working + self.beside_heap));
        let reserved = line.device.map(|pool| pool.reserved);
        over(Some("limits.host_memory"), MemoryKind::Host, Trigger::Measured, self.host, rss)
            .or_else(|| {
                over(Some("limits.device_memory"), MemoryKind::Device, Trigger::Measured, self.device, reserved)
            })
            .or_else(|| over(None, MemoryKind::Host, Trigger::NextStep, self.container, next))
            .or_else(|| {
                // The pool keeps its pages until a cleanup: between cleanups the next step needs no new ones, and the limit
                // above suffices. After a cleanup it allocates them again, and other processes may have taken them.
                let (driver, pool) = line.driver.zip(line.device)?;
                let ours = driver.process?;
                let available = driver.total?.saturating_sub(driver.device.saturating_sub(ours));
                let next = pool.reserved.max(demand.device_newest_step.unwrap_or_default());
                let outside_pool = ours.saturating_sub(pool.reserved);
                over(None, MemoryKind::Device, Trigger::NextStep, Some(available), Some(next + outside_pool))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::task::DeviceMemory;
    use xrun_results::format::HostMemory;

    const MIB: u64 = 1 << 20;

    fn line(heap: u64, rss: u64, reserved: Option<u64>) -> MemoryLine {
        MemoryLine {
            step: 7,
            host: HostMemory { heap, rss: Some(rss), ..HostMemory::default() },
            device: reserved.map(|reserved| DeviceMemory { in_use: 0, reserved, allocations: 0 }),
            ..MemoryLine::default()
        }
    }

    #[test]
    fn the_limits_of_the_file_apply_to_each_sample() {
        let limits = MemoryLimits { host: Some(100 * MIB), device: Some(50 * MIB), ..MemoryLimits::default() };
        let none = Demand::default();
        assert_eq!(limits.reached(&line(10, 99 * MIB, Some(50 * MIB)), &none, 0), None);
        let reached = limits.reached(&line(10, 120 * MIB, None), &none, 0).unwrap();
        insta::assert_snapshot!(reached.message(), @"RSS is 120.0 MiB, above `limits.host_memory` = 100.0 MiB");
        assert_eq!((reached.key, reached.trigger), (Some("limits.host_memory"), Trigger::Measured));
        let reached = limits.reached(&line(10, 0, Some(51 * MIB)), &none, 0).unwrap();
        assert_eq!((reached.key, reached.excess()), (Some("limits.device_memory"), MIB));
    }

    #[test]
    fn a_run_stops_when_others_took_the_device_memory_that_a_cleanup_freed() {
        let demand = Demand { device_newest_step: Some(60 * MIB), ..Demand::default() };
        let with = |others| {
            let driver = DriverMemory {
                process: Some(15 * MIB),
                device: 15 * MIB + others,
                before: None,
                total: Some(100 * MIB),
                load: None,
            };
            let line = MemoryLine { driver: Some(driver), ..line(1, 1, Some(10 * MIB)) };
            MemoryLimits::default().reached(&line, &demand, 0)
        };
        assert_eq!(with(35 * MIB), None, "60 in the pool and 5 outside of it, of 65");
        let reached = with(40 * MIB).unwrap();
        assert_eq!((reached.held, reached.limit, reached.trigger), (65 * MIB, 60 * MIB, Trigger::NextStep));
        insta::assert_snapshot!(
            reached.message(),
            @"device memory reserved would be 65.0 MiB in the next step, above the 60.0 MiB that other processes leave on the device"
        );
    }

    #[test]
    fn a_refused_allocation_reports_its_size_and_the_free_memory() {
        let driver = |process: u64| DriverMemory {
            process: Some(process),
            device: 79 << 30,
            before: None,
            total: Some(80 << 30),
            load: None,
        };
        let reached = LimitReached::refused(Some(3 << 30), Some(driver(77 << 30)), 70 << 30);
        insta::assert_snapshot!(
            reached.message(),
            @"the device is out of memory: an allocation of 3.0 GiB failed, 1.0 GiB of 80.0 GiB free"
        );
        assert_eq!((reached.excess(), reached.place), (3 << 30, MemoryKind::Device));
        insta::assert_snapshot!(LimitReached::refused(None, None, 5).message(), @"the device is out of memory");
        insta::assert_snapshot!(
            LimitReached::refused(Some(3 << 30), Some(driver(9 << 30)), 8 << 30).message(),
            @"the device is out of memory: an allocation of 3.0 GiB failed, 1.0 GiB of 80.0 GiB free, 70.0 GiB held by other processes (see `nvidia-smi`)"
        );
    }

    #[test]
    fn the_limit_of_the_container_applies_to_the_next_step() {
        let limits = MemoryLimits { container: Some(100 * MIB), ..MemoryLimits::default() };
        let reached = |heap| limits.reached(&line(heap, 80 * MIB, None), &Demand::default(), 60 * MIB);
        assert_eq!(reached(30 * MIB), None);
        let reached = reached(50 * MIB).unwrap();
        insta::assert_snapshot!(
            reached.message(),
            @"memory would be 110.0 MiB in the next step, above the container's limit of 100.0 MiB"
        );
    }
}
