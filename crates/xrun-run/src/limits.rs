//! Is a memory limit reached? Asked at every rest point: of the file's own limits, and of the container's, so that a run
//! ends by itself and not by the kernel.

use crate::plan::fit;
use xrun_core::bounded::planned::Place;
use xrun_core::settings::sections::Limits;
use xrun_core::units::Bytes;
use xrun_results::format::{Demand, DriverMemory, MemoryLine};

/// The key of the device's limit.
pub const DEVICE_LIMIT: &str = "limits.device_memory";

/// What bounds this run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    host: Option<u64>,
    device: Option<u64>,
    container: Option<u64>,
}

/// A limit that is reached, or that the next step would pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The key that sets it; `None` for the container's and the device's own.
    pub key: Option<&'static str>,
    /// Which memory it limits.
    pub place: Place,
    /// The limit, in bytes.
    pub limit: u64,
    /// What is held, what the next step would hold, or what was held and asked for.
    pub held: u64,
    /// Whether it is reached or would be.
    pub when: When,
}

/// How a limit was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At rest, after a step.
    AtRest,
    /// Nothing is passed yet; the next step would.
    NextStep,
    /// The device had no memory to give, in the middle of a step.
    Refused {
        /// Bytes of the page that was asked for, where the backend says it.
        asked: Option<u64>,
        /// Bytes that the driver has free now, where it tells.
        free: Option<u64>,
        /// Bytes that other processes have, where the driver tells, and so many that the page would fit without them.
        others: Option<u64>,
    },
}

impl Reached {
    /// "resident memory is 2 GiB, above `limits.host_memory` = 1 GiB"
    pub fn sentence(&self) -> String {
        let (held, limit) = (Bytes(self.held), Bytes(self.limit));
        let what = match (self.place, self.when) {
            (Place::Device, _) => "device memory reserved",
            (Place::Host, When::NextStep) => "memory",
            (Place::Host, _) => "resident memory",
        };
        match (self.when, self.key) {
            (When::Refused { asked, free, others }, _) => refused(asked, free, others, self.limit),
            (When::NextStep, Some(key)) => format!("{what} would be {held} in the next step, above `{key}` = {limit}"),
            (When::NextStep, None) => {
                let whose = match self.place {
                    Place::Host => "the container allows",
                    Place::Device => "others on the device leave",
                };
                format!("{what} would be {held} in the next step, and {whose} {limit}")
            }
            (When::AtRest, key) => format!("{what} is {held}, above `{}` = {limit}", key.unwrap_or("the limit")),
        }
    }

    /// The device had no memory to give. `asked` is the page, as the backend says it; `device` what the driver tells now;
    /// `reserved` what the pool had at the newest sample.
    pub fn refused(asked: Option<u64>, device: Option<DriverMemory>, reserved: u64) -> Self {
        let limit = device.and_then(|device| device.total).unwrap_or(reserved);
        let held = limit.saturating_add(asked.unwrap_or_default());
        let free = device.and_then(|device| Some(device.total?.saturating_sub(device.device)));
        let others = device.and_then(|device| Some(device.device.saturating_sub(device.process?)));
        let would_fit = |others: &u64| *others > 0 && *others >= asked.unwrap_or_default();
        let when = When::Refused { asked, free, others: others.filter(would_fit) };
        Self { key: None, place: Place::Device, limit, held, when }
    }

    /// Bytes too many.
    pub fn excess(&self) -> u64 {
        self.held.saturating_sub(self.limit)
    }
}

/// "the device is out of memory: a page of 3 GiB was refused, 1 GiB of 80 GiB is free"
fn refused(asked: Option<u64>, free: Option<u64>, others: Option<u64>, all: u64) -> String {
    let page = asked.map(|bytes| format!("a page of {} was refused", Bytes(bytes)));
    let room = free.map(|free| format!("{} of {} are free", Bytes(free), Bytes(all)));
    let others = others.map(|bytes| format!("other processes hold {} of them (`nvidia-smi` lists them)", Bytes(bytes)));
    let parts: Vec<String> = page.into_iter().chain(room).chain(others).collect();
    match parts.is_empty() {
        true => "the device is out of memory".into(),
        false => format!("the device is out of memory: {}", parts.join(", ")),
    }
}

impl Bounds {
    /// The limits of the file.
    pub fn new(limits: &Limits) -> Self {
        Self {
            host: limits.host_memory.map(|limit| limit.0),
            device: limits.device_memory.map(|limit| limit.0),
            container: fit::container(),
        }
    }

    /// `demand` is what the parts of the run needed so far.
    pub fn reached(&self, line: &MemoryLine, demand: &Demand) -> Option<Reached> {
        let over = |key, place, when, limit: Option<u64>, held: Option<u64>| {
            let (limit, held) = limit.zip(held)?;
            (held > limit).then_some(Reached { key, place, limit, held, when })
        };
        let resident = line.host.resident;
        // The kernel kills in the middle of a step, so the next step's need is compared before it begins. A validation,
        // which is rare, counts as a step.
        let working = demand.step.max(demand.validation).max(demand.checkpoint);
        let next = resident.map(|resident| resident.max(line.host.heap + working));
        let reserved = line.device.map(|pool| pool.reserved);
        over(Some("limits.host_memory"), Place::Host, When::AtRest, self.host, resident)
            .or_else(|| over(Some(DEVICE_LIMIT), Place::Device, When::AtRest, self.device, reserved))
            .or_else(|| over(None, Place::Host, When::NextStep, self.container, next))
            .or_else(|| {
                // The pool keeps its pages until a cleanup, so what is reserved after a step is what the step needed, and the
                // limit above is asked in time. After a cleanup the next step takes its pages anew: others may have them.
                let (driver, pool) = line.driver.zip(line.device)?;
                let ours = driver.process?;
                let room = driver.total?.saturating_sub(driver.device.saturating_sub(ours));
                let next = pool.reserved.max(demand.device_newest_step.unwrap_or_default());
                let beside = ours.saturating_sub(pool.reserved);
                over(None, Place::Device, When::NextStep, Some(room), Some(next + beside))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::task::DeviceMemory;
    use xrun_results::format::{HostMemory, Point, VERSION};

    const MIB: u64 = 1 << 20;

    fn line(heap: u64, resident: u64, reserved: Option<u64>) -> MemoryLine {
        MemoryLine {
            version: VERSION,
            segment: 0,
            time_us: 0,
            step: 7,
            epoch: 1,
            point: Point::Step,
            host: HostMemory { heap, resident: Some(resident), ..HostMemory::default() },
            device: reserved.map(|reserved| DeviceMemory { in_use: 0, reserved, allocations: 0 }),
            driver: None,
            container: None,
            owners: [].into(),
            freed: None,
            phases_us: [].into(),
            cost_us: 0,
            pressure: None,
            processes: None,
        }
    }

    #[test]
    fn the_files_limits_are_compared_with_what_is_held() {
        let bounds = Bounds { host: Some(100 * MIB), device: Some(50 * MIB), container: None };
        let none = Demand::default();
        assert_eq!(bounds.reached(&line(10, 99 * MIB, Some(50 * MIB)), &none), None);
        let reached = bounds.reached(&line(10, 120 * MIB, None), &none).unwrap();
        assert_eq!(reached.sentence(), "resident memory is 120.0 MiB, above `limits.host_memory` = 100.0 MiB");
        let reached = bounds.reached(&line(10, 0, Some(51 * MIB)), &none).unwrap();
        assert_eq!((reached.key, reached.excess()), (Some("limits.device_memory"), MIB));
    }

    #[test]
    fn what_a_cleanup_gave_back_and_others_took_stops_the_run_before_the_next_step() {
        let bounds = Bounds::default();
        let demand = Demand { device_newest_step: Some(60 * MIB), ..Demand::default() };
        let with = |others| {
            let driver = DriverMemory {
                process: Some(15 * MIB),
                device: 15 * MIB + others,
                before: None,
                total: Some(100 * MIB),
                load: None,
            };
            bounds.reached(&MemoryLine { driver: Some(driver), ..line(1, 1, Some(10 * MIB)) }, &demand)
        };
        assert_eq!(with(35 * MIB), None, "60 of the pool and 5 besides it, of 65");
        assert_eq!(
            with(40 * MIB).unwrap().sentence(),
            "device memory reserved would be 65.0 MiB in the next step, and others on the device leave 60.0 MiB"
        );
    }

    #[test]
    fn a_device_that_is_full_says_what_was_asked_for_and_what_is_free() {
        let driver = |process: u64| DriverMemory {
            process: Some(process),
            device: 79 << 30,
            before: None,
            total: Some(80 << 30),
            load: None,
        };
        let reached = Reached::refused(Some(3 << 30), Some(driver(77 << 30)), 70 << 30);
        assert_eq!(
            reached.sentence(),
            "the device is out of memory: a page of 3.0 GiB was refused, 1.0 GiB of 80.0 GiB are free"
        );
        assert_eq!((reached.excess(), reached.place), (3 << 30, Place::Device));
        assert_eq!(Reached::refused(None, None, 5).sentence(), "the device is out of memory");
        assert_eq!(
            Reached::refused(Some(3 << 30), Some(driver(9 << 30)), 8 << 30).sentence(),
            "the device is out of memory: a page of 3.0 GiB was refused, 1.0 GiB of 80.0 GiB are free, other processes hold \
             70.0 GiB of them (`nvidia-smi` lists them)"
        );
    }

    #[test]
    fn the_containers_limit_is_compared_with_what_the_next_step_will_need() {
        let bounds = Bounds { container: Some(100 * MIB), ..Bounds::default() };
        let demand = Demand { step: 60 * MIB, ..Demand::default() };
        assert_eq!(bounds.reached(&line(30 * MIB, 80 * MIB, None), &demand), None);
        let reached = bounds.reached(&line(50 * MIB, 80 * MIB, None), &demand).unwrap();
        assert_eq!(
            reached.sentence(),
            "memory would be 110.0 MiB in the next step, and the container allows 100.0 MiB"
        );
    }
}
