//! Shape of the rise of a series: even, in stairs or in one jump.

use crate::trend::{fit_line, median};

/// Number of equal parts into which a rise is divided.
const PARTS: usize = 10;

/// Positions at which a series passed each tenth of its rise for good.
#[derive(Clone, Debug, PartialEq)]
pub struct RiseProfile {
    /// Positions, from the first tenth to the ninth.
    crossings: Vec<usize>,
}

impl RiseProfile {
    /// Profile of a series without single outliers; `None` where it ends no higher than it began.
    pub fn of(values: &[f64]) -> Option<Self> {
        let levels = lasting_levels(values, (values.len() / 20).max(1));
        let (first, last) = (*levels.first()?, *levels.last()?);
        let growth = last - first;
        let crossing =
            |part: usize| levels.partition_point(|value| *value < first + growth * part as f64 / PARTS as f64);
        (growth > 0.0).then(|| Self { crossings: (1..PARTS).map(crossing).collect() })
    }

    /// Number of distinct positions at which tenths were passed.
    pub fn moves(&self) -> usize {
        let mut distinct = self.crossings.clone();
        distinct.dedup();
        distinct.len()
    }

    /// Largest number of tenths that were passed at one position and the next.
    pub fn largest_move(&self) -> usize {
        let near = |at: usize| self.crossings.iter().filter(|crossing| (at..=at + 1).contains(crossing)).count();
        self.crossings.iter().map(|crossing| near(*crossing)).max().unwrap_or_default()
    }

    /// Longest plateau between two moves, in positions.
    pub fn longest_plateau(&self) -> usize {
        self.crossings.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }
}

/// Running median of `reach` positions on both sides.
pub fn smoothed(values: &[f64], reach: usize) -> Vec<f64> {
    let around = |at: usize| &values[at.saturating_sub(reach)..(at + reach + 1).min(values.len())];
    (0..values.len()).map(|at| median(around(at))).collect()
}

/// Value below which the series, smoothed by a running median, never falls again, for each position.
pub fn lasting_levels(values: &[f64], reach: usize) -> Vec<f64> {
    let mut levels = smoothed(values, reach);
    for at in (1..levels.len()).rev() {
        levels[at - 1] = levels[at - 1].min(levels[at]);
    }
    levels
}

/// Returns whether two levels fit a series as well as a level and a line that rises from its end on.
pub fn is_jump(steps: &[f64], values: &[f64]) -> bool {
    let count = values.len();
    let ends = 2..count.saturating_sub(2);
    let two_levels = ends.clone().map(|at| around_mean(&values[..at]) + around_mean(&values[at..]));
    let knees = (0..count.saturating_sub(3)).filter_map(|at| around_line(steps, values, at));
    let least = |residuals: &mut dyn Iterator<Item = f64>| residuals.fold(f64::INFINITY, f64::min);
    least(&mut { two_levels }) < least(&mut { knees })
}

/// Sum of squared differences from the mean.
fn around_mean(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// Sum of squared residuals of the least-squares line that is level until position `at`.
fn around_line(steps: &[f64], values: &[f64], at: usize) -> Option<f64> {
    let knee = *steps.get(at)?;
    let beyond: Vec<f64> = steps.iter().map(|step| (step - knee).max(0.0)).collect();
    let count = values.len() as f64;
    let (mean_x, mean_y) = (beyond.iter().sum::<f64>() / count, values.iter().sum::<f64>() / count);
    let variance: f64 = beyond.iter().map(|x| (x - mean_x).powi(2)).sum();
    let covariance: f64 = beyond.iter().zip(values).map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let slope = if variance > 0.0 { covariance / variance } else { 0.0 };
    Some(beyond.iter().zip(values).map(|(x, y)| (y - mean_y - slope * (x - mean_x)).powi(2)).sum())
}

/// Returns whether a series is flat at its end, compared with a line of this `slope`: over its last quarter, sixth or
/// tenth it grew by significantly less than 40 % of the line. A flat end no longer than the longest plateau before it
/// does not count: a series in stairs has such ends.
pub fn is_flat_at_end(steps: &[f64], values: &[f64], slope: f64, longest_plateau: usize) -> bool {
    [4, 6, 10].iter().any(|part| {
        let start = values.len() - (values.len() / part).max(5).min(values.len());
        let (steps, values) = (&steps[start..], &values[start..]);
        let Some(end) = fit_line(steps, values, 0.0) else { return false };
        let expected = slope * (steps[steps.len() - 1] - steps[0]);
        end.growth < 0.4 * expected && expected - end.growth > 3.0 * end.error && values.len() > longest_plateau + 1
    })
}
