//! Shape of the rise of a series: even, in stairs or in one jump; and the step at which it began.

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
        let levels = lasting_levels(values);
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

/// Value below which the series, smoothed by a running median, never falls again, for each position.
fn lasting_levels(values: &[f64]) -> Vec<f64> {
    let reach = (values.len() / 20).max(1);
    let around = |at: usize| &values[at.saturating_sub(reach)..(at + reach + 1).min(values.len())];
    let mut levels: Vec<f64> = (0..values.len()).map(|at| median(around(at))).collect();
    for at in (1..levels.len()).rev() {
        levels[at - 1] = levels[at - 1].min(levels[at]);
    }
    levels
}

/// Position at which a series that rises at its end began to rise: the knee of the best fit of a level line followed by
/// a rising one. 0 where a knee fits no better than one straight line.
pub fn knee(steps: &[f64], values: &[f64]) -> usize {
    let Some(straight) = squared_residuals(steps, values, 0) else { return 0 };
    let candidates =
        (1..values.len().saturating_sub(3)).filter_map(|at| Some((at, squared_residuals(steps, values, at)?)));
    match candidates.min_by(|a, b| a.1.total_cmp(&b.1)) {
        // A level beginning must explain a third of the line's residuals.
        Some((at, bent)) if bent < 0.67 * straight => at,
        _ => 0,
    }
}

/// Sum of squared residuals of the least-squares line that is level until position `at`.
fn squared_residuals(steps: &[f64], values: &[f64], at: usize) -> Option<f64> {
    let knee = *steps.get(at)?;
    let beyond = |step: f64| (step - knee).max(0.0);
    let count = values.len() as f64;
    let mean_x = steps.iter().map(|step| beyond(*step)).sum::<f64>() / count;
    let mean_y = values.iter().sum::<f64>() / count;
    let (mut variance, mut covariance) = (0.0, 0.0);
    for (step, value) in steps.iter().zip(values) {
        variance += (beyond(*step) - mean_x).powi(2);
        covariance += (beyond(*step) - mean_x) * (value - mean_y);
    }
    let slope = if variance > 0.0 { covariance / variance } else { 0.0 };
    let square = |(step, value): (&f64, &f64)| (value - mean_y - slope * (beyond(*step) - mean_x)).powi(2);
    Some(steps.iter().zip(values).map(square).sum())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(count: usize) -> Vec<f64> {
        (0..count).map(|at| at as f64).collect()
    }

    #[test]
    fn a_profile_distinguishes_one_jump_stairs_and_a_line() {
        let profile = |value: &dyn Fn(usize) -> f64| RiseProfile::of(&(0..60).map(value).collect::<Vec<_>>());
        let jump = profile(&|at| if at < 30 { 0.0 } else { 100.0 }).unwrap();
        assert_eq!((jump.moves(), jump.largest_move()), (1, 9));
        let stairs = profile(&|at| (at / 12) as f64).unwrap();
        assert_eq!((stairs.moves(), stairs.longest_plateau()), (4, 12));
        assert_eq!(profile(&|at| at as f64).unwrap().moves(), 9);
        assert_eq!(profile(&|_| 7.0), None);
        assert_eq!(profile(&|at| -(at as f64)), None);
    }

    #[test]
    fn the_knee_is_where_the_rise_begins_and_0_for_a_line() {
        let late: Vec<f64> = steps(50).iter().map(|x| 100.0 + (x - 30.0).max(0.0)).collect();
        assert_eq!(knee(&steps(50), &late), 30);
        let line: Vec<f64> = steps(50).iter().map(|x| 3.0 * x).collect();
        assert_eq!(knee(&steps(50), &line), 0);
    }

    #[test]
    fn a_series_that_stopped_is_flat_at_its_end_and_one_in_stairs_is_not() {
        let full: Vec<f64> = steps(60).iter().map(|x| x.min(50.0)).collect();
        assert!(is_flat_at_end(&steps(60), &full, 1.0, 1));
        assert!(!is_flat_at_end(&steps(60), &steps(60), 1.0, 1));
        let stairs: Vec<f64> = steps(60).iter().map(|x| (x / 15.0).floor() * 15.0).collect();
        assert!(!is_flat_at_end(&steps(60), &stairs, 1.0, 15));
    }
}
