//! The newest growth of a series that may be too short for a verdict.

use crate::window_minima::Windows;

/// Windows that growth is measured over.
const WINDOWS: usize = 4;

/// Minima of the newest windows of a series, by the windows and the warm-up of the verdict. Memory is bounded, however long the
/// series is.
#[derive(Clone, Debug)]
pub struct Recent {
    windows: Windows,
}

/// Growth over four windows, which cover about the second half of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecentGrowth {
    /// From the minimum of the first of the windows to that of the last, in the unit of the series.
    pub growth: f64,
    /// Steps between the ends of these two windows.
    pub steps: u64,
    /// The minimum of each window is above that of the one before.
    pub steady: bool,
}

impl Recent {
    /// A series without samples.
    pub fn new() -> Self {
        Self { windows: Windows::new(0) }
    }

    /// Adds a sample; steps never fall.
    pub fn add(&mut self, step: u64, value: f64) {
        self.windows.add(step, value);
    }

    /// Returns the newest growth; `None` with fewer than four windows after the warm-up.
    pub fn growth(&self) -> Option<RecentGrowth> {
        let mut minima = self.windows.minima();
        while minima.values.len() >= 2 * WINDOWS {
            minima = minima.coarser();
        }
        let newest = minima.from(minima.values.len().checked_sub(WINDOWS)?);
        Some(RecentGrowth {
            growth: newest.values[WINDOWS - 1] - newest.values[0],
            steps: (newest.steps[WINDOWS - 1] - newest.steps[0]) as u64,
            steady: newest.values.is_sorted_by(|one, next| one < next),
        })
    }
}

impl Default for Recent {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(values: impl IntoIterator<Item = u64>) -> Option<RecentGrowth> {
        let mut recent = Recent::new();
        values.into_iter().zip(1..).for_each(|(value, step)| recent.add(step, value as f64));
        recent.growth()
    }

    #[test]
    fn growth_is_that_of_the_second_half() {
        let expected = |growth, steps| Some(RecentGrowth { growth, steps, steady: true });
        assert_eq!(growth((0..6).map(|step| 3 * step)), expected(9.0, 3));
        assert_eq!(growth((0..60).map(|step| 3 * step)), expected(72.0, 24));
        assert_eq!(growth((0..60).map(|step: u64| step.saturating_sub(20))), expected(24.0, 24));
    }

    #[test]
    fn noise_and_a_single_rise_are_not_steady() {
        assert!(growth((0..60).map(|step| step % 3)).is_some_and(|growth| !growth.steady && growth.growth == 0.0));
        assert!(growth((0..60).map(|step| u64::from(step > 3))).is_some_and(|growth| !growth.steady));
    }

    #[test]
    fn a_series_without_four_windows_has_no_growth() {
        assert_eq!(growth([1, 2, 3]), None);
        assert_eq!(growth([]), None);
        let mut recent = Recent::new();
        for step in [u64::MAX - 1, 3, u64::MAX] {
            recent.add(step, 1.0);
        }
        assert_eq!(recent.growth(), None);
    }
}
