//! Least-squares line through samples.

use super::Sample;

/// Least-squares line.
pub struct LeastSquares {
    pub slope: f64,
    /// Value of the line at the last sample.
    pub end: f64,
    /// Correlation of steps and bytes.
    pub correlation: f64,
}

/// Fits a line; `None` for fewer than three samples or without variance.
pub fn least_squares(samples: &[Sample]) -> Option<LeastSquares> {
    let (first, last) = (samples.first()?.step, samples.last()?.step);
    let count = samples.len() as f64;
    let x = |sample: &Sample| (sample.step - first) as f64;
    let mean_x = samples.iter().map(x).sum::<f64>() / count;
    let mean_y = samples.iter().map(|sample| sample.bytes).sum::<f64>() / count;
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for sample in samples {
        let (dx, dy) = (x(sample) - mean_x, sample.bytes - mean_y);
        (xx, xy, yy) = (xx + dx * dx, xy + dx * dy, yy + dy * dy);
    }
    let slope = xy / xx;
    let fits = samples.len() > 2 && xx > 0.0 && yy > 0.0;
    fits.then(|| LeastSquares {
        slope,
        end: mean_y + slope * ((last - first) as f64 - mean_x),
        correlation: xy / (xx * yy).sqrt(),
    })
}
