//! Judgement on one series: growing, slowing, flat again, bounded, or too short for a verdict.
//!
//! The tests and their thresholds were chosen on the tuned half of `benches/leakbench` and evaluated on its judged half.

use crate::end::{End, end_of};
use crate::findings::{Findings, VerdictWord};
use crate::memory_release::{after_fall, after_release, floors_of_teeth};
use crate::onset::onset;
use crate::rise::{Rise, find_rise, is_rising};
use crate::shape::RiseProfile;
use crate::thresholds::{STEPS_NEEDED, Thresholds, WINDOWS_NEEDED, Z};
use crate::trend::{Line, fit_line, mann_kendall, median, quantile};
use crate::window_minima::WindowSeries;

/// Fraction of a rise that may be missing at the step from which on the series counts as flat.
const RISE_FRACTION_LEFT: f64 = 0.02;
/// Growth over the run, as a fraction of the level, that is harmless: memory is planned with larger margins.
const LEVEL_FRACTION: f64 = 0.01;
/// Smallest fraction of the run for which memory must be flat at the end to count as flat.
const FLAT_FRACTION_MIN: f64 = 0.3;
/// Smallest number of windows since the onset from which a rate is computed.
const RATE_WINDOWS_MIN: usize = 5;
/// Steps in a window of the test for an even rise.
const EVEN_RISE_WINDOW_STEPS: u64 = 8;

/// Kind of a series, which says what its growth means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesKind {
    /// Memory that was requested and not freed: heap in use, device memory in use, a buffer's bytes. Growth is a leak.
    InUse,
    /// Total in use or not: RSS, reserved pages of a pool. Its growth may be that of memory in use.
    Total,
    /// Part of a total beyond what is in use. Growth is memory that is not returned.
    Overhead,
}

/// Judges the window minima of a series; `planned` is the last step of the run as planned, 0 where
/// unknown.
pub fn judge(series: &WindowSeries, kind: SeriesKind, thresholds: Thresholds, planned: u64) -> Findings {
    let short = series.values.len() < WINDOWS_NEEDED || series.span() < STEPS_NEEDED;
    let (mut judged, mut end, mut rise) = (series.clone(), End::Moving, None);
    if !short {
        // Windows before a release are dropped only if the remainder rises.
        let released = after_release(series, thresholds).map(|part| {
            let (end, rise) = rise_of(&part, thresholds);
            (part, end, rise)
        });
        (judged, end, rise) = released.filter(|(_, _, rise)| rise.is_some()).unwrap_or_else(|| {
            let (end, rise) = rise_of(series, thresholds);
            (series.clone(), end, rise)
        });
    }
    let judged = &judged;
    let whole = fit_line(&judged.steps, &judged.values, Z);
    let last_third = judged.last_part(3);
    let late = fit_line(&last_third.steps, &last_third.values, Z);
    // The word, the date and the rate rest on one line.
    let dated = rise.as_ref().map(|rise| match end {
        End::OnTread { steps_grow: true, .. } => (judged.first, rise.line),
        _ => dated(rise),
    });
    let line = dated.map(|(_, line)| line).or(whole);
    let is_shown = line.is_some_and(|line| line.slope.low > 0.0);
    let verdict = match &rise {
        _ if short && rises_evenly(judged, thresholds) => VerdictWord::Suspect,
        _ if short => VerdictWord::Inconclusive,
        Some(rise) if rise.earlier.is_some() => VerdictWord::Slowing,
        Some(_) if !is_shown => VerdictWord::Suspect,
        Some(_) if kind == SeriesKind::Overhead => VerdictWord::Retained,
        Some(_) => VerdictWord::Growing,
        None => judge_without_rise(judged, end, whole, late, thresholds),
    };
    let bounds = [
        growth_max(judged, planned),
        after_fall(judged, thresholds).and_then(|windows| growth_max(&windows, planned)),
        floors_of_teeth(judged, thresholds).and_then(|floors| line_growth_max(&floors, judged, planned)),
    ];
    let growth_max = bounds.into_iter().flatten().reduce(f64::min);
    let is_material = |windows: &WindowSeries, growth: Option<f64>| {
        growth.is_none_or(|growth| growth > material_growth(windows, thresholds))
    };
    let verdict = match verdict {
        VerdictWord::Bounded if is_material(judged, growth_max) => match jumped_early(judged, thresholds) {
            Some(rest) if !is_material(&rest, self::growth_max(&rest, planned)) => VerdictWord::Stepped,
            _ => VerdictWord::NoGrowthFound,
        },
        verdict => verdict,
    };
    let flat_from = match end {
        End::Flat(start) => Some(judged.steps[start] as u64),
        _ => None,
    };
    Findings {
        verdict,
        windows: judged.values.len(),
        growth: line.map_or(0.0, |line| line.growth),
        slope: line.map(|line| line.slope.median),
        slope_low: line.map(|line| line.slope.low),
        slope_high: line.map(|line| line.slope.high),
        growth_max,
        mann_kendall: mann_kendall(&judged.values),
        since: dated.map(|(since, _)| since),
        earlier_slope: rise.as_ref().and_then(|rise| rise.earlier),
        flat_since: match verdict {
            VerdictWord::GrewThenFlat | VerdictWord::Stepped => flat_from.or_else(|| flat_since(judged, thresholds)),
            VerdictWord::Suspect => flat_from,
            _ => None,
        },
        late_slope: late.map(|line| line.slope.median),
        late_slope_high: late.map(|line| line.slope.high),
        more_steps: more_steps(series, verdict, short, flat_from),
    }
}

/// Step at which a rise began, and the line that shows it: since its onset, as windows before that belong to another rate. Where
/// that line may be level, the onset is none, and the rise is dated from the part in which it was found.
fn dated(rise: &Rise) -> (u64, Line) {
    let since = onset(&rise.windows);
    let start = rise.windows.steps.partition_point(|step| *step < since as f64);
    let windows = rise.windows.from(start);
    if rise.earlier.is_some() || start == 0 || windows.values.len() < RATE_WINDOWS_MIN {
        return (since, rise.line);
    }
    match fit_line(&windows.steps, &windows.values, Z) {
        Some(line) if line.slope.low > 0.0 => (since, line),
        _ => (rise.start, rise.line),
    }
}

/// Smallest growth over the run that matters: `growth_min`, or a hundredth of the level.
fn material_growth(minima: &WindowSeries, thresholds: Thresholds) -> f64 {
    thresholds.growth_min.max(LEVEL_FRACTION * median(&minima.values))
}

/// Largest growth over the run as planned that the windows do not exclude, by the narrowest of the intervals at several
/// window lengths.
fn growth_max(minima: &WindowSeries, planned: u64) -> Option<f64> {
    let mut windows = minima.clone();
    let mut least: Option<f64> = None;
    while windows.values.len() >= WINDOWS_NEEDED {
        let growth = line_growth_max(&windows, minima, planned)?;
        least = Some(least.map_or(growth, |least| least.min(growth)));
        windows = windows.coarser();
    }
    least
}

/// Upper end of the growth of the line through some windows of a series, over the run as planned.
fn line_growth_max(windows: &WindowSeries, all: &WindowSeries, planned: u64) -> Option<f64> {
    let line = fit_line(&windows.steps, &windows.values, 0.0)?;
    let observed = windows.steps.last()? - windows.steps.first()?;
    let factor = (all.span().max(planned.saturating_sub(all.first)) as f64 / observed).max(1.0);
    // A normal deviate, widened for few windows.
    let deviate = 2.0 + 4.0 / windows.values.len() as f64;
    Some((line.growth + deviate * line.robust_error).max(0.0) * factor)
}

/// Returns how a series ends, and the rise that lasts to its end.
fn rise_of(minima: &WindowSeries, thresholds: Thresholds) -> (End, Option<Rise>) {
    let end = end_of(minima, thresholds);
    let rise = match end {
        End::OnTread { steps_grow: true, .. } => fit_line(&minima.steps, &minima.values, Z).map(|line| Rise {
            windows: minima.clone(),
            start: minima.first,
            line,
            earlier: None,
        }),
        End::Moving | End::OnTread { is_usual: true, .. } => find_rise(minima, thresholds),
        End::Flat(_) | End::OnTread { .. } => None,
    };
    (end, rise)
}

/// Windows since the level of the last third was first reached, if that was in the first third, in a rise that matters.
fn jumped_early(minima: &WindowSeries, thresholds: Thresholds) -> Option<WindowSeries> {
    let since = flat_since(minima, thresholds)?;
    let rest = minima.from(minima.steps.partition_point(|step| *step < since as f64));
    let is_early = 3 * rest.values.len() >= 2 * minima.values.len();
    (is_early && median(&rest.values) - minima.values.first()? >= thresholds.growth_min).then_some(rest)
}

/// Step of the first window that is as high as the last third, apart from changes too small to be moves.
fn flat_since(minima: &WindowSeries, thresholds: Thresholds) -> Option<u64> {
    let values = &minima.values;
    let last = median(&values[values.len() - values.len() / 3..]);
    let rise = (last - values.first()?).max(0.0);
    let level = last - thresholds.move_min.min(RISE_FRACTION_LEFT * rise);
    let at = values.iter().position(|value| *value >= level)?;
    Some(minima.steps[at] as u64)
}

/// Further steps needed to decide.
fn more_steps(minima: &WindowSeries, verdict: VerdictWord, short: bool, flat_from: Option<u64>) -> Option<u64> {
    let spacing = minima.length.max(minima.spacing()).max(if minima.values.len() < 2 { minima.span() } else { 0 });
    let missing = WINDOWS_NEEDED.saturating_sub(minima.values.len()) as u64 * spacing.max(1);
    match verdict {
        VerdictWord::Inconclusive | VerdictWord::Suspect if short => {
            Some(missing.max(STEPS_NEEDED.saturating_sub(minima.span())).max(1))
        }
        // Steps until the flat end is `FLAT_FRACTION_MIN` of the run.
        VerdictWord::Suspect if flat_from.is_some() => {
            let (span, flat_length) = (
                minima.span() as f64,
                flat_from.map_or(0.0, |start| minima.steps.last().unwrap_or(&0.0) - start as f64),
            );
            let missing = (FLAT_FRACTION_MIN * span - flat_length) / (1.0 - FLAT_FRACTION_MIN);
            // A rest that is long enough is in doubt for another reason.
            Some(if missing > 0.0 { (missing.ceil() as u64).max(minima.length) } else { minima.span() })
        }
        // Twice the time distinguishes a trend from noise.
        VerdictWord::Suspect => Some(minima.span()),
        _ => None,
    }
}

/// Returns whether the newest windows make a series suspect during a run; this is no verdict.
pub fn suspicious(minima: &WindowSeries, thresholds: Thresholds) -> bool {
    rises_evenly(minima, thresholds) || is_rising(minima, thresholds)
}

/// Returns whether the last four moves are upwards to new heights, beyond the noise, similar in size, and together large
/// enough to matter.
fn rises_evenly(minima: &WindowSeries, thresholds: Thresholds) -> bool {
    let mut windows = minima.clone();
    while windows.length < EVEN_RISE_WINDOW_STEPS && windows.values.len() > 1 {
        windows = windows.coarser();
    }
    let Some(start) = windows.values.len().checked_sub(5) else { return false };
    let (before, newest) = windows.values.split_at(start);
    // A tooth of a sawtooth is no higher than those before it.
    if before.iter().any(|value| *value > newest[3]) {
        return false;
    }
    let moves: Vec<f64> = newest.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let smallest = moves.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = moves.iter().copied().fold(0.0, f64::max);
    let sum: f64 = moves.iter().sum();
    smallest > (4.0 * windows.noise).max(thresholds.move_min)
        && smallest >= 0.5 * largest
        && sum >= thresholds.growth_min
}

/// Judges a series that does not rise up to its end; it may have risen before, in a jump or slowly.
fn judge_without_rise(
    minima: &WindowSeries,
    end: End,
    whole: Option<Line>,
    late: Option<Line>,
    thresholds: Thresholds,
) -> VerdictWord {
    let values = &minima.values;
    let is_too_short = |start: usize| {
        let flat_length = minima.steps.last().zip(minima.steps.get(start)).map_or(0.0, |(last, start)| last - start);
        flat_length < FLAT_FRACTION_MIN * minima.span() as f64
    };
    if matches!(end, End::OnTread { .. }) || matches!(end, End::Flat(start) if is_too_short(start)) {
        return VerdictWord::Suspect;
    }
    let third_len = values.len() / 3;
    let (first, last) = (&values[..third_len], &values[values.len() - third_len..]);
    let (Some(whole), Some(late)) = (whole, late) else { return VerdictWord::Inconclusive };
    let rose = median(last) - median(first);
    let is_rising_late = late.growth >= 0.5 * thresholds.growth_min && late.growth > 2.0 * late.error;
    if rises_evenly(minima, thresholds) || (is_rising_late && rose >= thresholds.growth_min) {
        return VerdictWord::Suspect;
    }
    // The series moves by as much in both directions.
    let thirds_overlap = quantile(last, 0.25) <= quantile(first, 0.75);
    if rose < thresholds.growth_min || thirds_overlap {
        let maybe_growing = whole.growth >= thresholds.growth_min && whole.growth > Z * whole.error;
        return if maybe_growing { VerdictWord::Suspect } else { VerdictWord::Bounded };
    }
    // Flat only where the last third of the run is shown to be flat: by the interval of its slope, by its growth compared
    // with the rise before it, and by its ends.
    let third_start = minima.first as f64 + minima.span() as f64 * 2.0 / 3.0 - minima.length as f64;
    let last_values = minima.from(minima.steps.partition_point(|step| *step < third_start)).values;
    let margin = last_values.len().min(3);
    let moved = median(&last_values[last_values.len() - margin..]) - median(&last_values[..margin]);
    let may_rise = late.growth + 2.0 * late.error >= thresholds.growth_min || late.growth > 0.2 * rose;
    match RiseProfile::of(values) {
        Some(profile) if !may_rise && (profile.largest_move() >= 7 || profile.moves() <= 2) => VerdictWord::Stepped,
        _ if may_rise || moved >= 0.6 * thresholds.growth_min => VerdictWord::Suspect,
        _ => VerdictWord::GrewThenFlat,
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
