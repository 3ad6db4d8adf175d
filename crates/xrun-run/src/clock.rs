//! Time spent in each phase of the loop.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use xrun_core::task::Phases;
use xrun_results::format::PhaseSummary;

/// Accumulator of time by phase. Phases do not nest: entering one ends the previous one.
#[derive(Debug)]
pub struct Clock {
    current: &'static str,
    entered: Instant,
    phases: Vec<Phase>,
    /// Number and time of the batches that the current step has validated, all in one phase.
    validated: (u64, Duration),
    /// End of the part of the current step that a cache will save.
    first_use: Option<Instant>,
}

#[derive(Debug)]
struct Phase {
    name: &'static str,
    count: u64,
    total: Duration,
    longest: Duration,
    since_sample: Duration,
    /// Time since the phase was last entered.
    present: Duration,
}

/// Parts of a step that not every step has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occasional {
    /// Number of batches that the step validated.
    pub batches: u64,
    /// Time of the phases that validated them.
    pub in_batches: Duration,
    /// End of the part that a cache will save when the data is used again.
    pub first_use: Option<Instant>,
}

/// Largest number of phases. Their names are constants: more are a bug.
const PHASES_MAX: usize = 32;

/// Name of the phase between all others.
pub const LOOP: &str = "loop";

impl Default for Clock {
    fn default() -> Self {
        Self {
            current: LOOP,
            entered: Instant::now(),
            phases: Vec::with_capacity(PHASES_MAX),
            validated: (0, Duration::ZERO),
            first_use: None,
        }
    }
}

impl Phases for Clock {
    fn enter(&mut self, name: &'static str) {
        let phase = self.update();
        phase.count += 1;
        phase.longest = phase.longest.max(phase.present);
        phase.present = Duration::ZERO;
        self.current = name;
    }

    fn batch_validated(&mut self, done: u64, _: u64) {
        let time = self.update().present;
        self.validated = (done, time);
    }

    fn first_use(&mut self) {
        self.first_use = Some(Instant::now());
    }
}

impl Clock {
    /// Adds the time since the last call to the current phase.
    fn update(&mut self) -> &mut Phase {
        let now = Instant::now();
        let spent = now - self.entered;
        self.entered = now;
        let phase = match self.phases.iter_mut().position(|phase| phase.name == self.current) {
            Some(at) => &mut self.phases[at],
            None => {
                assert!(self.phases.len() < PHASES_MAX, "more than {PHASES_MAX} phases");
                self.phases.push(Phase {
                    name: self.current,
                    count: 0,
                    total: Duration::ZERO,
                    longest: Duration::ZERO,
                    since_sample: Duration::ZERO,
                    present: Duration::ZERO,
                });
                self.phases.last_mut().unwrap_or_else(|| unreachable!())
            }
        };
        phase.total += spent;
        phase.since_sample += spent;
        phase.present += spent;
        phase
    }

    /// Returns and resets the microseconds in each phase since the last call.
    pub fn take_since_sample(&mut self) -> BTreeMap<String, u64> {
        self.update();
        let mut times = BTreeMap::new();
        for phase in &mut self.phases {
            let spent = std::mem::take(&mut phase.since_sample);
            if !spent.is_zero() {
                times.insert(phase.name.to_owned(), u64::try_from(spent.as_micros()).unwrap_or(u64::MAX));
            }
        }
        times
    }

    /// Returns and resets the parts of a step that not every step has.
    pub fn take_occasional(&mut self) -> Occasional {
        let (batches, in_batches) = std::mem::take(&mut self.validated);
        Occasional { batches, in_batches, first_use: self.first_use.take() }
    }

    /// Time spent in a phase so far.
    pub fn total(&self, name: &str) -> Duration {
        self.phases.iter().find(|phase| phase.name == name).map_or(Duration::ZERO, |phase| phase.total)
    }

    /// Summary of all phases, longest first.
    pub fn summary(&mut self) -> Vec<PhaseSummary> {
        self.update();
        let mut phases: Vec<PhaseSummary> = self
            .phases
            .iter()
            .map(|phase| PhaseSummary {
                name: phase.name.to_owned(),
                count: phase.count,
                seconds: phase.total.as_secs_f64(),
                longest: phase.longest.max(phase.present).as_secs_f64(),
                grown: None,
            })
            .collect();
        phases.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        phases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batches_of_a_validation_are_counted_once() {
        let mut clock = Clock::default();
        clock.enter("node_validation");
        (1..=3).for_each(|done| clock.batch_validated(done, 3));
        clock.enter(LOOP);
        let occasional = clock.take_occasional();
        assert_eq!(occasional.batches, 3);
        assert!(occasional.in_batches <= clock.total("node_validation"));
        assert_eq!(clock.take_occasional().batches, 0, "nothing in the next step");
    }

    #[test]
    fn time_is_added_to_the_phase_that_was_entered() {
        let mut clock = Clock::default();
        clock.enter("forward");
        let start_time = Instant::now();
        while start_time.elapsed() < Duration::from_millis(2) {}
        clock.enter(LOOP);
        assert!(clock.total("forward") >= Duration::from_millis(2));
        assert!(clock.take_since_sample()["forward"] >= 2_000);
        assert!(!clock.take_since_sample().contains_key("forward"), "nothing since the last sample");
        assert!(clock.summary().iter().any(|phase| phase.name == "forward" && phase.count == 1));
    }
}
