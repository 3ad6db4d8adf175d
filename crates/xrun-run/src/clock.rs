//! How long do the parts of the loop take?

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use xrun_core::task::Phases;
use xrun_results::format::PhaseSummary;

/// Adds up time by part. Parts do not nest: entering one ends the one before.
#[derive(Debug)]
pub struct Clock {
    current: &'static str,
    entered: Instant,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    name: &'static str,
    count: u64,
    total: Duration,
    longest: Duration,
    since_sample: Duration,
    /// Of the stay in this part that is not over.
    present: Duration,
}

/// More parts than this are a bug: names are fixed in the code.
const PARTS_MAX: usize = 32;

/// Time between the parts.
pub const LOOP: &str = "loop";

impl Default for Clock {
    fn default() -> Self {
        Self { current: LOOP, entered: Instant::now(), parts: Vec::with_capacity(PARTS_MAX) }
    }
}

impl Phases for Clock {
    fn enter(&mut self, name: &'static str) {
        let part = self.settle();
        part.count += 1;
        part.longest = part.longest.max(part.present);
        part.present = Duration::ZERO;
        self.current = name;
    }
}

impl Clock {
    /// Adds the time since the last call to the part at hand.
    fn settle(&mut self) -> &mut Part {
        let now = Instant::now();
        let spent = now - self.entered;
        self.entered = now;
        let part = match self.parts.iter_mut().position(|part| part.name == self.current) {
            Some(at) => &mut self.parts[at],
            None => {
                assert!(self.parts.len() < PARTS_MAX, "more than {PARTS_MAX} parts");
                self.parts.push(Part {
                    name: self.current,
                    count: 0,
                    total: Duration::ZERO,
                    longest: Duration::ZERO,
                    since_sample: Duration::ZERO,
                    present: Duration::ZERO,
                });
                self.parts.last_mut().unwrap_or_else(|| unreachable!())
            }
        };
        part.total += spent;
        part.since_sample += spent;
        part.present += spent;
        part
    }

    /// Microseconds by part since the last call.
    pub fn take_since_sample(&mut self) -> BTreeMap<String, u64> {
        self.settle();
        let mut times = BTreeMap::new();
        for part in &mut self.parts {
            let spent = std::mem::take(&mut part.since_sample);
            if !spent.is_zero() {
                times.insert(part.name.to_owned(), u64::try_from(spent.as_micros()).unwrap_or(u64::MAX));
            }
        }
        times
    }

    /// Time spent in a part so far.
    pub fn total(&self, name: &str) -> Duration {
        self.parts.iter().find(|part| part.name == name).map_or(Duration::ZERO, |part| part.total)
    }

    /// Longest part first.
    pub fn summary(&mut self) -> Vec<PhaseSummary> {
        self.settle();
        let mut parts: Vec<PhaseSummary> = self
            .parts
            .iter()
            .map(|part| PhaseSummary {
                name: part.name.to_owned(),
                count: part.count,
                seconds: part.total.as_secs_f64(),
                longest: part.longest.max(part.present).as_secs_f64(),
            })
            .collect();
        parts.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_to_the_part_that_was_entered() {
        let mut clock = Clock::default();
        clock.enter("forward");
        std::thread::sleep(Duration::from_millis(20));
        clock.enter(LOOP);
        assert!(clock.total("forward") >= Duration::from_millis(20));
        assert!(clock.take_since_sample()["forward"] >= 20_000);
        assert!(!clock.take_since_sample().contains_key("forward"), "nothing since the last sample");
        assert_eq!(clock.summary()[0].name, "forward");
    }
}
