//! Runs that are co-scheduled on this machine, while the sum of their forecasts fits into a memory budget and each has a
//! processor.

use std::collections::{BTreeMap, BTreeSet};

use crate::records::sweep_memory::SweepMemory;
use crate::trials::RunId;

/// Memory that a run needs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requirement {
    /// Memory of the host.
    pub host: u64,
    /// Memory of the device; 0 where it uses none.
    pub device: u64,
}

impl Requirement {
    /// The requirement of a run of this trial, by the forecasts.
    pub fn new(memory: &SweepMemory, trial: u64) -> Self {
        let need = memory.forecast(trial);
        need.map_or_else(Self::default, |need| Self {
            host: need.host.0,
            device: need.device.map_or(0, |bytes| bytes.0),
        })
    }
}

/// Resources of all runs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Largest number of runs at once.
    pub processors: usize,
    /// Bytes of the host.
    pub host: u64,
    /// Bytes of the device; `None` where that is not known and not limited.
    pub device: Option<u64>,
}

/// The runs that are active, and their requirements.
pub struct CoSchedule {
    budget: Budget,
    running: BTreeMap<RunId, Requirement>,
    /// Runs that were co-scheduled with another one at some time.
    co_scheduled: BTreeSet<RunId>,
    /// Runs that are retried alone.
    alone: BTreeSet<RunId>,
}

impl CoSchedule {
    /// A schedule without active runs.
    pub fn new(budget: Budget) -> Self {
        Self { budget, running: BTreeMap::new(), co_scheduled: BTreeSet::new(), alone: BTreeSet::new() }
    }

    /// Returns whether a run may start now. The only run always may: its forecast may be wrong, and waiting would not help.
    pub fn fits(&self, run: RunId, need: Requirement) -> bool {
        let is_apart = || self.alone.contains(&run) || self.running.keys().any(|running| self.alone.contains(running));
        self.running.is_empty() || (!is_apart() && self.running.len() < self.budget.processors && self.has_budget(need))
    }

    fn has_budget(&self, need: Requirement) -> bool {
        let sum = |of: fn(&Requirement) -> u64| {
            let running = self.running.values().map(of);
            running.fold(of(&need), u64::saturating_add)
        };
        // A run on the CPU may start where the device is full.
        let on_device = need.device == 0 || self.budget.device.is_none_or(|budget| sum(|need| need.device) <= budget);
        sum(|need| need.host) <= self.budget.host && on_device
    }

    /// Adds a run that started.
    pub fn started(&mut self, run: RunId, need: Requirement) {
        self.running.insert(run, need);
        if self.running.len() > 1 {
            self.co_scheduled.extend(self.running.keys().copied());
        }
    }

    /// Removes a run whose process ended.
    pub fn ended(&mut self, run: RunId) {
        self.running.remove(&run);
    }

    /// Marks runs whose retry is to come.
    pub fn expect_retries(&mut self, runs: impl Iterator<Item = RunId>) {
        self.alone.extend(runs);
    }

    /// Marks a run to be retried alone. Returns `false` where it was alone already: a retry would not differ.
    pub fn retry_alone(&mut self, run: RunId) -> bool {
        self.co_scheduled.remove(&run) && self.alone.insert(run)
    }

    /// Returns whether the run is retried alone.
    pub fn is_alone(&self, run: RunId) -> bool {
        self.alone.contains(&run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A schedule of trials whose needs are known, by their numbers.
    struct Known {
        schedule: CoSchedule,
        needs: Vec<(u64, u64)>,
    }

    impl Known {
        fn new(processors: usize, host: u64, device: Option<u64>, needs: &[(u64, u64)]) -> Self {
            Self { schedule: CoSchedule::new(Budget { processors, host, device }), needs: needs.to_vec() }
        }

        fn need(&self, trial: u64) -> Requirement {
            let (host, device) = self.needs[trial as usize - 1];
            Requirement { host, device }
        }

        fn fits(&self, trial: u64) -> bool {
            self.schedule.fits(run(trial), self.need(trial))
        }

        fn started(&mut self, trial: u64) {
            let need = self.need(trial);
            self.schedule.started(run(trial), need);
        }

        fn ended(&mut self, trial: u64) {
            self.schedule.ended(run(trial));
        }
    }

    fn run(trial: u64) -> RunId {
        RunId { trial, repeat: 1 }
    }

    #[test]
    fn a_retry_runs_alone_and_is_the_only_one() {
        let mut schedule = Known::new(4, 100, None, &[(10, 0); 3]);
        schedule.started(1);
        schedule.started(2);
        schedule.ended(1);
        assert!(schedule.schedule.retry_alone(run(1)) && schedule.schedule.is_alone(run(1)));
        assert!(!schedule.fits(1) && schedule.fits(3));
        schedule.ended(2);
        assert!(schedule.fits(1));
        schedule.started(1);
        assert!(!schedule.fits(3), "it runs alone");
        schedule.ended(1);
        assert!(!schedule.schedule.retry_alone(run(1)), "it was by itself");
        schedule.started(3);
        schedule.ended(3);
        assert!(!schedule.schedule.retry_alone(run(3)), "it never had company");
        // A retry that was decided on before a kill.
        schedule.schedule.expect_retries([run(2)].into_iter());
        schedule.started(2);
        assert!(schedule.schedule.is_alone(run(2)) && !schedule.fits(3));
    }

    proptest! {
        #[test]
        fn no_more_is_packed_than_fits_unless_one_is_alone(
            needs in proptest::collection::vec((0u64..200, 0u64..50), 1..40),
            processors in 1usize..8,
            host in 1u64..400,
            device in proptest::option::of(1u64..80),
            ends in proptest::collection::vec(any::<proptest::sample::Index>(), 100),
        ) {
            let mut schedule = Known::new(processors, host, device, &needs);
            let mut waiting: Vec<u64> = (1..=needs.len() as u64).collect();
            let mut running: Vec<u64> = Vec::new();
            for end in ends {
                while let Some(&next) = waiting.first() && schedule.fits(next) {
                    schedule.started(next);
                    running.push(waiting.remove(0));
                    let sum = |of: fn(&(u64, u64)) -> u64| -> u64 { running.iter().map(|trial| of(&needs[*trial as usize - 1])).sum() };
                    let fits = sum(|need| need.0) <= host && device.is_none_or(|device| sum(|need| need.1) <= device);
                    prop_assert!(running.len() <= processors && (fits || running.len() == 1 || sum(|need| need.0) <= host));
                    prop_assert!(fits || running.len() == 1 || needs[running[running.len() - 1] as usize - 1].1 == 0);
                }
                if waiting.is_empty() {
                    break;
                }
                prop_assert!(!running.is_empty(), "always at least one");
                let gone = running.remove(end.index(running.len()));
                schedule.ended(gone);
            }
        }
    }
}
