//! Rule of runmedic 0.1.1 (<https://pypi.org/project/runmedic/>), `check_memory_growth`: without the first tenth, the median of the last
//! quarter is 1.2 times that of the first, and the rank correlation with the steps is 0.8.

use super::super::table::median;
use super::Sample;

pub fn grows(samples: &[Sample]) -> bool {
    let judged = &samples[samples.len() / 10..];
    let quarter = (judged.len() / 4).max(1);
    if samples.len() < 10 {
        return false;
    }
    // Python's median of an even number is the mean of two.
    let middle = |part: &[Sample]| -> f64 {
        let upper = median(part.iter().map(|sample| sample.bytes)).unwrap_or_default();
        let lower = median(part.iter().map(|sample| -sample.bytes)).unwrap_or_default();
        (upper - lower) / 2.0
    };
    let (first, last) = (middle(&judged[..quarter]), middle(&judged[judged.len() - quarter..]));
    first > 0.0 && last >= 1.2 * first && rank_correlation(judged) >= 0.8
}

/// Spearman's correlation of the steps, which are sorted, and the bytes; equal ones have ranks in their order, as in the tool.
fn rank_correlation(samples: &[Sample]) -> f64 {
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_by(|a, b| samples[*a].bytes.total_cmp(&samples[*b].bytes));
    let squares: f64 = order.iter().enumerate().map(|(rank, at)| (rank as f64 - *at as f64).powi(2)).sum();
    let count = samples.len() as f64;
    1.0 - 6.0 * squares / (count * (count * count - 1.0))
}
