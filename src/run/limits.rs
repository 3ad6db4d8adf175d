//! Is a memory limit reached? Asked at every rest point: of the file's own limits, and of the container's, so that a run
//! ends by itself and not by the kernel.

use crate::experiment::sections::Limits;
use crate::plan::fit;
use crate::results::format::{Demand, MemoryLine};
use crate::units::Bytes;

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
    /// The key that sets it; `None` for the container's.
    pub key: Option<&'static str>,
    /// What is limited.
    pub what: &'static str,
    pub limit: u64,
    /// What is held, or what the next step would hold.
    pub held: u64,
}

impl Reached {
    /// "resident memory is 2 GiB, above `limits.host_memory` = 1 GiB"
    pub fn sentence(&self) -> String {
        let (held, limit) = (Bytes(self.held), Bytes(self.limit));
        match self.key {
            Some(key) => format!("{} is {held}, above `{key}` = {limit}", self.what),
            None => format!("{} would be {held} in the next step, and the container allows {limit}", self.what),
        }
    }

    /// Bytes too many.
    pub fn excess(&self) -> u64 {
        self.held - self.limit
    }
}

impl Bounds {
    pub fn new(limits: &Limits) -> Self {
        Self {
            host: limits.host_memory.map(|limit| limit.0),
            device: limits.device_memory.map(|limit| limit.0),
            container: fit::container(),
        }
    }

    /// `demand` is what the parts of the run needed so far.
    pub fn reached(&self, line: &MemoryLine, demand: &Demand) -> Option<Reached> {
        let over = |key, what, limit: Option<u64>, held: Option<u64>| {
            let (limit, held) = limit.zip(held)?;
            (held > limit).then_some(Reached { key, what, limit, held })
        };
        let resident = line.host.resident;
        // The kernel kills in the middle of a step: ask before it begins. Validations come seldom, with the same need.
        let working = demand.step.max(demand.validation).max(demand.checkpoint);
        let next = resident.map(|resident| resident.max(line.host.heap + working));
        over(Some("limits.host_memory"), "resident memory", self.host, resident)
            .or_else(|| {
                let reserved = line.device.map(|pool| pool.reserved);
                over(Some(DEVICE_LIMIT), "device memory reserved", self.device, reserved)
            })
            .or_else(|| over(None, "memory", self.container, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::format::{DevicePool, HostMemory, Point, VERSION};

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
            device: reserved.map(|reserved| DevicePool { in_use: 0, reserved, allocations: 0 }),
            driver: None,
            container: None,
            owners: [].into(),
            freed: None,
            phases_us: [].into(),
            cost_us: 0,
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
