//! End of a series that rose: flat, on a step like those before, or moving.

use crate::pieces::{Pieces, means};
use crate::shape::{lasting_levels, smoothed};
use crate::thresholds::Thresholds;
use crate::trend::{fit_line, robust_deviation};
use crate::window_minima::WindowSeries;

/// End of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Rises, or cannot be distinguished from a rise.
    Moving,
    /// Flat since the window of this index, for longer than the treads before let expect.
    Flat(usize),
    /// On a tread of a staircase, for no longer than the treads before let expect.
    OnTread {
        /// Each tread is longer and each riser higher than the one before, as of a table that doubles: the whole series rises.
        steps_grow: bool,
        /// Several treads before were as long.
        is_usual: bool,
    },
}

/// Ratio of the slope of a flat end to that of the rise before.
const FLAT_SLOPE_RATIO: f64 = 0.2;
/// Smallest number of windows of a flat end.
const FLAT_WINDOWS_MIN: usize = 4;
/// Divisor of the number of windows that gives the least number of a flat end.
const FLAT_WINDOWS_DIVISOR: usize = 20;
/// Smallest number of windows of a tread.
const TREAD_WINDOWS_MIN: usize = 3;
/// Number of treads at least half as long from which on a tread is a usual one.
const USUAL_TREADS_MIN: usize = 2;
/// Part of the run from which on the last tread of steps that grow may be a rest.
const LONG_TREAD: f64 = 0.3;
/// Ratio of a flat end to the longest tread that is expected from those before.
const LONGER_THAN_TREAD: f64 = 1.4;
/// Smallest difference between the levels of two treads, in tolerances.
const RISER_MIN: f64 = 1.6;
/// Ratio of two treads, or of two risers, from which on the later one is larger.
const LARGER: f64 = 1.15;

/// Largest ratio of two ratios that are the same.
const SAME_RATIO: f64 = 1.7;

/// Stretch of windows at one level.
struct Tread {
    begin: usize,
    length: usize,
    level: f64,
}

/// Finds out how a series ends.
pub fn end_of(minima: &WindowSeries, thresholds: Thresholds) -> End {
    let values = &minima.values;
    let count = values.len();
    let levels = lasting_levels(values, (count / 60).max(1));
    let (Some(first), Some(last)) = (levels.first(), levels.last()) else { return End::Moving };
    let rise = last - first;
    if count < 2 * FLAT_WINDOWS_MIN || rise < thresholds.growth_min {
        return End::Moving;
    }
    // A recovery from a dip to the level before it is no rise.
    let smooth = smoothed(values, 2);
    let lowest = (0..count).min_by(|a, b| smooth[*a].total_cmp(&smooth[*b])).unwrap_or_default();
    if smooth[..lowest].iter().any(|value| *value > last - thresholds.growth_min.max(0.2 * rise)) {
        return End::Moving;
    }
    let residuals: Vec<f64> = smooth.iter().zip(values).map(|(level, value)| value - level).collect();
    let tolerance = thresholds.move_min.max(0.02 * rise).max(3.0 * robust_deviation(&residuals));
    let at_level = levels.partition_point(|level| *level < last - tolerance);
    let is_flat_end = |start: &usize| {
        let length = count - start;
        *start > 0
            && length >= FLAT_WINDOWS_MIN.max(count / FLAT_WINDOWS_DIVISOR)
            && is_slower(minima, &levels, *start, tolerance, thresholds.growth_min)
    };
    let Some(start) = Some(at_level).filter(is_flat_end).or_else(|| level_piece(values).filter(is_flat_end)) else {
        return End::Moving;
    };
    let length = count - start;
    let treads = treads(&levels[..start], *last, tolerance);
    // The beginning of the first tread is not known.
    let complete = treads.get(1..).unwrap_or_default();
    let longest = complete.iter().map(|tread| tread.length).max().unwrap_or_default();
    if complete.len() >= 2 && length as f64 <= LONGER_THAN_TREAD * growth_of_treads(complete) * longest as f64 {
        let alike = complete.iter().filter(|tread| 2 * tread.length >= length).count();
        // A table that is large enough looks the same, once its last tread is long.
        let rests = minima.steps[count - 1] - minima.steps[start] >= LONG_TREAD * minima.span() as f64;
        let steps_grow = !rests && steps_grow(&treads, *last);
        return End::OnTread { steps_grow, is_usual: alike >= USUAL_TREADS_MIN };
    }
    // A second move that is as much larger as the tread before it is short may be the next of a table that doubles.
    let is_sharp = |tread: &Tread| start <= tread.begin + tread.length + TREAD_WINDOWS_MIN;
    if let [first, tread] = &treads[..]
        && is_sharp(tread)
    {
        let ratio = (last - tread.level) / (tread.level - first.level);
        if (LARGER..=3.5).contains(&ratio) && length as f64 <= LONGER_THAN_TREAD * ratio * tread.length as f64 {
            return End::OnTread { steps_grow: false, is_usual: false };
        }
    }
    End::Flat(start)
}

/// Window at which the last piece of a piecewise linear fit begins, if it is much flatter than the one before.
fn level_piece(values: &[f64]) -> Option<usize> {
    let (points, stride) = means(values);
    let pieces = Pieces::of(&points);
    let (last, begin) = (points.len() - 1, *pieces.knees.last()?);
    let before = pieces.knees.iter().rev().nth(1).copied().unwrap_or_default();
    let is_level = pieces.slope(begin, last) < FLAT_SLOPE_RATIO * pieces.slope(before, begin);
    is_level.then(|| values.len() - (points.len() - begin) * stride)
}

/// Returns whether the windows from `start` on rise clearly slower than those before.
fn is_slower(minima: &WindowSeries, levels: &[f64], start: usize, tolerance: f64, growth_min: f64) -> bool {
    let length = levels.len() - start;
    let before = start.saturating_sub((2 * length).max(levels.len() / 4));
    let speed = (levels[start] - levels[before]) / (start - before) as f64;
    let expected = speed * length as f64;
    let Some(line) = fit_line(&minima.steps[start..], &minima.values[start..], 0.0) else { return false };
    // What rises by an amount that matters, however slowly, is not flat.
    let rises = line.growth >= growth_min && line.growth > 3.0 * line.error;
    !rises
        && expected >= 2.0 * tolerance
        && line.growth < FLAT_SLOPE_RATIO * expected
        && expected - line.growth > 3.0 * line.error
}

/// Treads between moves larger than `tolerance`; the last one ends at the last move.
fn treads(levels: &[f64], last: f64, tolerance: f64) -> Vec<Tread> {
    let mut treads = Vec::new();
    let mut begin = 0;
    while let Some(level) = levels.get(begin) {
        let length = levels[begin..].partition_point(|value| *value <= level + tolerance);
        // A slow climb moves by half of the tolerance between its quarters.
        let climb = levels[begin + 3 * length / 4] - levels[begin + length / 4];
        if length >= TREAD_WINDOWS_MIN && climb < tolerance / 3.0 {
            treads.push(Tread { begin, length, level: levels[begin + length / 2] });
        }
        begin += length;
    }
    // Neighbouring treads that differ by little more than the tolerance are a slow climb.
    let next: Vec<f64> = treads.iter().skip(1).map(|tread| tread.level).chain([last]).collect();
    treads
        .into_iter()
        .zip(next)
        .filter(|(tread, next)| next - tread.level >= RISER_MIN * tolerance)
        .map(|(tread, _)| tread)
        .collect()
}

/// Ratio of the next tread to the last one, if treads become longer as before; 1 where they do not.
fn growth_of_treads(treads: &[Tread]) -> f64 {
    let newest = &treads[treads.len().saturating_sub(4)..];
    if !newest.is_sorted_by(|one, next| next.length as f64 > LARGER * one.length as f64) {
        return 1.0;
    }
    let (Some(first), Some(last)) = (newest.first(), newest.last()) else { return 1.0 };
    (last.length as f64 / first.length as f64).powf(1.0 / (newest.len() - 1) as f64).min(3.0)
}

/// Returns whether treads and moves become larger by one ratio, up to the last move to `last`. The begin of the first tread
/// is not known.
fn steps_grow(treads: &[Tread], last: f64) -> bool {
    let newest = &treads[treads.len().saturating_sub(4)..];
    let levels: Vec<f64> = newest.iter().map(|tread| tread.level).chain([last]).collect();
    let moves: Vec<f64> = levels.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let lengths = newest.iter().skip(1).map(|tread| tread.length as f64).collect::<Vec<_>>();
    let ratios = [moves, lengths].into_iter().flat_map(|sizes| ratios(&sizes));
    let (low, high) = ratios.fold((f64::INFINITY, 0.0_f64), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
    newest.len() >= 3 && low > LARGER && high < SAME_RATIO * low
}

/// Ratios of each size to the one before.
fn ratios(sizes: &[f64]) -> Vec<f64> {
    sizes.windows(2).map(|pair| pair[1] / pair[0]).collect()
}
