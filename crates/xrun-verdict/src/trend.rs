//! The rise of a series and its speed, by rank statistics that a few outliers cannot move.

/// The speed at which a series rises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// The median of the slopes between all pairs of points (Theil 1950, Sen 1968), in units of y for one of x.
    pub middle: f64,
    /// Lower and upper end of its interval.
    pub low: f64,
    pub high: f64,
}

/// Sum of the signs of all later-minus-earlier differences, and its variance when there is no trend, corrected for ties
/// (Mann 1945, Kendall 1975).
fn kendall(values: &[f64]) -> (f64, f64) {
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

/// The Mann-Kendall statistic with continuity correction: standard normal when there is no trend, positive when the
/// series rises. 0 for a series that does not change.
pub fn rise(values: &[f64]) -> f64 {
    let (sum, variance) = kendall(values);
    if variance <= 0.0 { 0.0 } else { (sum - sum.signum() * f64::from(sum != 0.0)) / variance.sqrt() }
}

/// The Theil-Sen slope of `values` over the rising `places`, with the interval of `z` standard deviations on both
/// sides, from the variance of Kendall's sum as Sen gives it. `None` for fewer than two points.
pub fn slope(places: &[f64], values: &[f64], z: f64) -> Option<Slope> {
    let mut slopes: Vec<f64> = Vec::with_capacity(values.len() * values.len() / 2);
    for at in 0..values.len() {
        for later in at + 1..values.len() {
            slopes.push((values[later] - values[at]) / (places[later] - places[at]));
        }
    }
    slopes.sort_by(f64::total_cmp);
    let count = slopes.len();
    let last = count.checked_sub(1)?;
    let (_, variance) = kendall(values);
    let reach = z * variance.max(0.0).sqrt();
    // Counted from 1, the ends are the M1-th smallest and the M1-th largest slope (Gilbert 1987, 16.4.2).
    let outside = ((count as f64 - reach) / 2.0).floor().max(1.0) as usize - 1;
    let (low, high) = (slopes[outside.min(last)], slopes[last - outside.min(last)]);
    let middle = match count % 2 {
        1 => slopes[count / 2],
        _ => (slopes[count / 2 - 1] + slopes[count / 2]) / 2.0,
    };
    Some(Slope { middle, low, high })
}

/// The straight line through a series, and how far the series keeps to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub slope: Slope,
    /// Its rise over the places of the series.
    pub growth: f64,
    /// The standard error of `growth`, for residuals that depend on those before them.
    pub error: f64,
}

/// The Theil-Sen line. Windows of memory are not independent: the error is that of a line through residuals of
/// first-order autocorrelation r, which is sqrt((1 + r) / (1 - r)) times that of independent ones. The ends of the
/// slope are `z` standard errors away, or where the order statistic has them, whichever is further.
pub fn line(places: &[f64], values: &[f64], z: f64) -> Option<Line> {
    let found = slope(places, values, z)?;
    let span = places.last()? - places.first()?;
    let residuals: Vec<f64> = places.iter().zip(values).map(|(place, value)| value - found.middle * place).collect();
    let middle = median(&residuals);
    let residuals: Vec<f64> = residuals.iter().map(|residual| residual - middle).collect();
    let count = residuals.len() as f64;
    let dependence = autocorrelation(&residuals).clamp(0.0, 0.95);
    let square = residuals.iter().map(|residual| residual * residual).sum::<f64>() / count;
    let error = (12.0 * square / count * (1.0 + dependence) / (1.0 - dependence)).sqrt();
    let growth = found.middle * span;
    let reach = if span > 0.0 { z * error / span } else { 0.0 };
    let (low, high) = (found.low.min(found.middle - reach), found.high.max(found.middle + reach));
    Some(Line { slope: Slope { low, high, ..found }, growth, error })
}

/// Autocorrelation of neighbours; 0 of a series that does not change.
fn autocorrelation(residuals: &[f64]) -> f64 {
    let square: f64 = residuals.iter().map(|residual| residual * residual).sum();
    let product: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if square > 0.0 { product / square } else { 0.0 }
}

/// The value below which so large a share of the values lies; 0 of none.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * sorted.len().saturating_sub(1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    match (sorted.get(below), sorted.get(above)) {
        (Some(low), Some(high)) => low + (high - low) * (place - place.floor()),
        _ => 0.0,
    }
}

/// The middle value; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// The standard deviation of a normal series, from the median of the distances to its median.
pub fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    1.4826 * median(&distances)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places(count: usize) -> Vec<f64> {
        (0..count).map(|at| at as f64).collect()
    }

    #[test]
    fn a_line_has_its_slope_and_no_width() {
        let line: Vec<f64> = places(12).iter().map(|x| 5.0 + 3.0 * x).collect();
        assert_eq!(slope(&places(12), &line, 2.576), Some(Slope { middle: 3.0, low: 3.0, high: 3.0 }));
    }

    /// Arithmetic: of 10 values all 45 pairs rise; the variance is 10 * 9 * 25 / 18 = 125; (45 - 1) / sqrt(125) = 3.9355.
    #[test]
    fn ten_rising_values_have_the_statistic_of_the_formula() {
        let z = rise(&places(10));
        assert!((z - 44.0 / 125f64.sqrt()).abs() < 1e-12, "{z}");
        let falling: Vec<f64> = places(10).into_iter().rev().collect();
        assert!((rise(&falling) + z).abs() < 1e-12);
    }

    /// Arithmetic: 1 1 2 2 3 has two ties of two; S = 8, variance = (5 * 4 * 15 - 2 * 2 * 1 * 9) / 18 = (300 - 36) / 18.
    #[test]
    fn ties_lower_the_variance() {
        let z = rise(&[1.0, 1.0, 2.0, 2.0, 3.0]);
        assert!((z - 7.0 / (264.0f64 / 18.0).sqrt()).abs() < 1e-12, "{z}");
        assert_eq!(rise(&[4.0; 20]), 0.0, "what does not change does not rise");
    }

    #[test]
    fn one_wild_value_does_not_move_the_slope() {
        let mut line: Vec<f64> = places(20).iter().map(|x| 2.0 * x).collect();
        line[13] = 1e9;
        let found = slope(&places(20), &line, 2.576).unwrap();
        assert!((found.middle - 2.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn nothing_can_be_said_of_one_point() {
        assert_eq!(slope(&[1.0], &[2.0], 2.0), None);
        assert_eq!((median(&[]), spread(&[7.0])), (0.0, 0.0));
    }

    /// Arithmetic: residuals of 1, -1, 1, -1, … follow no line, and each is the opposite of the one before.
    #[test]
    fn what_swings_around_a_line_has_no_larger_error_than_noise() {
        let swings: Vec<f64> = places(40).iter().map(|x| 3.0 * x + if x % 2.0 == 0.0 { 1.0 } else { -1.0 }).collect();
        let found = line(&places(40), &swings, 3.29).unwrap();
        assert!((found.growth - 117.0).abs() < 1.0, "{found:?}");
        assert!((found.error - (12.0f64 / 40.0).sqrt()).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn residuals_that_depend_on_those_before_widen_the_interval() {
        let (mut slow, mut fast) = (Vec::new(), Vec::new());
        for at in 0..40 {
            slow.push(if at / 10 % 2 == 0 { 1.0 } else { -1.0 });
            fast.push(if at % 2 == 0 { 1.0 } else { -1.0 });
        }
        let width = |values: &[f64]| {
            let found = line(&places(40), values, 3.29).unwrap().slope;
            found.high - found.low
        };
        assert!(width(&slow) > 2.0 * width(&fast));
    }

    #[test]
    fn a_quantile_lies_between_the_values_beside_it() {
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0, 5.0], 0.25), 2.0);
        assert_eq!(quantile(&[0.0, 10.0], 0.75), 7.5);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    proptest! {
        #[test]
        fn a_mirrored_series_has_the_mirrored_interval(values in proptest::collection::vec(-1e6..1e6f64, 3..40)) {
            let mirrored: Vec<f64> = values.iter().map(|value| -value).collect();
            let (one, other) = (slope(&places(values.len()), &values, 3.29), slope(&places(values.len()), &mirrored, 3.29));
            let (one, other) = (one.unwrap(), other.unwrap());
            prop_assert_eq!((one.low, one.high), (-other.high, -other.low));
        }

        #[test]
        fn the_slope_lies_in_its_interval_and_follows_scale_and_shift(
            values in proptest::collection::vec(-1e6..1e6f64, 3..24),
            scale in 0.1..10.0f64,
            shift in -1e6..1e6f64,
        ) {
            let places = places(values.len());
            let found = slope(&places, &values, 2.576).unwrap();
            prop_assert!(found.low <= found.middle && found.middle <= found.high);
            let moved: Vec<f64> = values.iter().map(|value| shift + scale * value).collect();
            let other = slope(&places, &moved, 2.576).unwrap();
            prop_assert!((other.middle - scale * found.middle).abs() <= 1e-6 * (1.0 + found.middle.abs() * scale) + 1e-3);
        }
    }
}
