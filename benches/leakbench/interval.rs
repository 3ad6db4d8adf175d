//! Confidence interval of a rate.

/// Probability of one tail of a two-sided 95 % interval.
const TAIL: f64 = 0.025;

/// Number of events among a number of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    pub events: usize,
    pub runs: usize,
}

impl Rate {
    /// Counts the items with a property.
    pub fn of<T>(items: impl IntoIterator<Item = T>, has: impl Fn(&T) -> bool) -> Self {
        items.into_iter().fold(Self::default(), |rate, item| Self {
            events: rate.events + usize::from(has(&item)),
            runs: rate.runs + 1,
        })
    }

    /// Returns the fraction of the runs; 0 without runs.
    pub fn fraction(self) -> f64 {
        self.events as f64 / self.runs.max(1) as f64
    }

    /// Returns the two-sided 95 % interval of Clopper and Pearson (1934).
    pub fn interval(self) -> (f64, f64) {
        (1.0 - upper_bound(self.runs - self.events, self.runs), upper_bound(self.events, self.runs))
    }

    /// Percentage with its interval: `12.3 (10.1 to 14.9)`.
    pub fn text(self) -> String {
        if self.runs == 0 {
            return "–".into();
        }
        let (low, high) = self.interval();
        let percentage = |fraction: f64| format!("{:.1}", 100.0 * fraction);
        format!("{} ({} to {})", percentage(self.fraction()), percentage(low), percentage(high))
    }
}

/// Returns the rate at which at most `events` events occur with a probability of 2.5 %.
fn upper_bound(events: usize, runs: usize) -> f64 {
    if events >= runs {
        return 1.0;
    }
    let (mut low, mut high) = (events as f64 / runs as f64, 1.0);
    for _ in 0..60 {
        let rate = f64::midpoint(low, high);
        if binomial_cdf(events, runs, rate) > TAIL { low = rate } else { high = rate }
    }
    f64::midpoint(low, high)
}

/// Returns the binomial probability of at most `events` events at a rate.
fn binomial_cdf(events: usize, runs: usize, rate: f64) -> f64 {
    if rate <= 0.0 {
        return 1.0;
    }
    if rate >= 1.0 {
        return 0.0;
    }
    let odds = rate.ln() - (-rate).ln_1p();
    let mut term = runs as f64 * (-rate).ln_1p();
    let mut sum = term.exp();
    for number in 1..=events {
        term += ((runs - number + 1) as f64 / number as f64).ln() + odds;
        sum += term.exp();
    }
    sum
}

#[cfg(test)]
mod tests {
    /// Reference: `scipy.stats.beta.ppf(0.975, events + 1, runs - events)`.
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
        for (events, runs, expected) in known {
            let found = super::upper_bound(events, runs);
            assert!((found - expected).abs() < 1e-6, "{events} of {runs}: {found}, not {expected}");
        }
    }

    #[test]
    fn the_interval_is_symmetric_and_ends_at_0_and_1() {
        let (low, high) = super::Rate { events: 50, runs: 100 }.interval();
        assert!((low - (1.0 - high)).abs() < 1e-9);
        assert_eq!(super::Rate { events: 7, runs: 7 }.interval().1, 1.0);
        assert_eq!(super::Rate { events: 0, runs: 7 }.interval().0, 0.0);
        assert_eq!(super::Rate { events: 0, runs: 0 }.text(), "–");
        assert_eq!(super::Rate::of([1, 2, 3, 4], |number| *number > 1), super::Rate { events: 3, runs: 4 });
    }
}
