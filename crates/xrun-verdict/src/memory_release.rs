//! Release of memory, after which a series is judged anew.

use crate::thresholds::{Thresholds, WINDOWS_NEEDED};
use crate::trend::{median, robust_deviation};
use crate::window_minima::WindowSeries;

/// Windows on both sides of a fall.
const SIDE_WINDOWS: usize = 3;
/// Smallest fall, in deviations of the moves from window to window.
const FALL_DEVIATIONS_MIN: f64 = 8.0;
/// Largest climb before a fall, as a fraction of it: a higher one is a tooth of a sawtooth.
const CLIMB_FRACTION_MAX: f64 = 0.5;
/// Smallest fraction of a release that happens from one window to the next.
const SHARP_FRACTION_MIN: f64 = 0.5;
/// Smallest number of falls of a sawtooth whose floors are judged.
const TEETH_MIN: usize = 4;
/// Smallest part of the windows after a release that is judged alone.
const PART_DIVISOR: usize = 5;

/// Windows after the last release, if any: memory held before the release does not count.
pub fn after_release(minima: &WindowSeries, thresholds: Thresholds) -> Option<WindowSeries> {
    let is_release = |fall: &Fall| fall.climb <= CLIMB_FRACTION_MAX * fall.height;
    after(minima, &falls(minima, thresholds).into_iter().rfind(is_release)?)
}

/// Windows after the last fall, also if it belongs to a sawtooth.
pub fn after_fall(minima: &WindowSeries, thresholds: Thresholds) -> Option<WindowSeries> {
    after(minima, &falls(minima, thresholds).pop()?)
}

/// Floors between the teeth of a sawtooth of at least four teeth, if the last tooth is no higher than those before.
pub fn floors_of_teeth(minima: &WindowSeries, thresholds: Thresholds) -> Option<WindowSeries> {
    let falls = falls(minima, thresholds);
    let last = falls.last().filter(|_| falls.len() >= TEETH_MIN)?;
    let highest = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if highest(&minima.values[last.at..]) > highest(&minima.values[..last.at]) {
        return None;
    }
    let end = minima.values.len();
    let lowest = |fall: &Fall| {
        (fall.at..(fall.at + SIDE_WINDOWS).min(end)).min_by(|a, b| minima.values[*a].total_cmp(&minima.values[*b]))
    };
    let at: Vec<usize> = falls.iter().filter_map(lowest).collect();
    let chosen = |values: &[f64]| at.iter().map(|at| values[*at]).collect::<Vec<f64>>();
    Some(WindowSeries { steps: chosen(&minima.steps), values: chosen(&minima.values), ..minima.clone() })
}

/// Sharp fall from one window to the next.
struct Fall {
    /// First window after it.
    at: usize,
    height: f64,
    /// Rise from the lowest earlier window to the start of the fall.
    climb: f64,
}

/// Falls that stand out from the noise of the windows, in ascending order.
fn falls(minima: &WindowSeries, thresholds: Thresholds) -> Vec<Fall> {
    let values = &minima.values;
    let moves: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let smallest = (2.0 * thresholds.growth_min).max(FALL_DEVIATIONS_MIN * robust_deviation(&moves));
    let before = |at: usize| median(&values[at.saturating_sub(SIDE_WINDOWS)..at]);
    let height = |at: usize| before(at) - median(&values[at..(at + SIDE_WINDOWS).min(values.len())]);
    let is_fall = |at: &usize| height(*at) >= smallest && -moves[at - 1] >= SHARP_FRACTION_MIN * height(*at);
    let mut falls: Vec<Fall> = Vec::new();
    let mut lowest = f64::INFINITY;
    for at in (1..values.len()).filter(is_fall) {
        let from = falls.last().map_or(0, |fall| fall.at);
        lowest = values[from..at].iter().copied().fold(lowest, f64::min);
        falls.push(Fall { at, height: height(at), climb: before(at) - lowest });
    }
    falls
}

/// Windows after a fall, if they are enough.
fn after(minima: &WindowSeries, fall: &Fall) -> Option<WindowSeries> {
    let count = minima.values.len();
    let part = minima.from(fall.at);
    let first = part.steps.first().map_or(minima.first, |step| (*step as u64 + 1).saturating_sub(minima.length));
    let enough = part.values.len() >= (count / PART_DIVISOR).max(WINDOWS_NEEDED);
    enough.then(|| WindowSeries { first, warm_up: 0, warming: Vec::new(), ..part })
}
