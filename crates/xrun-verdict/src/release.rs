//! Release of memory, after which a series is judged anew.

use crate::judge::{Thresholds, WINDOWS_NEEDED};
use crate::trend::{median, robust_deviation};
use crate::window_minima::WindowMinima;

/// Windows on both sides of a fall.
const SIDE: usize = 3;
/// Smallest fall, in deviations of the moves from window to window.
const DEVIATIONS: f64 = 8.0;
/// Largest climb before a fall, as a fraction of it: a higher one is a tooth of a sawtooth.
const CLIMB: f64 = 0.5;
/// Part of a release that happens from one window to the next.
const SHARP: f64 = 0.5;
/// Smallest part of the windows after a release that is judged alone.
const PART: usize = 5;

/// Windows after the last release, or all where there is none: what a large phase held before says nothing about the rest.
pub fn after_release(minima: &WindowMinima, thresholds: Thresholds) -> WindowMinima {
    after_last(minima, thresholds, |climb, fall| climb <= CLIMB * fall).unwrap_or_else(|| minima.clone())
}

/// Windows after the last fall, that of a sawtooth, too.
pub fn after_fall(minima: &WindowMinima, thresholds: Thresholds) -> Option<WindowMinima> {
    after_last(minima, thresholds, |_, _| true)
}

/// Windows after the last fall whose height fits the climb before it.
fn after_last(
    minima: &WindowMinima,
    thresholds: Thresholds,
    fits: impl Fn(f64, f64) -> bool,
) -> Option<WindowMinima> {
    let values = &minima.values;
    let end = values.len().saturating_sub((values.len() / PART).max(WINDOWS_NEEDED));
    let moves: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let smallest = (2.0 * thresholds.growth_min).max(DEVIATIONS * robust_deviation(&moves));
    let before = |at: usize| median(&values[at.saturating_sub(SIDE)..at]);
    let fall = |at: usize| before(at) - median(&values[at..at + SIDE]);
    let is_release = |at: &usize| {
        let lowest = values[..*at].iter().copied().fold(f64::INFINITY, f64::min);
        let near = at.saturating_sub(2)..(*at + 1).min(moves.len());
        let sharpest = moves[near].iter().copied().fold(0.0, f64::min);
        fall(*at) >= smallest && -sharpest >= SHARP * fall(*at) && fits(before(*at) - lowest, fall(*at))
    };
    let last = (1..end).rev().find(is_release)?;
    // The fall is steepest at its middle.
    let at = (last.saturating_sub(SIDE).max(1)..=last).max_by(|a, b| fall(*a).total_cmp(&fall(*b))).unwrap_or(last);
    let part = minima.from(at);
    let first = part.steps.first().map_or(minima.first, |step| (*step as u64 + 1).saturating_sub(minima.length));
    Some(WindowMinima { first, warm_up: 0, warming: Vec::new(), ..part })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::BYTES;
    use crate::window_minima::window_minima;

    const MIB: f64 = 1024.0 * 1024.0;

    fn first(value: impl Fn(u64) -> f64) -> u64 {
        let minima = window_minima((0..1280u64).map(|step| (step, value(step) * MIB)), 0);
        after_release(&minima, BYTES).first
    }

    #[test]
    fn a_series_is_judged_from_its_last_release_on() {
        assert!((500..=520).contains(&first(|step| if step < 500 { 900.0 } else { 300.0 + step as f64 / 10.0 })));
        let twice = first(|step| match step {
            0..300 => 900.0,
            300..700 => 700.0,
            _ => 300.0,
        });
        assert!((700..=720).contains(&twice), "{twice}");
    }

    #[test]
    fn neither_a_tooth_nor_a_late_release_begins_anew() {
        assert_eq!(first(|step| 300.0 + (step % 500) as f64), 0);
        assert_eq!(first(|step| if step < 1100 { 900.0 } else { 300.0 }), 0);
        assert_eq!(first(|_| 900.0), 0);
    }
}
