//! Rule like Precog (Jindal et al. 2021, <https://arxiv.org/abs/2101.09799>): a line through a window that ends now and reaches far.
//!
//! Windows begin at each tenth of the series and have a fifth of the samples at least. One fits with R² of 0.8, and its line reaches
//! twice the present level within two more lengths of the run.

use super::Sample;
use super::line::least_squares;

pub fn grows(samples: &[Sample]) -> bool {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return false };
    let horizon = 2.0 * (last.step - first.step) as f64;
    (0..=8).any(|tenth| {
        least_squares(&samples[samples.len() * tenth / 10..]).is_some_and(|line| {
            line.slope > 0.0 && line.correlation.powi(2) >= 0.8 && line.slope * horizon >= line.end.max(0.0)
        })
    })
}
