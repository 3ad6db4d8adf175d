//! What does a series hold at its emptiest? The least of each window: peaks between two cleanups say nothing.

use std::collections::VecDeque;

use super::trend::{median, spread};

/// Floors of a series: where each window ends, and the least value in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Floors {
    /// The last step of each window.
    pub steps: Vec<f64>,
    pub values: Vec<f64>,
    /// The spread of the values inside the windows, from their medians: noise that is no trend.
    pub noise: f64,
}

/// How a series is cut into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Samples up to and with this step are not looked at.
    pub warm_up: u64,
    /// Steps in a window.
    pub length: u64,
}

/// As many of the newest floors are kept.
pub const FLOORS_MAX: usize = 24;

/// How to cut a run of so many steps: the warm-up is 10 % of the steps but at most 100 and at least `settled` (the first
/// full validation and checkpoint); a window is an epoch, or else a multiple of the declared `cadences`, as long as at
/// least ten windows are left.
pub fn windows(steps: u64, settled: u64, steps_per_epoch: u64, cadences: &[u64]) -> Windows {
    const LENGTH_MIN: u64 = 10;
    const WINDOWS_MIN: u64 = 10;
    let warm_up = (steps / 10).min(100).max(settled).min(steps);
    let left = steps - warm_up;
    if steps_per_epoch >= LENGTH_MIN && left / steps_per_epoch >= WINDOWS_MIN {
        return Windows { warm_up, length: steps_per_epoch };
    }
    // The cadences decide as long as that many windows are left.
    let longest = left / WINDOWS_MIN;
    let multiple = |a: u64, b: u64| a / gcd(a, b) * b;
    let common = cadences.iter().copied().filter(|cadence| *cadence > 0).fold(1, |common, cadence| {
        let next = multiple(common, cadence);
        if next <= longest { next } else { common }
    });
    let least = (left / FLOORS_MAX as u64).max(LENGTH_MIN);
    Windows { warm_up, length: least.next_multiple_of(common) }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Cuts a series into windows as it comes. Holds one window and [`FLOORS_MAX`] floors, however long the run.
#[derive(Clone, Debug)]
pub struct Cutter {
    windows: Windows,
    floors: VecDeque<(f64, f64)>,
    spreads: VecDeque<f64>,
    /// The window at hand: its number, its values (at most [`SAMPLES_MAX`] of them), its least and its last step.
    number: u64,
    inside: Vec<f64>,
    least: f64,
    newest: u64,
    /// The step before the first sample, from which windows are counted.
    before: Option<u64>,
}

/// Values of one window that are kept to measure its noise.
const SAMPLES_MAX: usize = 256;

impl Cutter {
    pub fn new(windows: Windows) -> Self {
        Self {
            windows,
            floors: VecDeque::with_capacity(FLOORS_MAX),
            spreads: VecDeque::with_capacity(FLOORS_MAX),
            number: 0,
            inside: Vec::new(),
            least: f64::INFINITY,
            newest: 0,
            before: None,
        }
    }

    /// Adds a sample; steps never fall.
    pub fn add(&mut self, step: u64, value: f64) {
        let before = *self.before.get_or_insert(step.saturating_sub(1));
        let Some(past) = step.checked_sub(before + self.windows.warm_up + 1) else { return };
        let number = past / self.windows.length;
        if number != self.number {
            self.close();
            self.number = number;
        }
        self.newest = step;
        self.least = self.least.min(value);
        if self.inside.len() < SAMPLES_MAX {
            self.inside.push(value);
        }
    }

    fn close(&mut self) {
        if self.inside.is_empty() {
            return;
        }
        // Of the differences: a trend inside a window is no noise.
        let differences: Vec<f64> = self.inside.windows(2).map(|pair| pair[1] - pair[0]).collect();
        push(&mut self.spreads, spread(&differences) / std::f64::consts::SQRT_2);
        let floor = (self.end() as f64, self.least);
        push(&mut self.floors, floor);
        self.inside.clear();
        self.least = f64::INFINITY;
    }

    /// The last step of the window at hand.
    fn end(&self) -> u64 {
        self.before.unwrap_or_default() + self.windows.warm_up + (self.number + 1) * self.windows.length
    }

    /// The floors of all whole windows so far.
    pub fn floors(&self) -> Floors {
        let mut whole = self.clone();
        if whole.newest == whole.end() {
            whole.close();
        }
        let (steps, values) = whole.floors.into_iter().unzip();
        let spreads: Vec<f64> = whole.spreads.into_iter().collect();
        Floors { steps, values, noise: median(&spreads) }
    }
}

fn push<T>(kept: &mut VecDeque<T>, value: T) {
    if kept.len() == FLOORS_MAX {
        kept.pop_front();
    }
    kept.push_back(value);
}

/// The floors of points (step and value, by rising step).
pub fn floors(points: impl Iterator<Item = (u64, f64)>, windows: Windows) -> Floors {
    let mut cutter = Cutter::new(windows);
    points.for_each(|(step, value)| cutter.add(step, value));
    cutter.floors()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saw_has_flat_floors() {
        let saw = (1..=200u64).map(|step| (step, 100.0 + (step % 10) as f64));
        let found = floors(saw, Windows { warm_up: 20, length: 20 });
        assert_eq!(found.values, [100.0; 9]);
        assert_eq!(found.steps[0], 40.0);
    }

    #[test]
    fn warm_up_and_an_incomplete_last_window_are_left_out() {
        let rising = (1..=55u64).map(|step| (step, step as f64));
        let found = floors(rising, Windows { warm_up: 10, length: 10 });
        assert_eq!(found.values, [11.0, 21.0, 31.0, 41.0]);
        assert_eq!(found.steps, [20.0, 30.0, 40.0, 50.0]);
    }

    #[test]
    fn only_the_newest_floors_are_kept() {
        let rising = (1..=1000u64).map(|step| (step, step as f64));
        let found = floors(rising, Windows { warm_up: 0, length: 10 });
        assert_eq!((found.values.len(), found.values[0]), (24, 761.0));
    }

    #[test]
    fn windows_cover_cadences_and_leave_enough_of_them() {
        assert_eq!(windows(1200, 0, 0, &[50]), Windows { warm_up: 100, length: 50 });
        assert_eq!(windows(2400, 100, 0, &[10, 25]), Windows { warm_up: 100, length: 100 });
        assert_eq!(windows(490, 49, 49, &[10, 49]), Windows { warm_up: 49, length: 20 });
        assert_eq!(windows(4900, 49, 49, &[10]), Windows { warm_up: 100, length: 49 });
        assert_eq!(windows(5, 0, 0, &[]), Windows { warm_up: 0, length: 10 });
    }
}
