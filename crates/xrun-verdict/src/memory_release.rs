//! Release of memory, after which a series is judged anew.

use crate::thresholds::{Thresholds, WINDOWS_NEEDED};
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
/// Smallest number of falls of a sawtooth whose floors are judged.
const TEETH_MIN: usize = 4;
/// Smallest part of the windows after a release that is judged alone.
const PART: usize = 5;

/// Windows after the last release, if any: what a large phase held before says nothing about them.
pub fn after_release(minima: &WindowMinima, thresholds: Thresholds) -> Option<WindowMinima> {
    let is_release = |fall: &Fall| fall.climb <= CLIMB * fall.height;
    after(minima, &falls(minima, thresholds).into_iter().rfind(is_release)?)
}

/// Windows after the last fall, that of a sawtooth, too.
pub fn after_fall(minima: &WindowMinima, thresholds: Thresholds) -> Option<WindowMinima> {
    after(minima, &falls(minima, thresholds).pop()?)
}

/// Floors between the teeth of a sawtooth of at least four teeth, if the last tooth is no higher than those before.
pub fn floors_of_teeth(minima: &WindowMinima, thresholds: Thresholds) -> Option<WindowMinima> {
    let falls = falls(minima, thresholds);
    let last = falls.last().filter(|_| falls.len() >= TEETH_MIN)?;
    let highest = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if highest(&minima.values[last.at..]) > highest(&minima.values[..last.at]) {
        return None;
    }
    let end = minima.values.len();
    let lowest = |fall: &Fall| {
        (fall.at..(fall.at + SIDE).min(end)).min_by(|a, b| minima.values[*a].total_cmp(&minima.values[*b]))
    };
    let at: Vec<usize> = falls.iter().filter_map(lowest).collect();
    let chosen = |values: &[f64]| at.iter().map(|at| values[*at]).collect::<Vec<f64>>();
    Some(WindowMinima { steps: chosen(&minima.steps), values: chosen(&minima.values), ..minima.clone() })
}

/// Sharp fall from one window to the next.
struct Fall {
    /// First window after it.
    at: usize,
    height: f64,
    /// Climb to its begin from the lowest window before.
    climb: f64,
}

/// Falls that stand out from the noise of the windows, in ascending order.
fn falls(minima: &WindowMinima, thresholds: Thresholds) -> Vec<Fall> {
    let values = &minima.values;
    let moves: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let smallest = (2.0 * thresholds.growth_min).max(DEVIATIONS * robust_deviation(&moves));
    let before = |at: usize| median(&values[at.saturating_sub(SIDE)..at]);
    let height = |at: usize| before(at) - median(&values[at..(at + SIDE).min(values.len())]);
    let is_fall = |at: &usize| height(*at) >= smallest && -moves[at - 1] >= SHARP * height(*at);
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
fn after(minima: &WindowMinima, fall: &Fall) -> Option<WindowMinima> {
    let count = minima.values.len();
    let part = minima.from(fall.at);
    let first = part.steps.first().map_or(minima.first, |step| (*step as u64 + 1).saturating_sub(minima.length));
    let enough = part.values.len() >= (count / PART).max(WINDOWS_NEEDED);
    enough.then(|| WindowMinima { first, warm_up: 0, warming: Vec::new(), ..part })
}
