//! Rises that last to the end of a series.

use crate::onset::without_jumps;
use crate::shape::{RiseProfile, is_flat_at_end, is_jump, smoothed};
use crate::thresholds::{STEPS_NEEDED, Thresholds, WINDOWS_NEEDED, Z};
use crate::trend::{Line, fit_line, mann_kendall, quantile};
use crate::window_minima::WindowSeries;

/// Rise that lasts to the end of a series.
#[derive(Clone, Debug)]
pub struct Rise {
    /// Windows in which it was found.
    pub windows: WindowSeries,
    /// Step at which the part that was tested begins.
    pub start: u64,
    /// Line through the part that was tested.
    pub line: Line,
    /// Slope before it became slower; `None` where it is as fast at its end as before.
    pub earlier: Option<f64>,
}

/// Smallest growth that is significant, in standard errors.
const ERRORS: f64 = 4.0;
/// Number of starting positions that are tested.
const STARTS: usize = 10;
/// Cap on the windows that are tested during a run.
const WINDOWS_WHILE_RUNNING: usize = 32;
/// Growth of a rise in falls before it from which on it is no swing.
const SWINGS: f64 = 2.0;
/// Ratio of two slopes below which the later one is slower.
const SLOWER: f64 = 0.75;

/// Finds a rise that lasts to the end: in all windows and from several starting positions, at the given window length
/// and at coarser ones, because a slow sawtooth needs long windows. Returns the first steady rise, preferring fine
/// windows and long parts, or else one that slows down.
pub fn find_rise(minima: &WindowSeries, thresholds: Thresholds) -> Option<Rise> {
    let mut slowing: Option<Rise> = None;
    let mut windows = minima.clone();
    while windows.values.len() >= WINDOWS_NEEDED && windows.range() >= thresholds.growth_min / 2.0 {
        for part in 0..STARTS {
            match rise_from(&windows, windows.values.len() * part / STARTS, thresholds) {
                Some(rise) if rise.earlier.is_none() => return Some(rise),
                found => slowing = slowing.or(found),
            }
        }
        windows = windows.coarser();
    }
    slowing
}

/// Returns whether a series rises steadily so far. Cheaper than [`find_rise`], because it is called during a run.
pub fn is_rising(minima: &WindowSeries, thresholds: Thresholds) -> bool {
    let mut windows = minima.clone();
    while windows.values.len() > WINDOWS_WHILE_RUNNING {
        windows = windows.coarser();
    }
    windows.span() >= STEPS_NEEDED && find_rise(&windows, thresholds).is_some_and(|rise| rise.earlier.is_none())
}

fn rise_from(minima: &WindowSeries, start: usize, thresholds: Thresholds) -> Option<Rise> {
    let part = minima.from(start);
    let (steps, values) = (&part.steps, &part.values);
    let count = values.len();
    if count < WINDOWS_NEEDED {
        return None;
    }
    let line = fit_line(steps, values, Z)?;
    // A rise that begins at the end of the warm-up began within it.
    let in_warm_up = if start == 0 { line.slope.median * minima.warm_up as f64 } else { 0.0 };
    let matters = line.growth + in_warm_up >= thresholds.growth_min;
    if !matters || line.growth <= ERRORS * line.error || mann_kendall(values) <= Z {
        return None;
    }
    // A new level: the last third is higher than the first one, and than everything before the part.
    let third = count / 3;
    let low_end = quantile(&values[count - third..], 0.25);
    let new = start == 0 || low_end > quantile(&minima.values[..start], 0.98);
    if !new || low_end <= quantile(&values[..third], 0.75) {
        return None;
    }
    // In several moves, without a plateau so long that the rise may have stopped.
    let profile = RiseProfile::of(values)?;
    let plateau = profile.longest_plateau();
    if profile.moves() < 4 || profile.largest_move() > 5 || 10 * plateau > 3 * count {
        return None;
    }
    // The last third rises like the whole, or is too noisy to show that it does not.
    let end = part.last_part(3);
    let late = fit_line(&end.steps, &end.values, 0.0)?;
    let expected = line.slope.median * (end.steps[end.steps.len() - 1] - end.steps[0]);
    if late.growth < 0.3 * expected || (late.growth < 0.4 * expected && expected - late.growth > 2.0 * late.error) {
        return None;
    }
    if is_jump(steps, values) || SWINGS * largest_fall(&minima.values) > line.growth {
        return None;
    }
    let was_flat = is_flat_at_end(steps, values, line.slope.median, plateau);
    if was_flat && is_flat_at_end(&end.steps, &end.values, late.slope.median, plateau) {
        return None;
    }
    let slopes =
        [slope_of_first_half(&part), slope_before(minima, start, &line), was_flat.then_some(line.slope.median)];
    // The last third shows it, too.
    let earlier = slopes.into_iter().flatten().find(|earlier| late.slope.median < SLOWER.sqrt() * earlier);
    let begin = if start == 0 { minima.first } else { (steps[0] as u64 + 1).saturating_sub(minima.length) };
    Some(Rise { windows: minima.clone(), start: begin, line, earlier })
}

/// Largest fall of a smoothed series without its jumps, from a value to a later one: what falls by as much as it rises
/// swings.
fn largest_fall(values: &[f64]) -> f64 {
    let smooth = without_jumps(smoothed(values, 2));
    let (mut highest, mut largest) = (f64::NEG_INFINITY, 0.0_f64);
    for value in smooth {
        highest = highest.max(value);
        largest = largest.max(highest - value);
    }
    largest
}

/// Slope of the first half, if the second half rises clearly slower.
fn slope_of_first_half(minima: &WindowSeries) -> Option<f64> {
    let half = minima.values.len() / 2;
    let early = fit_line(&minima.steps[..=half], &minima.values[..=half], 0.0)?;
    let late = fit_line(&minima.steps[half..], &minima.values[half..], 0.0)?;
    let slower =
        late.growth < SLOWER * early.growth && early.growth - late.growth > 2.0 * early.error.hypot(late.error);
    slower.then_some(early.slope.median)
}

/// Slope before `start`, if the series rose clearly faster there, without a plateau in between.
fn slope_before(minima: &WindowSeries, start: usize, part: &Line) -> Option<f64> {
    let (steps, values) = (&minima.steps[..start], &minima.values[..start]);
    let whole = (start >= 2).then(|| fit_line(steps, values, 0.0)).flatten()?;
    if whole.slope.median <= part.slope.median / SLOWER {
        return None;
    }
    let near = start.saturating_sub((start / 3).max(6));
    let was_flat =
        fit_line(&steps[near..], &values[near..], 0.0).is_some_and(|line| line.slope.median < 0.5 * part.slope.median);
    (!was_flat).then_some(whole.slope.median)
}
