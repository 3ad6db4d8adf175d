//! Runs that are co-scheduled on this machine, while the sum of their forecasts fits into a memory budget and each has a
//! processor.

use std::collections::{BTreeMap, BTreeSet};

use super::super::trials::RunId;
use super::Forecasts;

/// Memory that a run needs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requirement {
    /// Memory of the host.
    pub host: u64,
    /// Memory of the device; 0 where it uses none.
    pub device: u64,
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

/// The runs that are active, and their forecasts.
pub struct CoSchedule<'a> {
    budget: Budget,
    forecasts: Box<dyn Forecasts + 'a>,
    running: BTreeMap<RunId, Requirement>,
    /// Runs that were co-scheduled with another one at some time.
    co_scheduled: BTreeSet<RunId>,
    /// Runs that are retried alone.
    alone: BTreeSet<RunId>,
}

impl<'a> CoSchedule<'a> {
    /// A schedule without active runs. `alone` are the runs whose retry is to come.
    pub fn new(budget: Budget, forecasts: Box<dyn Forecasts + 'a>, alone: BTreeSet<RunId>) -> Self {
        Self { budget, forecasts, running: BTreeMap::new(), co_scheduled: BTreeSet::new(), alone }
    }

    /// The budget of all runs together.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Returns whether a run may start now. The only run always may: its forecast may be wrong, and waiting would not help.
    pub fn fits(&self, run: RunId) -> bool {
        if self.running.is_empty() {
            return true;
        }
        if self.alone.contains(&run) || self.running.keys().any(|running| self.alone.contains(running)) {
            return false;
        }
        // A new trial is probed beside the active runs, and its probe needs what the largest known one needs.
        self.running.len() < self.budget.processors
            && self.has_budget(self.forecasts.known_requirement(run.trial))
            && self.has_budget(self.forecasts.requirement(run.trial))
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
    pub fn started(&mut self, run: RunId) {
        let need = self.forecasts.requirement(run.trial);
        self.running.insert(run, need);
        if self.running.len() > 1 {
            self.co_scheduled.extend(self.running.keys().copied());
        }
    }

    /// Removes a run whose process ended.
    pub fn ended(&mut self, run: RunId) {
        self.running.remove(&run);
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
    use crate::records::sweep_memory::{SweepMemory, TrialsNeed};
    use proptest::prelude::*;
    use xrun_core::units::Bytes;
    use xrun_results::format::VERSION;

    fn memory(needs: &[(u64, u64)]) -> Box<SweepMemory> {
        let forecast = |(at, (host, device)): (usize, &(u64, u64))| TrialsNeed {
            host: Bytes(*host),
            device: (*device > 0).then_some(Bytes(*device)),
            probed: None,
            because: None,
            trials: vec![at as u64 + 1],
        };
        let forecasts = needs.iter().enumerate().map(forecast).collect();
        Box::new(SweepMemory { version: VERSION, sizes: Vec::new(), forecasts })
    }

    fn run(trial: u64) -> RunId {
        RunId { trial, repeat: 1 }
    }

    #[test]
    fn runs_are_packed_while_their_forecasts_fit() {
        let budget = Budget { processors: 3, host: 100, device: Some(10) };
        let mut schedule =
            CoSchedule::new(budget, memory(&[(60, 0), (50, 0), (40, 6), (0, 6), (1, 0), (500, 0)]), BTreeSet::new());
        schedule.started(run(1));
        assert!(!schedule.fits(run(2)) && schedule.fits(run(3)) && !schedule.fits(run(6)));
        schedule.started(run(3));
        assert!(!schedule.fits(run(4)), "the device is full");
        schedule.ended(run(1));
        assert!(schedule.fits(run(5)));
        schedule.started(run(5));
        schedule.started(run(2));
        assert!(!schedule.fits(run(5)), "three processors");
        for trial in [2, 3, 5] {
            schedule.ended(run(trial));
        }
        assert!(schedule.fits(run(6)), "one alone always begins");
    }

    #[test]
    fn a_retry_runs_alone_and_is_the_only_one() {
        let mut schedule = CoSchedule::new(
            Budget { processors: 4, host: 100, device: None },
            memory(&[(10, 0), (10, 0), (10, 0)]),
            BTreeSet::new(),
        );
        schedule.started(run(1));
        schedule.started(run(2));
        schedule.ended(run(1));
        assert!(schedule.retry_alone(run(1)) && schedule.is_alone(run(1)));
        assert!(!schedule.fits(run(1)) && schedule.fits(run(3)));
        schedule.ended(run(2));
        assert!(schedule.fits(run(1)));
        schedule.started(run(1));
        assert!(!schedule.fits(run(3)), "it runs alone");
        schedule.ended(run(1));
        assert!(!schedule.retry_alone(run(1)), "it was by itself");
        schedule.started(run(3));
        schedule.ended(run(3));
        assert!(!schedule.retry_alone(run(3)), "it never had company");
    }

    #[test]
    fn a_retry_that_was_decided_before_a_kill_runs_alone() {
        let budget = Budget { processors: 4, host: 100, device: None };
        let mut schedule = CoSchedule::new(budget, memory(&[(10, 0), (10, 0)]), [run(1)].into());
        assert!(schedule.is_alone(run(1)) && schedule.fits(run(1)));
        schedule.started(run(1));
        assert!(!schedule.fits(run(2)));
        schedule.ended(run(1));
        assert!(!schedule.retry_alone(run(1)), "only one retry");
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
            let mut schedule = CoSchedule::new(Budget { processors, host, device }, memory(&needs), BTreeSet::new());
            let mut waiting: Vec<u64> = (1..=needs.len() as u64).collect();
            let mut running: Vec<u64> = Vec::new();
            for end in ends {
                while let Some(&next) = waiting.first() && schedule.fits(run(next)) {
                    schedule.started(run(next));
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
                schedule.ended(run(gone));
            }
        }
    }
}
