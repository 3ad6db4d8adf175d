//! What did each part of a run need? Taken from the samples as they come; of a probe for the plan, and of the run itself.
//!
//! Working memory is what a part needs on top of what is held at rest: the highest heap in use since the sample before,
//! less the heap in use at that sample.

use std::collections::BTreeMap;

use xrun_core::bounded::ledger::OWNERS_MAX;
use xrun_results::format::{Demand, MemoryLine, OwnerDemand, OwnerSummary, Point};

/// Collects a [`Demand`]. Constant in memory, whatever the number of samples.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    /// Owners that leak into the heap.
    leaks: Vec<String>,
    /// Episodes of a validation.
    episodes: u64,
    demand: Demand,
    /// The least that each owner held after a step but the first.
    floors: BTreeMap<String, u64>,
    before: Option<Rest>,
    first_step: Option<u64>,
    /// A checkpoint was read since the newest sample.
    loaded: bool,
}

/// What was in use at a rest point.
#[derive(Clone, Copy, Debug)]
struct Rest {
    heap: u64,
    owners: u64,
    leaks: u64,
    step: u64,
}

impl Collector {
    /// `leaks` are the owners that leak into the heap, `episodes` those of a validation.
    pub fn new(leaks: Vec<String>, episodes: u64) -> Self {
        Self { leaks, episodes, ..Self::default() }
    }

    /// A checkpoint was read: the sample that comes next is of nothing else, and of no peak of the run.
    pub fn loaded(&mut self) {
        self.loaded = true;
    }

    /// Takes in the next sample of the process, in the order of time.
    pub fn add(&mut self, line: &MemoryLine) {
        if std::mem::take(&mut self.loaded) {
            let before = self.before.map_or(0, |before| before.heap);
            let working = line.host.heap_high.unwrap_or_default().saturating_sub(before);
            self.demand.load = self.demand.load.max(working);
            return;
        }
        let demand = &mut self.demand;
        let rest = Rest {
            heap: line.host.heap,
            owners: line.owners.values().sum(),
            leaks: self.leaks.iter().filter_map(|name| line.owners.get(name)).sum(),
            step: line.step,
        };
        demand.heap_peak = demand.heap_peak.max(line.host.heap_peak);
        let leaked = self.before.map_or(0, |before| before.leaks);
        let beside = line.host.heap_high.unwrap_or(line.host.heap_peak).saturating_sub(leaked);
        demand.heap_peak_beside_leaks = demand.heap_peak_beside_leaks.max(beside);
        demand.resident_peak = demand.resident_peak.max(line.host.resident_peak.max(line.host.resident));
        demand.device_in_use_peak = demand.device_in_use_peak.max(line.device.map(|pool| pool.in_use));
        demand.device_reserved_peak = demand.device_reserved_peak.max(line.device.map(|pool| pool.reserved));
        if line.point == Point::Step {
            demand.device_newest_step = line.device.map(|pool| pool.reserved);
        }
        // The first step makes what all others find.
        if line.point == Point::Step && self.first_step.is_some_and(|first| line.step > first) {
            for (name, held) in &line.owners {
                if let Some(floor) = self.floors.get_mut(name) {
                    *floor = (*floor).min(*held);
                } else if self.floors.len() < OWNERS_MAX {
                    self.floors.insert(name.clone(), *held);
                }
            }
        }
        if let Some((pool, driver)) = line.device.zip(line.driver) {
            // Where the driver does not tell whose memory it is (containers), what came on top is ours.
            let ours = driver.process.or(driver.before.map(|before| driver.device.saturating_sub(before)));
            demand.device_beside_pool =
                demand.device_beside_pool.max(ours.map(|ours| ours.saturating_sub(pool.reserved)));
        }
        let Some(before) = self.before.replace(rest) else {
            demand.heap_at_start = rest.heap;
            demand.owners_at_start = rest.owners;
            demand.device_in_use_at_start = line.device.map(|pool| pool.in_use);
            self.first_step = Some(line.step + 1);
            return;
        };
        demand.steps += line.step - before.step;
        if line.point == Point::AfterValidation {
            demand.validations += 1;
            demand.episodes += self.episodes;
        }
        // What buffers came to hold meanwhile is theirs.
        let held = rest.owners.saturating_sub(before.owners);
        let working = line.host.heap_high.unwrap_or(rest.heap).saturating_sub(before.heap + held);
        match line.point {
            // Steps between samples are the work of whichever sample comes next.
            _ if line.step > before.step => demand.step = demand.step.max(working),
            Point::Step => demand.step = demand.step.max(working),
            Point::AfterValidation => demand.validation = demand.validation.max(working),
            Point::Checkpoint => demand.checkpoint = demand.checkpoint.max(working),
            _ => {}
        }
        if line.point == Point::Step && self.first_step == Some(line.step) {
            let kept = |now: u64, then: u64| i128::from(now) - i128::from(then);
            let by_owners = kept(rest.owners, before.owners);
            demand.kept_by_first_step = u64::try_from(kept(rest.heap, before.heap) - by_owners).unwrap_or_default();
        }
    }

    /// What the pool had reserved when its operations had just been tuned.
    pub fn tuned(&mut self, reserved: u64) {
        self.demand.device_tuning_peak = self.demand.device_tuning_peak.max(Some(reserved));
    }

    /// The demand so far, without the owners.
    pub fn so_far(&self) -> &Demand {
        &self.demand
    }

    /// The demand so far, with what the owners held at their highest.
    pub fn demand(&self, owners: &[OwnerSummary]) -> Demand {
        let owners = owners.iter().map(|owner| {
            let floor = self.floors.get(&owner.name).copied();
            let held = OwnerDemand { peak: owner.peak_bytes, floor, policy: owner.policy };
            (owner.name.clone(), held)
        });
        Demand { owners: owners.collect(), ..self.demand.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::task::DeviceMemory;
    use xrun_results::format::{DriverMemory, HostMemory, VERSION};

    const MIB: u64 = 1 << 20;

    fn line(point: Point, step: u64, heap: u64, high: u64, owner: u64) -> MemoryLine {
        MemoryLine {
            version: VERSION,
            segment: 0,
            time_us: 0,
            step,
            epoch: 1,
            point,
            host: HostMemory { heap, heap_high: Some(high), heap_peak: high, ..HostMemory::default() },
            device: None,
            driver: None,
            container: None,
            owners: [("queue".to_owned(), owner)].into(),
            freed: None,
            phases_us: [].into(),
            cost_us: 0,
            pressure: None,
            processes: None,
        }
    }

    #[test]
    fn steps_without_a_sample_of_their_own_are_charged_at_the_next() {
        let mut collector = Collector::default();
        for line in [
            line(Point::Start, 0, 10 * MIB, 10 * MIB, 0),
            line(Point::BeforeValidation, 3, 10 * MIB, 50 * MIB, 0),
            line(Point::AfterValidation, 3, 10 * MIB, 30 * MIB, 0),
        ] {
            collector.add(&line);
        }
        let demand = collector.demand(&[]);
        assert_eq!([demand.step, demand.validation], [40 * MIB, 20 * MIB]);
    }

    #[test]
    fn a_floor_is_the_least_after_a_step_and_the_first_step_is_another() {
        let mut collector = Collector::default();
        for (point, step, held) in [
            (Point::Start, 0, 0),
            (Point::Step, 1, MIB),
            (Point::Step, 2, 5 * MIB),
            (Point::AfterValidation, 2, 2 * MIB),
            (Point::Step, 3, 4 * MIB),
            (Point::Step, 4, 9 * MIB),
        ] {
            collector.add(&line(point, step, 10 * MIB, 10 * MIB, held));
        }
        let queue = OwnerSummary {
            name: "queue".into(),
            policy: xrun_core::bounded::ledger::Policy::Refuse,
            cap_items: 1,
            cap_bytes: 10 * MIB,
            peak_items: 1,
            peak_bytes: 9 * MIB,
        };
        let owners = [queue.clone(), OwnerSummary { name: "never".into(), ..queue }];
        let demand = collector.demand(&owners);
        assert_eq!((demand.owners["queue"].floor, demand.owners["never"].floor), (Some(4 * MIB), None));
    }

    #[test]
    fn what_leaks_is_taken_from_the_peak_by_what_it_held_before() {
        let mut collector = Collector::new(vec!["queue".into()], 5);
        for line in [
            line(Point::Start, 0, 10 * MIB, 10 * MIB, 0),
            line(Point::Step, 1, 14 * MIB, 50 * MIB, 4 * MIB),
            line(Point::Step, 2, 18 * MIB, 54 * MIB, 8 * MIB),
            line(Point::AfterValidation, 2, 18 * MIB, 55 * MIB, 8 * MIB),
        ] {
            collector.add(&line);
        }
        let demand = collector.demand(&[]);
        assert_eq!((demand.heap_peak, demand.heap_peak_beside_leaks), (55 * MIB, 50 * MIB));
        assert_eq!((demand.validations, demand.episodes), (1, 5));
    }

    #[test]
    fn what_the_driver_counts_besides_the_pool_is_context_and_other_streams() {
        let mut collector = Collector::default();
        let mut with = |process, device| {
            let driver = DriverMemory { process, device, before: Some(3 * MIB), total: None, load: None };
            let pool = DeviceMemory { in_use: MIB, reserved: 20 * MIB, allocations: 1 };
            collector.add(&MemoryLine {
                device: Some(pool),
                driver: Some(driver),
                ..line(Point::Step, 1, 10 * MIB, 10 * MIB, 0)
            });
            collector.so_far().device_beside_pool
        };
        assert_eq!(with(None, 63 * MIB), Some(40 * MIB), "63 less the 3 of others and the pool's 20");
        assert_eq!(with(Some(70 * MIB), 100 * MIB), Some(50 * MIB), "the driver tells");
    }

    #[test]
    fn each_part_is_charged_with_what_it_needs_above_the_rest_before_it() {
        let mut collector = Collector::default();
        for line in [
            line(Point::Start, 0, 10 * MIB, 12 * MIB, 0),
            // Keeps 4 MiB of its own and 1 MiB in the queue, and needs 30 MiB for a moment.
            line(Point::Step, 1, 15 * MIB, 40 * MIB, MIB),
            line(Point::Step, 2, 15 * MIB, 45 * MIB, MIB),
            line(Point::BeforeValidation, 2, 15 * MIB, 15 * MIB, MIB),
            line(Point::AfterValidation, 2, 15 * MIB, 75 * MIB, MIB),
            line(Point::Checkpoint, 2, 15 * MIB, 17 * MIB, MIB),
        ] {
            collector.add(&line);
        }
        let demand = collector.demand(&[]);
        assert_eq!((demand.heap_at_start, demand.kept_by_first_step), (10 * MIB, 4 * MIB));
        assert_eq!([demand.step, demand.validation, demand.checkpoint], [30 * MIB, 60 * MIB, 2 * MIB]);
        assert_eq!((demand.heap_peak, demand.steps), (75 * MIB, 2));
    }
}
