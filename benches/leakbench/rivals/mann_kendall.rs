//! Trend test of Mann (1945) and Kendall (1975), one-sided, of at most 1,500 evenly chosen samples.

use super::Sample;

const SAMPLES_MAX: usize = 1500;
/// One-sided 1 % quantile of the normal distribution.
const SIGNIFICANT: f64 = 2.326;

pub fn grows(samples: &[Sample]) -> bool {
    let stride = samples.len().div_ceil(SAMPLES_MAX).max(1);
    let values: Vec<f64> = samples.iter().step_by(stride).map(|sample| sample.bytes).collect();
    let mut sum = 0.0;
    for (at, earlier) in values.iter().enumerate() {
        let signs =
            values[at + 1..].iter().map(|later| f64::from(i8::from(later > earlier) - i8::from(later < earlier)));
        sum += signs.sum::<f64>();
    }
    let term = |count: f64| count * (count - 1.0) * (2.0 * count + 5.0);
    let mut sorted = values.clone();
    sorted.sort_by(f64::total_cmp);
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|tied| term(tied.len() as f64)).sum();
    let variance = (term(values.len() as f64) - ties) / 18.0;
    variance > 0.0 && (sum - 1.0) / variance.sqrt() > SIGNIFICANT
}
