//! Window minima of a series. Growth is judged by them, since peaks between two cleanups say nothing about it.

use crate::trend::{median, robust_deviation};

/// Minimum of each window of a series, without the warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowSeries {
    /// Last step of each window.
    pub steps: Vec<f64>,
    /// Judged value of each window: its minimum, or its height.
    pub values: Vec<f64>,
    /// Minimum of each window.
    pub minima: Vec<f64>,
    /// Maximum of each window.
    pub maxima: Vec<f64>,
    /// Last step and minimum of each window of the warm-up.
    pub warming: Vec<(f64, f64)>,
    /// `values` are heights.
    pub are_heights: bool,
    /// Median standard deviation of the values inside a window, without trend.
    pub noise: f64,
    /// Steps in a window.
    pub length: u64,
    /// Step of the first sample.
    pub first: u64,
    /// Steps between the first sample and the first window: the warm-up.
    pub warm_up: u64,
}

/// Cap on the windows of a series. Beyond it, neighbouring windows are merged in pairs.
pub const WINDOWS_MAX: usize = 128;
/// Steps of a run for each step of its warm-up.
const WARM_UP: u64 = 10;

/// Summary of one window.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Index of the window, counted from the first sample.
    index: u64,
    minimum: f64,
    maximum: f64,
    /// Standard deviation of its values without trend; `None` for a single value.
    deviation: Option<f64>,
}

/// Divides a series into windows sample by sample. Holds at most [`WINDOWS_MAX`] windows, however long the run.
#[derive(Clone, Debug)]
pub struct Windows {
    /// Steps after which each periodic action of the run has happened once; the warm-up is no shorter.
    settled: u64,
    /// Steps in a window at present.
    length: u64,
    /// Step of the first sample.
    first: Option<u64>,
    complete: Vec<Window>,
    /// Index of the open window.
    index: u64,
    /// Values of the open window, at most [`SAMPLES_MAX`] of them.
    inside: Vec<f64>,
    /// Minimum of the open window.
    minimum: f64,
    /// Maximum of the open window.
    maximum: f64,
    /// Step of the newest sample.
    newest: u64,
}

/// Cap on the values of one window that are kept to measure its noise.
const SAMPLES_MAX: usize = 64;

impl Windows {
    /// Windows of a series without samples. `settled` is the step after which each periodic action has happened once.
    pub fn new(settled: u64) -> Self {
        Self {
            settled,
            length: 1,
            first: None,
            complete: Vec::new(),
            index: 0,
            inside: Vec::new(),
            minimum: f64::INFINITY,
            maximum: f64::NEG_INFINITY,
            newest: 0,
        }
    }

    /// Adds a sample; steps must not fall.
    pub fn add(&mut self, step: u64, value: f64) {
        let first = *self.first.get_or_insert(step);
        let step = step.max(self.newest).max(first);
        let mut index = (step - first) / self.length;
        if index != self.index && !self.inside.is_empty() {
            self.close();
            index = (step - first) / self.length;
        }
        self.index = index;
        self.newest = step;
        self.minimum = self.minimum.min(value);
        self.maximum = self.maximum.max(value);
        if self.inside.len() < SAMPLES_MAX {
            self.inside.push(value);
        }
    }

    /// Steps in a window at present.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Step of the newest sample.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    fn close(&mut self) {
        while self.complete.len() >= WINDOWS_MAX {
            self.merge_pairs();
        }
        let window = self.open_window();
        match self.complete.last_mut() {
            // After a merge the open window may be the second half of a complete one.
            Some(last) if last.index == window.index => *last = last.merged(window),
            _ => self.complete.push(window),
        }
        self.inside.clear();
        (self.minimum, self.maximum) = (f64::INFINITY, f64::NEG_INFINITY);
    }

    fn open_window(&self) -> Window {
        // From the differences: a trend inside a window is not noise.
        let differences: Vec<f64> = self.inside.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let deviation = (!differences.is_empty()).then(|| robust_deviation(&differences) / std::f64::consts::SQRT_2);
        Window { index: self.index, minimum: self.minimum, maximum: self.maximum, deviation }
    }

    /// Merges pairs of windows into windows of twice the length.
    fn merge_pairs(&mut self) {
        self.length *= 2;
        self.index /= 2;
        let mut merged: Vec<Window> = Vec::with_capacity(WINDOWS_MAX);
        for mut window in self.complete.drain(..) {
            window.index /= 2;
            match merged.last_mut() {
                Some(last) if last.index == window.index => *last = last.merged(window),
                _ => merged.push(window),
            }
        }
        self.complete = merged;
    }

    /// Minima of all complete windows, without those of the warm-up: the first tenth of the steps.
    pub fn minima(&self) -> WindowSeries {
        let first = self.first.unwrap_or_default();
        let end = |index: u64| first.saturating_add(index.saturating_add(1).saturating_mul(self.length) - 1);
        let mut complete = self.complete.clone();
        let is_complete = !self.inside.is_empty() && self.newest == end(self.index);
        match complete.last() {
            Some(last) if last.index == self.index && !is_complete => drop(complete.pop()),
            Some(last) if last.index == self.index => {
                let last = last.merged(self.open_window());
                complete.pop();
                complete.push(last);
            }
            _ if is_complete => complete.push(self.open_window()),
            _ => {}
        }
        let span = self.newest - first;
        // The warm-up of a run that ended early is at most a quarter of it.
        let warm_up = (span / WARM_UP).max(self.settled.min(span / 4)).max(1);
        let warming = complete.partition_point(|window| window.index * self.length < warm_up);
        let warming: Vec<Window> = complete.drain(..warming).collect();
        let deviations: Vec<f64> = complete.iter().filter_map(|window| window.deviation).collect();
        WindowSeries {
            warm_up: complete.first().map_or(warm_up, |window| window.index * self.length),
            steps: complete.iter().map(|window| end(window.index) as f64).collect(),
            values: complete.iter().map(|window| window.minimum).collect(),
            minima: complete.iter().map(|window| window.minimum).collect(),
            maxima: complete.iter().map(|window| window.maximum).collect(),
            warming: warming.iter().map(|window| (end(window.index) as f64, window.minimum)).collect(),
            are_heights: false,
            noise: median(&deviations),
            length: self.length,
            first,
        }
    }
}

impl Window {
    fn merged(self, other: Self) -> Self {
        let deviation = match (self.deviation, other.deviation) {
            (Some(one), Some(other)) => Some((one + other) / 2.0),
            (one, other) => one.or(other),
        };
        Self {
            index: self.index,
            minimum: self.minimum.min(other.minimum),
            maximum: self.maximum.max(other.maximum),
            deviation,
        }
    }
}

impl WindowSeries {
    /// Minima of windows of twice the length, paired from the newest.
    pub fn coarser(&self) -> Self {
        let odd = self.values.len() % 2;
        let paired = |values: &[f64], fold: fn(f64, f64) -> f64| -> Vec<f64> {
            values[odd..].chunks(2).filter_map(|pair| pair.iter().copied().reduce(fold)).collect()
        };
        let (minima, maxima) = (paired(&self.minima, f64::min), paired(&self.maxima, f64::max));
        let steps = self.steps[odd..].chunks(2).filter_map(|pair| pair.last().copied()).collect();
        let coarser = Self { minima, maxima, steps, values: Vec::new(), length: self.length * 2, ..self.clone() };
        if self.are_heights { coarser.heights() } else { Self { values: coarser.minima.clone(), ..coarser } }
    }

    /// Windows with their heights, from minimum to maximum, as the values to be judged.
    pub fn heights(&self) -> Self {
        let heights = self.maxima.iter().zip(&self.minima).map(|(maximum, minimum)| maximum - minimum);
        Self { values: heights.collect(), are_heights: true, ..self.clone() }
    }

    /// Steps from the first sample to the end of the newest window.
    pub fn span(&self) -> u64 {
        self.steps.last().map_or(0, |last| (*last as u64).saturating_sub(self.first))
    }

    /// Steps between two windows on average; 0 for fewer than two.
    pub fn spacing(&self) -> u64 {
        match self.steps[..] {
            [first, .., last] => ((last - first) / (self.steps.len() - 1) as f64).round() as u64,
            _ => 0,
        }
    }

    /// Difference between the highest and the lowest minimum.
    pub fn range(&self) -> f64 {
        let lowest = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        highest - lowest
    }

    /// Last 1/`divisor` of the windows.
    pub fn last_part(&self, divisor: usize) -> Self {
        self.from(self.values.len() - self.values.len() / divisor)
    }

    /// Windows from index `start` on.
    pub fn from(&self, start: usize) -> Self {
        Self {
            values: self.values[start..].to_vec(),
            minima: self.minima[start..].to_vec(),
            maxima: self.maxima[start..].to_vec(),
            steps: self.steps[start..].to_vec(),
            ..self.clone()
        }
    }
}

/// Window minima of points (step and value, in ascending order of steps).
#[cfg(test)]
pub fn window_minima(points: impl Iterator<Item = (u64, f64)>, settled: u64) -> WindowSeries {
    let mut windows = Windows::new(settled);
    points.for_each(|(step, value)| windows.add(step, value));
    windows.minima()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn minima(points: impl Iterator<Item = (u64, f64)>) -> WindowSeries {
        window_minima(points, 0)
    }

    #[test]
    fn the_warm_up_is_the_first_tenth_or_until_the_run_has_settled() {
        let rising = || (0..100u64).map(|step| (step, step as f64));
        let found = minima(rising());
        assert_eq!((found.values[0], found.warm_up, found.values.len()), (9.0, 9, 91));
        assert_eq!(window_minima(rising(), 20).values[0], 20.0);
        assert_eq!(window_minima(rising(), 90).values[0], 24.0, "a run that ended early");
    }

    #[test]
    fn windows_are_merged_at_the_cap_and_span_the_whole_run() {
        let found = minima((0..100_000u64).map(|step| (step, step as f64)));
        assert_eq!(found.length, 1024);
        assert!((WINDOWS_MAX / 2..=WINDOWS_MAX).contains(&(found.values.len() + 10)), "{}", found.values.len());
        assert_eq!((found.first, found.values[0]), (0, 10_240.0));
        assert!(*found.steps.last().unwrap() > 98_000.0);
    }

    #[test]
    fn windows_do_not_depend_on_the_first_step() {
        let from = |first: u64| minima((0..1200u64).map(|step| (first + step, (step % 7) as f64)));
        let (early, late) = (from(0), from(1_000_001));
        assert_eq!(early.values, late.values);
        assert!(early.steps.iter().zip(&late.steps).all(|(a, b)| b - a == 1_000_001.0));
    }

    proptest! {
        #[test]
        fn each_minimum_is_that_of_its_window_and_memory_is_bounded(
            steps in proptest::collection::vec((1..40u64, -1e6..1e6f64), 1..2000),
        ) {
            let mut at = 0;
            let points: Vec<(u64, f64)> = steps.into_iter().map(|(gap, value)| { at += gap; (at, value) }).collect();
            let mut windows = Windows::new(0);
            for (step, value) in &points {
                windows.add(*step, *value);
            }
            prop_assert!(windows.complete.len() <= WINDOWS_MAX && windows.inside.len() <= SAMPLES_MAX);
            let found = windows.minima();
            for (end, minimum) in found.steps.iter().zip(&found.values) {
                let begin = end - found.length as f64;
                let inside = points.iter().filter(|(step, _)| *step as f64 > begin && *step as f64 <= *end);
                let expected = inside.map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
                prop_assert_eq!(expected, *minimum);
            }
        }
    }
}
