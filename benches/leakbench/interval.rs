//! Confidence interval of a rate.

/// Probability of one tail of a two-sided 95 % interval.
const TAIL: f64 = 0.025;

/// Returns the upper bound of the two-sided 95 % interval of Clopper and Pearson (1934) for `wrong` errors in `runs`: the rate at which
/// at most `wrong` errors occur with a probability of 2.5 %.
pub fn upper_bound(wrong: usize, runs: usize) -> f64 {
    if wrong >= runs {
        return 1.0;
    }
    let (mut low, mut high) = (wrong as f64 / runs as f64, 1.0);
    for _ in 0..100 {
        let rate = f64::midpoint(low, high);
        if binomial_cdf(wrong, runs, rate) > TAIL { low = rate } else { high = rate }
    }
    f64::midpoint(low, high)
}

/// Returns the binomial probability of at most `wrong` errors in `runs` at a rate.
fn binomial_cdf(wrong: usize, runs: usize, rate: f64) -> f64 {
    if rate <= 0.0 {
        return 1.0;
    }
    if rate >= 1.0 {
        return 0.0;
    }
    let odds = rate.ln() - (-rate).ln_1p();
    let mut term = runs as f64 * (-rate).ln_1p();
    let mut sum = term.exp();
    for number in 1..=wrong {
        term += ((runs - number + 1) as f64 / number as f64).ln() + odds;
        sum += term.exp();
    }
    sum
}

#[cfg(test)]
mod tests {
    /// Reference: `scipy.stats.beta.ppf(0.975, wrong + 1, runs - wrong)`.
    #[test]
    fn the_upper_bound_is_a_beta_quantile() {
        let known = [
            (0, 200, 0.018_275_340),
            (3, 400, 0.021_760_669),
            (36, 7200, 0.006_915_451),
            (50, 100, 0.601_678_870),
            (1, 10, 0.445_016_117),
            (9, 10, 0.997_471_421),
        ];
        for (wrong, runs, expected) in known {
            let found = super::upper_bound(wrong, runs);
            assert!((found - expected).abs() < 1e-6, "{wrong} of {runs}: {found}, not {expected}");
        }
    }

    #[test]
    fn the_upper_bound_is_1_if_all_runs_are_errors() {
        assert!((super::upper_bound(7, 7) - 1.0).abs() < f64::EPSILON);
        assert!((super::upper_bound(0, 0) - 1.0).abs() < f64::EPSILON);
    }
}
