//! Rule of Stormlog 0.4.3 (<https://pypi.org/project/stormlog/>), `_analyze_temporal_patterns`: the slope of a regression over all
//! samples is positive, its correlation above 0.5, and its p-value below 0.05.

use super::Sample;
use super::line::least_squares;

/// Smallest correlations with a two-sided p-value of 0.05 (Student), of 5 to 15 samples; of more, those above 0.5 have a lower one.
const SIGNIFICANT: [f64; 11] = [0.878, 0.811, 0.754, 0.707, 0.666, 0.632, 0.602, 0.576, 0.553, 0.532, 0.514];

pub fn grows(samples: &[Sample]) -> bool {
    let Some(beyond) = samples.len().checked_sub(5) else { return false };
    let least = SIGNIFICANT.get(beyond).copied().unwrap_or(0.5);
    least_squares(samples).is_some_and(|line| line.correlation > least)
}
