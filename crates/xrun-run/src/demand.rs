//! Memory demand of a run or a probe by phase, collected from the samples.
//!
//! Working memory is what a phase needs in addition to what is held between steps: the highest heap in use since the previous
//! sample, less the heap in use at that sample.

use std::collections::BTreeMap;

use xrun_core::bounded::ledger::OWNERS_MAX;
use xrun_results::format::{Demand, MemoryLine, OwnerDemand, OwnerSummary, Peaks, SamplePoint};

/// Collector of a [`Demand`]. Its memory is constant, whatever the number of samples.
#[derive(Clone, Debug, Default)]
pub struct DemandCollector {
    /// Owners on the host that leak.
    leaks: Vec<String>,
    /// Batches of a validation.
    episodes: u64,
    /// Demand so far, without the owners.
    pub so_far: Demand,
    /// Largest working memory of a phase, less what rungs of `limits.on_pressure` were to give since it was measured.
    pub working: u64,
    /// Growth of the heap between the two newest samples after steps, which the next steps may repeat.
    pub growth: u64,
    peaks: Peaks,
    /// Smallest number of bytes that each owner held after a step other than the first.
    minima: BTreeMap<String, u64>,
    before: Option<Baseline>,
    first_step: Option<u64>,
    /// True if a checkpoint was loaded since the newest sample.
    checkpoint_loaded: bool,
    /// Kind of the newest step, and number of steps since the newest sample.
    newest_step: Option<(&'static str, u64)>,
}

/// Maximum number of kinds of steps.
const STEP_KINDS_MAX: usize = 8;

/// Bytes in use at a sample, between steps.
#[derive(Clone, Copy, Debug)]
struct Baseline {
    heap: u64,
    owners: u64,
    leaks: u64,
    step: u64,
}

impl DemandCollector {
    /// Creates a collector. `leaks` are the owners on the host that leak, `episodes` the batches of a validation.
    pub fn new(leaks: Vec<String>, episodes: u64) -> Self {
        Self { leaks, episodes, ..Self::default() }
    }

    /// Notes that a checkpoint was loaded: the next sample measures that alone, and no peak of the run.
    pub fn checkpoint_loaded(&mut self) {
        self.checkpoint_loaded = true;
    }

    /// Notes that a step of this kind was done.
    pub fn step_done(&mut self, kind: &'static str) {
        let before = self.newest_step.map_or(0, |(_, count)| count);
        self.newest_step = Some((kind, before + 1));
    }

    /// Adds the next sample of the process, in order of time.
    pub fn add(&mut self, line: &MemoryLine) {
        if std::mem::take(&mut self.checkpoint_loaded) {
            let before = self.before.map_or(0, |before| before.heap);
            let working = line.host.heap_high.unwrap_or_default().saturating_sub(before);
            self.so_far.load = self.so_far.load.max(working);
            return;
        }
        let demand = &mut self.so_far;
        let now = Baseline {
            heap: line.host.heap,
            owners: line.owners.values().sum(),
            leaks: self.leaks.iter().filter_map(|name| line.owners.get(name)).sum(),
            step: line.step,
        };
        self.peaks.add(line);
        demand.heap_peak = self.peaks.heap;
        demand.rss_peak = self.peaks.rss;
        demand.device_in_use_peak = self.peaks.device_in_use;
        demand.device_reserved_peak = self.peaks.device_reserved;
        let leaked = self.before.map_or(0, |before| before.leaks);
        let without_leaks = line.host.heap_high.unwrap_or(line.host.heap_peak).saturating_sub(leaked);
        demand.heap_peak_beside_leaks = demand.heap_peak_beside_leaks.max(without_leaks);
        if line.point == SamplePoint::Step {
            demand.device_newest_step = line.device.map(|pool| pool.reserved);
        }
        // The first step allocates what all others reuse.
        if line.point == SamplePoint::Step && self.first_step.is_some_and(|first| line.step > first) {
            for (name, held) in &line.owners {
                if let Some(minimum) = self.minima.get_mut(name) {
                    *minimum = (*minimum).min(*held);
                } else if self.minima.len() < OWNERS_MAX {
                    self.minima.insert(name.clone(), *held);
                }
            }
        }
        if let Some((pool, driver)) = line.device.zip(line.driver) {
            // Where the driver does not report memory by process (in containers), the increase since the start is ours.
            let ours = driver.process.or(driver.before.map(|before| driver.device.saturating_sub(before)));
            demand.device_beside_pool =
                demand.device_beside_pool.max(ours.map(|ours| ours.saturating_sub(pool.reserved)));
        }
        let Some(before) = self.before.replace(now) else {
            demand.heap_at_start = now.heap;
            demand.owners_at_start = now.owners;
            demand.device_in_use_at_start = line.device.map(|pool| pool.in_use);
            self.first_step = Some(line.step + 1);
            self.newest_step = None;
            return;
        };
        demand.steps += line.step - before.step;
        if line.point == SamplePoint::AfterValidation {
            demand.validations += 1;
            demand.episodes += self.episodes;
        }
        // Growth of the buffers is theirs, not the phase's.
        let held = now.owners.saturating_sub(before.owners);
        let working = line.host.heap_high.unwrap_or(now.heap).saturating_sub(before.heap + held);
        // A sample after several steps does not say which of them had the peak.
        if let Some((kind, 1)) = self.newest_step.take()
            && let Some(peak) = kind_peak(&mut demand.step_kinds, kind)
        {
            *peak = (*peak).max(working);
        }
        let is_phase = matches!(line.point, SamplePoint::Step | SamplePoint::AfterValidation | SamplePoint::Checkpoint);
        if line.step > before.step || is_phase {
            self.working = self.working.max(working);
        }
        if line.step > before.step {
            // The first step makes what all others use.
            let is_later = self.first_step.is_some_and(|first| before.step >= first);
            self.growth = if is_later { now.heap.saturating_sub(before.heap) } else { 0 };
        }
        match line.point {
            // Steps between samples count at the next sample, whatever its kind.
            _ if line.step > before.step => demand.step = demand.step.max(working),
            SamplePoint::Step => demand.step = demand.step.max(working),
            SamplePoint::AfterValidation => {
                demand.validation = demand.validation.max(working);
                // The first one fills what all others reuse.
                if demand.validations > 1 {
                    let left =
                        i64::try_from(now.heap).unwrap_or(i64::MAX) - i64::try_from(before.heap).unwrap_or(i64::MAX);
                    demand.validation_left = demand.validation_left.max(Some(left));
                }
            }
            SamplePoint::Checkpoint => demand.checkpoint = demand.checkpoint.max(working),
            _ => {}
        }
        if line.point == SamplePoint::Step && self.first_step == Some(line.step) {
            let retained = |now: u64, then: u64| i128::from(now) - i128::from(then);
            let by_owners = retained(now.owners, before.owners);
            demand.kept_by_first_step = u64::try_from(retained(now.heap, before.heap) - by_owners).unwrap_or_default();
        }
    }

    /// Demand so far, with the peaks of the owners.
    pub fn demand(&self, owners: &[OwnerSummary]) -> Demand {
        let owners = owners.iter().map(|owner| {
            let floor = self.minima.get(&owner.name).copied();
            let held = OwnerDemand { peak: owner.peak_bytes, floor, policy: owner.policy };
            (owner.name.clone(), held)
        });
        Demand { owners: owners.collect(), ..self.so_far.clone() }
    }
}

/// Peak of a kind of step; `None` if there are too many kinds.
fn kind_peak<'a>(kinds: &'a mut BTreeMap<String, u64>, kind: &str) -> Option<&'a mut u64> {
    if !kinds.contains_key(kind) {
        if kinds.len() == STEP_KINDS_MAX {
            return None;
        }
        kinds.insert(kind.to_owned(), 0);
    }
    kinds.get_mut(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::task::DeviceMemory;
    use xrun_results::format::{DriverMemory, HostMemory};

    const MIB: u64 = 1 << 20;

    fn line(point: SamplePoint, step: u64, heap: u64, high: u64, owner: u64) -> MemoryLine {
        MemoryLine {
            step,
            point,
            host: HostMemory { heap, heap_high: Some(high), heap_peak: high, ..HostMemory::default() },
            owners: [("queue".to_owned(), owner)].into(),
            ..MemoryLine::default()
        }
    }

    /// Demand of samples: point, step, heap in use, its highest value before, and bytes of the queue, which leaks if `leaks`.
    fn demand(leaks: bool, samples: &[(SamplePoint, u64, u64, u64, u64)]) -> Demand {
        let mut collector = DemandCollector::new(leaks.then(|| "queue".into()).into_iter().collect(), 5);
        for &(point, step, heap, high, held) in samples {
            collector.add(&line(point, step, heap * MIB, high * MIB, held * MIB));
        }
        let owner = |name: &str| OwnerSummary {
            name: name.into(),
            policy: xrun_core::bounded::ledger::Policy::Refuse,
            cap_items: 1,
            cap_bytes: 10 * MIB,
            peak_items: 1,
            peak_bytes: 9 * MIB,
        };
        collector.demand(&[owner("queue"), owner("never")])
    }

    #[test]
    fn steps_without_a_sample_count_at_the_next_one() {
        use SamplePoint::{AfterValidation, BeforeValidation, Start};
        let demand =
            demand(false, &[(Start, 0, 10, 10, 0), (BeforeValidation, 3, 10, 50, 0), (AfterValidation, 3, 10, 30, 0)]);
        assert_eq!([demand.step, demand.validation], [40 * MIB, 20 * MIB]);
    }

    #[test]
    fn the_floor_of_an_owner_is_its_minimum_after_steps_other_than_the_first() {
        use SamplePoint::{AfterValidation, Start, Step};
        let held = [(Start, 0, 0), (Step, 1, 1), (Step, 2, 5), (AfterValidation, 2, 2), (Step, 3, 4), (Step, 4, 9)];
        let demand = demand(false, &held.map(|(point, step, held)| (point, step, 10, 10, held)));
        assert_eq!((demand.owners["queue"].floor, demand.owners["never"].floor), (Some(4 * MIB), None));
    }

    #[test]
    fn the_peak_without_leaks_excludes_the_bytes_leaked_before() {
        use SamplePoint::{AfterValidation, Start, Step};
        let samples =
            [(Start, 0, 10, 10, 0), (Step, 1, 14, 50, 4), (Step, 2, 18, 54, 8), (AfterValidation, 2, 18, 55, 8)];
        let demand = demand(true, &samples);
        assert_eq!((demand.heap_peak, demand.heap_peak_beside_leaks), (55 * MIB, 50 * MIB));
        assert_eq!((demand.validations, demand.episodes), (1, 5));
    }

    #[test]
    fn device_memory_outside_the_pool_is_the_process_less_the_pool() {
        let mut collector = DemandCollector::default();
        let mut with = |process, device| {
            let driver = DriverMemory { process, device, before: Some(3 * MIB), total: None, load: None };
            let pool = DeviceMemory { in_use: MIB, reserved: 20 * MIB, allocations: 1 };
            collector.add(&MemoryLine {
                device: Some(pool),
                driver: Some(driver),
                ..line(SamplePoint::Step, 1, 10 * MIB, 10 * MIB, 0)
            });
            collector.so_far.device_beside_pool
        };
        assert_eq!(with(None, 63 * MIB), Some(40 * MIB), "63 less the 3 of others and the pool's 20");
        assert_eq!(with(Some(70 * MIB), 100 * MIB), Some(50 * MIB), "by the driver");
    }

    #[test]
    fn working_memory_is_the_peak_above_the_previous_sample() {
        use SamplePoint::{AfterValidation, BeforeValidation, Checkpoint, Start, Step};
        // The first step retains 4 MiB and 1 MiB in the queue.
        let before = [(Start, 0, 10, 12, 0), (Step, 1, 15, 40, 1), (Step, 2, 15, 45, 1)];
        let after = [(BeforeValidation, 2, 15, 15, 1), (AfterValidation, 2, 15, 75, 1), (Checkpoint, 2, 15, 17, 1)];
        let demand = demand(false, &[before, after].concat());
        assert_eq!((demand.heap_at_start, demand.kept_by_first_step), (10 * MIB, 4 * MIB));
        assert_eq!([demand.step, demand.validation, demand.checkpoint], [30 * MIB, 60 * MIB, 2 * MIB]);
        assert_eq!((demand.heap_peak, demand.steps), (75 * MIB, 2));
    }
}
