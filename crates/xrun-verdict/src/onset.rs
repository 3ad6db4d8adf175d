//! Onset of a rise that lasts to the end of a series.

use crate::pieces::{Pieces, means};
use crate::trend::{median, robust_deviation};
use crate::window_minima::WindowSeries;

/// Part of the run in which a process starts.
const START: f64 = 0.02;
/// Smallest jump, as a part of the growth and in deviations of the moves from point to point.
const JUMP: (f64, f64) = (0.06, 6.0);
/// Cap on the jumps and on their part of the growth; more are the rise itself.
const JUMPS: (usize, f64) = (3, 0.85);
/// Ratio of a slope to that of what follows from which on both are one rise.
const SAME_RISE: f64 = 0.2;
/// Ratio of the slope of a warm-up to that of what follows, and the part of the series within which it ends.
const WARM_UP: (f64, f64) = (2.0, 0.12);
/// Ratio of a slope to that of what follows below which a piece is partly level.
const PARTLY_LEVEL: f64 = 0.7;
/// Step at which the rise that lasts to the end began; the first step where it began at the start.
pub fn onset(minima: &WindowSeries) -> u64 {
    let start = minima.first as f64 + START * minima.span() as f64;
    let warming = minima.warming.iter().copied().filter(|(step, _)| *step > start && !minima.are_heights);
    let windows: Vec<(f64, f64)> =
        warming.chain(minima.steps.iter().copied().zip(minima.values.iter().copied())).collect();
    let (points, stride) = means(&without_jumps(windows.iter().map(|(_, value)| *value).collect()));
    let pieces = Pieces::of(&points);
    let (knees, last) = (&pieces.knees, points.len().saturating_sub(1));
    let slope = |from: usize, to: usize| pieces.slope(from, to);
    let begins = |number: &usize| {
        let (before, begin) = (number.checked_sub(1).map_or(0, |before| knees[before]), knees[*number]);
        slope(before, begin) < SAME_RISE * slope(begin, last)
    };
    let found = (0..knees.len()).rev().find(begins).map(|number| knees[number]);
    let Some(begin) = found.or_else(|| end_of_warm_up(knees, last, slope)) else { return minima.first };
    let window = windows.rchunks(stride).rev().nth(begin).and_then(|chunk| chunk.last());
    window.map_or(minima.first, |(step, _)| (*step as u64 + 1).saturating_sub(minima.length))
}

/// Position at which a rise began below a warm-up, the first piece, which is steeper than all that follows.
fn end_of_warm_up(knees: &[usize], last: usize, slope: impl Fn(usize, usize) -> f64) -> Option<usize> {
    let end = *knees.first()?;
    let is_warm_up = slope(0, end) > WARM_UP.0 * slope(end, last) && end as f64 <= WARM_UP.1 * last as f64;
    let level = knees.get(1).map_or(0.0, |next| {
        // A level piece and a part of the rise, where the knee between them was not found.
        let rising = slope(end, *next) / slope(*next, last);
        if rising < PARTLY_LEVEL { (1.0 - rising.max(0.0)) * (next - end) as f64 } else { 0.0 }
    });
    is_warm_up.then_some(end + level as usize)
}

/// The values without their jumps, unless these are most of the growth.
pub fn without_jumps(points: Vec<f64>) -> Vec<f64> {
    let growth = points.last().zip(points.first()).map_or(0.0, |(last, first)| (last - first).abs());
    let moves: Vec<f64> = points.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let smallest = (JUMP.0 * growth).max(JUMP.1 * robust_deviation(&moves));
    let usual = |at: usize| {
        let near = [at.checked_sub(2), Some(at + 2)].into_iter().flatten().filter_map(|at| moves.get(at));
        near.copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or_default()
    };
    let side = |range: std::ops::Range<usize>| median(&points[range.start..range.end.min(points.len())]);
    let jump = |at: usize| {
        let moved = moves[at] - usual(at);
        let lasting = side(at + 1..at + 4) - side((at + 1).saturating_sub(3)..at + 1);
        if moved.abs() > smallest && lasting / moved > 0.7 { moved } else { 0.0 }
    };
    let jumps: Vec<f64> = (0..moves.len()).map(jump).collect();
    let upwards = jumps.iter().filter(|jump| **jump > 0.0);
    if upwards.clone().count() > JUMPS.0 || upwards.sum::<f64>() > JUMPS.1 * growth {
        return points;
    }
    let mut removed = 0.0;
    let without = points.iter().enumerate().map(|(at, value)| {
        removed += at.checked_sub(1).map_or(0.0, |before| jumps[before]);
        value - removed
    });
    without.collect()
}
