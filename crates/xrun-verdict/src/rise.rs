//! Rises that last to the end of a series.

use crate::judge::{STEPS_NEEDED, Thresholds, WINDOWS_NEEDED, Z};
use crate::shape::{RiseProfile, is_flat_at_end, is_jump};
use crate::trend::{Line, fit_line, mann_kendall, quantile};
use crate::window_minima::WindowMinima;

/// Rise that lasts to the end of a series.
#[derive(Clone, Debug)]
pub struct Rise {
    /// Windows in which it was found.
    pub windows: WindowMinima,
    /// Line through the part that was tested.
    pub line: Line,
    /// True if it is as fast at its end as before.
    pub steady: bool,
}

/// Smallest growth that is significant, in standard errors.
const ERRORS: f64 = 4.0;
/// Number of starting positions that are tested.
const STARTS: usize = 10;
/// Cap on the windows that are tested during a run.
const WINDOWS_WHILE_RUNNING: usize = 32;
/// Ratio of two slopes below which the later one is slower.
const SLOWER: f64 = 0.75;

/// Finds a rise that lasts to the end: in all windows and from several starting positions, at the given window length
/// and at coarser ones, because a slow sawtooth needs long windows. Returns the first steady rise, preferring fine
/// windows and long parts, or else one that slows down.
pub fn find_rise(minima: &WindowMinima, thresholds: Thresholds) -> Option<Rise> {
    let mut slowing: Option<Rise> = None;
    let mut windows = minima.clone();
    while windows.values.len() >= WINDOWS_NEEDED && windows.range() >= thresholds.growth_min / 2.0 {
        for part in 0..STARTS {
            match rise_from(&windows, windows.values.len() * part / STARTS, thresholds) {
                Some(rise) if rise.steady => return Some(rise),
                found => slowing = slowing.or(found),
            }
        }
        windows = windows.coarser();
    }
    slowing
}

/// Returns whether a series rises steadily so far. Cheaper than [`find_rise`], because it is called during a run.
pub fn is_rising(minima: &WindowMinima, thresholds: Thresholds) -> bool {
    let mut windows = minima.clone();
    while windows.values.len() > WINDOWS_WHILE_RUNNING {
        windows = windows.coarser();
    }
    windows.span() >= STEPS_NEEDED && find_rise(&windows, thresholds).is_some_and(|rise| rise.steady)
}

fn rise_from(minima: &WindowMinima, start: usize, thresholds: Thresholds) -> Option<Rise> {
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
    if is_jump(steps, values) {
        return None;
    }
    let was_flat = is_flat_at_end(steps, values, line.slope.median, plateau);
    if was_flat && is_flat_at_end(&end.steps, &end.values, late.slope.median, plateau) {
        return None;
    }
    // Slower only where the interval of the late rate excludes the rate of the whole.
    let is_slower = late.growth + 2.0 * late.error < expected;
    let slows = was_flat || is_slowing(&part) || was_faster_before(minima, start, &line);
    Some(Rise { windows: minima.clone(), line, steady: !(is_slower && slows) })
}

/// Returns whether the second half rises clearly slower than the first.
fn is_slowing(minima: &WindowMinima) -> bool {
    let half = minima.values.len() / 2;
    let early = fit_line(&minima.steps[..=half], &minima.values[..=half], 0.0);
    let late = fit_line(&minima.steps[half..], &minima.values[half..], 0.0);
    let (Some(early), Some(late)) = (early, late) else { return false };
    late.growth < SLOWER * early.growth && early.growth - late.growth > 2.0 * early.error.hypot(late.error)
}

/// Returns whether the series rose faster before `start`, without a plateau in between.
fn was_faster_before(minima: &WindowMinima, start: usize, part: &Line) -> bool {
    let (steps, values) = (&minima.steps[..start], &minima.values[..start]);
    let Some(whole) = (start >= 2).then(|| fit_line(steps, values, 0.0)).flatten() else { return false };
    if whole.slope.median <= part.slope.median / SLOWER {
        return false;
    }
    let near = start.saturating_sub((start / 3).max(6));
    let was_flat =
        fit_line(&steps[near..], &values[near..], 0.0).is_some_and(|line| line.slope.median < 0.5 * part.slope.median);
    !was_flat
}
