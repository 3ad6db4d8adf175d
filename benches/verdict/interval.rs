//! Between which rates does the true one lie?

/// Half of what a two-sided interval of 95 % leaves out.
const TAIL: f64 = 0.025;

/// The upper end of the two-sided 95 % interval of Clopper and Pearson (1934) for a rate that was `wrong` of `runs`:
/// the rate at which so few are seen in 2.5 % of all cases.
pub fn upper(wrong: usize, runs: usize) -> f64 {
    if wrong >= runs {
        return 1.0;
    }
    let (mut low, mut high) = (wrong as f64 / runs as f64, 1.0);
    for _ in 0..100 {
        let rate = f64::midpoint(low, high);
        if at_most(wrong, runs, rate) > TAIL { low = rate } else { high = rate }
    }
    f64::midpoint(low, high)
}

/// The probability of at most `wrong` of `runs` at a rate, term by term.
fn at_most(wrong: usize, runs: usize, rate: f64) -> f64 {
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
    /// From `scipy.stats.beta.ppf(0.975, wrong + 1, runs - wrong)`.
    #[test]
    fn the_upper_end_is_that_of_the_beta_quantile() {
        let known = [
            (0, 200, 0.018_275_340),
            (3, 400, 0.021_760_669),
            (36, 7200, 0.006_915_451),
            (50, 100, 0.601_678_870),
            (1, 10, 0.445_016_117),
            (9, 10, 0.997_471_421),
        ];
        for (wrong, runs, expected) in known {
            let found = super::upper(wrong, runs);
            assert!((found - expected).abs() < 1e-6, "{wrong} of {runs}: {found}, not {expected}");
        }
    }

    #[test]
    fn all_wrong_may_be_all() {
        assert!((super::upper(7, 7) - 1.0).abs() < f64::EPSILON);
        assert!((super::upper(0, 0) - 1.0).abs() < f64::EPSILON);
    }
}
