//! Trend test and slope of a series, by rank statistics that are robust to outliers.

/// Slope of a series, with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// Median of the slopes between all pairs of points (Theil 1950, Sen 1968), in units of y for one of x.
    pub median: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
}

/// Sum of the signs of all later-minus-earlier differences, and its variance when there is no trend, corrected for ties
/// (Mann 1945, Kendall 1975).
fn kendall_sum(values: &[f64]) -> (f64, f64) {
    let mut sum = 0.0;
    for (at, earlier) in values.iter().enumerate() {
        for later in &values[at + 1..] {
            sum += f64::from(i8::from(later > earlier) - i8::from(later < earlier));
        }
    }
    let term = |count: f64| count * (count - 1.0) * (2.0 * count + 5.0);
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|tied| term(tied.len() as f64)).sum();
    (sum, (term(values.len() as f64) - ties) / 18.0)
}

/// Mann-Kendall statistic with continuity correction: standard normal when there is no trend, positive when the series
/// rises, 0 for a constant series.
pub fn mann_kendall(values: &[f64]) -> f64 {
    let (sum, variance) = kendall_sum(values);
    if variance <= 0.0 { 0.0 } else { (sum - sum.signum() * f64::from(sum != 0.0)) / variance.sqrt() }
}

/// Theil-Sen slope of `values` over the ascending `steps`, with the interval of `z` standard deviations on both sides,
/// from the variance of Kendall's sum (Sen 1968). `None` for fewer than two points.
pub fn theil_sen(steps: &[f64], values: &[f64], z: f64) -> Option<Slope> {
    let mut slopes: Vec<f64> = Vec::with_capacity(values.len() * values.len() / 2);
    for at in 0..values.len() {
        for later in at + 1..values.len() {
            slopes.push((values[later] - values[at]) / (steps[later] - steps[at]));
        }
    }
    slopes.sort_by(f64::total_cmp);
    let count = slopes.len();
    let last = count.checked_sub(1)?;
    let (_, variance) = kendall_sum(values);
    let reach = z * variance.max(0.0).sqrt();
    // Counted from 1, the ends are the M1-th smallest and the M1-th largest slope (Gilbert 1987, 16.4.2).
    let outside = ((count as f64 - reach) / 2.0).floor().max(1.0) as usize - 1;
    let (low, high) = (slopes[outside.min(last)], slopes[last - outside.min(last)]);
    Some(Slope { median: median(&slopes), low, high })
}

/// Straight line through a series, with the standard error of its growth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub slope: Slope,
    /// Rise of the line over the steps of the series.
    pub growth: f64,
    /// Standard error of `growth`, corrected for autocorrelated residuals.
    pub error: f64,
    /// Error without the weight of residuals far off.
    pub robust_error: f64,
}

/// Distance from the line in robust standard deviations beyond which a residual counts as if it were there.
const FARTHEST: f64 = 4.0;

/// Theil-Sen line through a series; `None` for fewer than two points. Windows of memory are not independent: the error
/// is that of a line through residuals of first-order autocorrelation r, sqrt((1 + r) / (1 - r)) times that of
/// independent ones. The interval of the slope is the wider of `z` standard errors and the order statistic's.
pub fn fit_line(steps: &[f64], values: &[f64], z: f64) -> Option<Line> {
    let found = theil_sen(steps, values, z)?;
    let span = steps.last()? - steps.first()?;
    let residuals: Vec<f64> = steps.iter().zip(values).map(|(step, value)| value - found.median * step).collect();
    let center = median(&residuals);
    let residuals: Vec<f64> = residuals.iter().map(|residual| residual - center).collect();
    let error = growth_error(&residuals);
    let growth = found.median * span;
    let reach = if span > 0.0 { z * error / span } else { 0.0 };
    let (low, high) = (found.low.min(found.median - reach), found.high.max(found.median + reach));
    // A few windows far off, such as those of a start in the middle, say little about the rest.
    let farthest = match robust_deviation(&residuals) {
        deviation if deviation > 0.0 => FARTHEST * deviation,
        _ => f64::INFINITY,
    };
    let near: Vec<f64> = residuals.iter().map(|residual| residual.clamp(-farthest, farthest)).collect();
    Some(Line { slope: Slope { low, high, ..found }, growth, error, robust_error: growth_error(&near) })
}

/// Standard error of the growth of a line with these residuals, by their first-order autocorrelation.
fn growth_error(residuals: &[f64]) -> f64 {
    let count = residuals.len() as f64;
    let correlation = autocorrelation(residuals).clamp(0.0, 0.95);
    let square = residuals.iter().map(|residual| residual * residual).sum::<f64>() / count;
    (12.0 * square / count * (1.0 + correlation) / (1.0 - correlation)).sqrt()
}

/// First-order autocorrelation; 0 for a constant series.
fn autocorrelation(residuals: &[f64]) -> f64 {
    let square: f64 = residuals.iter().map(|residual| residual * residual).sum();
    let product: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if square > 0.0 { product / square } else { 0.0 }
}

/// Quantile of the values at a `fraction` from 0 to 1, linearly interpolated; 0 for no values.
pub fn quantile(values: &[f64], fraction: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = fraction * sorted.len().saturating_sub(1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    match (sorted.get(below), sorted.get(above)) {
        (Some(low), Some(high)) => low + (high - low) * (position - position.floor()),
        _ => 0.0,
    }
}

/// Median of the values; 0 for no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// Robust standard deviation: the median absolute deviation, scaled for a normal distribution.
pub fn robust_deviation(values: &[f64]) -> f64 {
    let center = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - center).abs()).collect();
    1.4826 * median(&distances)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steps(count: usize) -> Vec<f64> {
        (0..count).map(|at| at as f64).collect()
    }

    #[test]
    fn an_exact_line_has_an_interval_of_width_zero() {
        let line: Vec<f64> = steps(12).iter().map(|x| 5.0 + 3.0 * x).collect();
        assert_eq!(theil_sen(&steps(12), &line, 2.576), Some(Slope { median: 3.0, low: 3.0, high: 3.0 }));
    }

    /// Arithmetic: all 45 pairs of 10 values rise; the variance is 10 * 9 * 25 / 18 = 125; (45 - 1) / sqrt(125) = 3.9355.
    #[test]
    fn ten_rising_values_have_the_statistic_of_the_formula() {
        let z = mann_kendall(&steps(10));
        assert!((z - 44.0 / 125f64.sqrt()).abs() < 1e-12, "{z}");
        let falling: Vec<f64> = steps(10).into_iter().rev().collect();
        assert!((mann_kendall(&falling) + z).abs() < 1e-12);
    }

    #[test]
    fn one_wild_value_does_not_move_the_slope() {
        let mut line: Vec<f64> = steps(20).iter().map(|x| 2.0 * x).collect();
        line[13] = 1e9;
        let found = theil_sen(&steps(20), &line, 2.576).unwrap();
        assert!((found.median - 2.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn autocorrelated_residuals_widen_the_interval() {
        let (mut slow, mut fast) = (Vec::new(), Vec::new());
        for at in 0..40 {
            slow.push(if at / 10 % 2 == 0 { 1.0 } else { -1.0 });
            fast.push(if at % 2 == 0 { 1.0 } else { -1.0 });
        }
        let width = |values: &[f64]| {
            let found = fit_line(&steps(40), values, 3.29).unwrap().slope;
            found.high - found.low
        };
        assert!(width(&slow) > 2.0 * width(&fast));
    }

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0, 5.0], 0.25), 2.0);
        assert_eq!(quantile(&[0.0, 10.0], 0.75), 7.5);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    proptest! {
        #[test]
        fn the_slope_lies_in_its_interval_and_follows_scale_and_shift(
            values in proptest::collection::vec(-1e6..1e6f64, 3..24),
            scale in 0.1..10.0f64,
            shift in -1e6..1e6f64,
        ) {
            let steps = steps(values.len());
            let found = theil_sen(&steps, &values, 2.576).unwrap();
            prop_assert!(found.low <= found.median && found.median <= found.high);
            let moved: Vec<f64> = values.iter().map(|value| shift + scale * value).collect();
            let other = theil_sen(&steps, &moved, 2.576).unwrap();
            prop_assert!((other.median - scale * found.median).abs() <= 1e-6 * (1.0 + found.median.abs() * scale) + 1e-3);
        }
    }
}
