//! Floors of a series: the least of each window, since peaks between two cleanups say nothing.

use crate::trend::{median, spread};

/// Floors of a series: where each window ends, and the least value in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Floors {
    /// The last step of each window.
    pub steps: Vec<f64>,
    /// The least value of each window.
    pub values: Vec<f64>,
    /// The spread of the values inside the windows, from their medians: noise that is no trend.
    pub noise: f64,
    /// Steps in a window.
    pub length: u64,
    /// The step of the first sample, and the steps between it and the first window: the warm-up.
    pub first: u64,
    /// Steps between the first sample and the first window.
    pub warm_up: u64,
}

/// The most windows of a series. One more, and each two become one.
pub const FLOORS_MAX: usize = 128;
/// The share of the steps that is the warm-up.
const WARM_UP: u64 = 10;
/// One window: its number, counted from the first sample, and what is in it.
#[derive(Clone, Copy, Debug)]
struct Window {
    number: u64,
    least: f64,
    /// The spread of its values; absent of a single one.
    spread: Option<f64>,
}

/// Cuts a series into windows as it comes, from its first sample to its newest. Holds [`FLOORS_MAX`] windows, however
/// long the run.
#[derive(Clone, Debug)]
pub struct Cutter {
    /// Steps after which each thing that a run does now and then was done once: the warm-up lasts no shorter.
    settled: u64,
    /// Steps in a window by now.
    length: u64,
    /// The step of the first sample.
    first: Option<u64>,
    whole: Vec<Window>,
    /// The window at hand: its number, its values (at most [`SAMPLES_MAX`] of them), its least and its last step.
    number: u64,
    inside: Vec<f64>,
    least: f64,
    newest: u64,
}

/// Values of one window that are kept to measure its noise.
const SAMPLES_MAX: usize = 64;

impl Cutter {
    /// Cuts a series. `settled` is the step after which everything that a run does has happened once.
    pub fn new(settled: u64) -> Self {
        Self {
            settled,
            length: 1,
            first: None,
            whole: Vec::new(),
            number: 0,
            inside: Vec::new(),
            least: f64::INFINITY,
            newest: 0,
        }
    }

    /// Adds a sample; steps never fall. Returns whether a window became whole by it.
    pub fn add(&mut self, step: u64, value: f64) -> bool {
        let first = *self.first.get_or_insert(step);
        let step = step.max(self.newest).max(first);
        let mut number = (step - first) / self.length;
        let closes = number != self.number && !self.inside.is_empty();
        if closes {
            self.close();
            number = (step - first) / self.length;
        }
        self.number = number;
        self.newest = step;
        self.least = self.least.min(value);
        if self.inside.len() < SAMPLES_MAX {
            self.inside.push(value);
        }
        closes
    }

    /// Steps in a window by now.
    pub fn length(&self) -> u64 {
        self.length
    }

    fn close(&mut self) {
        while self.whole.len() >= FLOORS_MAX {
            self.halve();
        }
        let window = self.at_hand();
        match self.whole.last_mut() {
            // After windows were merged, the second half of one that is there.
            Some(last) if last.number == window.number => *last = last.with(window),
            _ => self.whole.push(window),
        }
        self.inside.clear();
        self.least = f64::INFINITY;
    }

    fn at_hand(&self) -> Window {
        // Of the differences: a trend inside a window is no noise.
        let differences: Vec<f64> = self.inside.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let spread = (!differences.is_empty()).then(|| spread(&differences) / std::f64::consts::SQRT_2);
        Window { number: self.number, least: self.least, spread }
    }

    /// Makes each two windows one of twice the length.
    fn halve(&mut self) {
        self.length *= 2;
        self.number /= 2;
        let mut merged: Vec<Window> = Vec::with_capacity(FLOORS_MAX);
        for mut window in self.whole.drain(..) {
            window.number /= 2;
            match merged.last_mut() {
                Some(last) if last.number == window.number => *last = last.with(window),
                _ => merged.push(window),
            }
        }
        self.whole = merged;
    }

    /// The floors of all whole windows so far, without those of the warm-up: the first tenth of the steps.
    pub fn floors(&self) -> Floors {
        let first = self.first.unwrap_or_default();
        let end = |number: u64| first.saturating_add(number.saturating_add(1).saturating_mul(self.length) - 1);
        let mut whole = self.whole.clone();
        let complete = !self.inside.is_empty() && self.newest == end(self.number);
        match whole.last() {
            Some(last) if last.number == self.number && !complete => drop(whole.pop()),
            Some(last) if last.number == self.number => {
                let last = last.with(self.at_hand());
                whole.pop();
                whole.push(last);
            }
            _ if complete => whole.push(self.at_hand()),
            _ => {}
        }
        let span = self.newest - first;
        // A run that was cut short has no time to settle.
        let warm_up = (span / WARM_UP).max(self.settled.min(span / 4)).max(1);
        whole.retain(|window| window.number * self.length >= warm_up);
        let spreads: Vec<f64> = whole.iter().filter_map(|window| window.spread).collect();
        Floors {
            warm_up: whole.first().map_or(warm_up, |window| window.number * self.length),
            steps: whole.iter().map(|window| end(window.number) as f64).collect(),
            values: whole.iter().map(|window| window.least).collect(),
            noise: median(&spreads),
            length: self.length,
            first,
        }
    }
}

impl Window {
    fn with(self, other: Self) -> Self {
        let spread = match (self.spread, other.spread) {
            (Some(one), Some(other)) => Some((one + other) / 2.0),
            (one, other) => one.or(other),
        };
        Self { number: self.number, least: self.least.min(other.least), spread }
    }
}

impl Floors {
    /// Each two floors made one, counted from the newest.
    pub fn coarser(&self) -> Self {
        let odd = self.values.len() % 2;
        let values = self.values[odd..].chunks(2).map(|pair| pair.iter().copied().fold(f64::INFINITY, f64::min));
        let steps = self.steps[odd..].chunks(2).filter_map(|pair| pair.last().copied());
        Self { values: values.collect(), steps: steps.collect(), length: self.length * 2, ..*self }
    }

    /// Steps from the first sample to the end of the newest window.
    pub fn span(&self) -> u64 {
        self.steps.last().map_or(0, |last| (*last as u64).saturating_sub(self.first))
    }

    /// The distance from the lowest floor to the highest.
    pub fn reach(&self) -> f64 {
        let lowest = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        highest - lowest
    }

    /// The last part of the floors: a half, a third, …
    pub fn last_part(&self, of: usize) -> Self {
        self.from(self.values.len() - self.values.len() / of)
    }

    /// Those from one on.
    pub fn from(&self, start: usize) -> Self {
        Self { values: self.values[start..].to_vec(), steps: self.steps[start..].to_vec(), ..*self }
    }
}

/// The floors of points (step and value, by rising step).
pub fn floors(points: impl Iterator<Item = (u64, f64)>, settled: u64) -> Floors {
    let mut cutter = Cutter::new(settled);
    points.for_each(|(step, value)| {
        cutter.add(step, value);
    });
    cutter.floors()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(points: impl Iterator<Item = (u64, f64)>) -> Floors {
        floors(points, 0)
    }

    #[test]
    fn a_saw_has_flat_floors_where_windows_are_longer_than_its_teeth() {
        let mut found = of((1..=400u64).map(|step| (step, 100.0 + (step % 10) as f64)));
        while found.length < 16 {
            found = found.coarser();
        }
        assert!(found.values.len() >= 20 && found.values.iter().all(|value| *value == 100.0), "{found:?}");
    }

    #[test]
    fn the_first_tenth_and_what_has_not_settled_are_left_out() {
        let rising = || (0..100u64).map(|step| (step, step as f64));
        let found = of(rising());
        assert_eq!((found.values[0], found.warm_up, found.values.len()), (9.0, 9, 91));
        assert_eq!(floors(rising(), 20).values[0], 20.0);
        assert_eq!(floors(rising(), 90).values[0], 24.0, "a run that was cut short");
    }

    #[test]
    fn windows_double_when_there_are_too_many_and_span_the_whole_run() {
        let found = of((0..100_000u64).map(|step| (step, step as f64)));
        assert_eq!(found.length, 1024);
        assert!((FLOORS_MAX / 2..=FLOORS_MAX).contains(&(found.values.len() + 10)), "{}", found.values.len());
        assert_eq!((found.first, found.values[0]), (0, 10_240.0));
        assert!(*found.steps.last().unwrap() > 98_000.0);
    }

    #[test]
    fn a_trace_that_begins_late_is_cut_as_one_that_begins_at_once() {
        let from = |first: u64| of((0..1200u64).map(|step| (first + step, (step % 7) as f64)));
        let (early, late) = (from(0), from(1_000_001));
        assert_eq!(early.values, late.values);
        assert!(early.steps.iter().zip(&late.steps).all(|(a, b)| b - a == 1_000_001.0));
    }

    #[test]
    fn sparse_samples_are_windows_of_their_own() {
        let found = of((0..60u64).map(|at| (at * 500, at as f64)));
        assert_eq!((found.values.len(), found.values[0]), (54, 6.0));
    }

    proptest! {
        #[test]
        fn each_floor_is_the_least_of_its_window_and_memory_is_bounded(
            steps in proptest::collection::vec((1..40u64, -1e6..1e6f64), 1..2000),
        ) {
            let mut at = 0;
            let points: Vec<(u64, f64)> = steps.into_iter().map(|(gap, value)| { at += gap; (at, value) }).collect();
            let mut cutter = Cutter::new(0);
            for (step, value) in &points {
                cutter.add(*step, *value);
            }
            prop_assert!(cutter.whole.len() <= FLOORS_MAX && cutter.inside.len() <= SAMPLES_MAX);
            let found = cutter.floors();
            for (end, floor) in found.steps.iter().zip(&found.values) {
                let begin = end - found.length as f64;
                let inside = points.iter().filter(|(step, _)| *step as f64 > begin && *step as f64 <= *end);
                let least = inside.map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
                prop_assert_eq!(least, *floor);
            }
        }
    }
}
