//! Comparison of trials in speed and memory, with the noise of the machine.
//!
//! Differences are relative. The noise is one number for the whole sweep: the standard deviation of the logarithm of a
//! measurement around the mean of its trial, pooled over all trials (one-way analysis of variance). Repeats differ in
//! seed and in time, so both are part of it. Intervals are Student's, 95 %.

use schemars::JsonSchema;
use serde::Serialize;

use xrun_core::task::metric::student_t_quantile;

/// Median and range of a measurement over the repeats of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub low: f64,
    /// The maximum.
    pub high: f64,
    /// Number of repeats that were measured.
    pub count: usize,
}

/// The noise of a measurement, relative.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Noise {
    /// Standard deviation of the logarithm.
    pub deviation: f64,
    /// Degrees of freedom: measurements less trials.
    pub degrees_of_freedom: usize,
}

/// A trial against the reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// Relative change: 0.1 is a tenth more than the reference.
    pub change: f64,
    /// The lower end of the 95 % confidence interval; `null` when noise was not measured.
    pub low: Option<f64>,
    /// The upper end of that interval.
    pub high: Option<f64>,
    /// The interval contains 0: the difference may be noise. `null` when noise was not measured.
    pub within_noise: Option<bool>,
}

impl Spread {
    /// Median and range; `None` without values.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&low, &high) = values.first().zip(values.last())?;
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Self { median, low, high, count: values.len() })
    }
}

impl Noise {
    /// Noise of the repeats of each trial; `None` when no trial has two.
    pub fn of(trials: &[Vec<f64>]) -> Option<Self> {
        let mut squares = 0.0;
        let mut degrees_of_freedom = 0;
        for values in trials {
            let logarithms = logarithms(values);
            // A trial without logarithms tells nothing about the noise.
            let Some(mean) = mean(&logarithms) else { continue };
            squares += logarithms.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            degrees_of_freedom += logarithms.len() - 1;
        }
        (degrees_of_freedom > 0)
            .then(|| Self { deviation: (squares / degrees_of_freedom as f64).sqrt(), degrees_of_freedom })
    }
}

impl Change {
    /// Change of a trial against the reference. `None` without positive numbers in both, unless both are all 0.
    pub fn of(values: &[f64], reference: &[f64], noise: Option<Noise>) -> Option<Self> {
        let nothing = |values: &[f64]| !values.is_empty() && values.iter().all(|value| *value == 0.0);
        if nothing(values) && nothing(reference) {
            return Some(Self { change: 0.0, low: Some(0.0), high: Some(0.0), within_noise: Some(true) });
        }
        let (here, there) = (logarithms(values), logarithms(reference));
        let difference = mean(&here)? - mean(&there)?;
        let half = noise.map(|noise| {
            let counts = 1.0 / here.len() as f64 + 1.0 / there.len() as f64;
            student_t_quantile(noise.degrees_of_freedom) * noise.deviation * counts.sqrt()
        });
        let relative = |logarithm: f64| logarithm.exp_m1();
        Some(Self {
            change: relative(difference),
            low: half.map(|half| relative(difference - half)),
            high: half.map(|half| relative(difference + half)),
            within_noise: half.map(|half| difference.abs() <= half),
        })
    }

    /// The change, and its interval where the ends differ as text, below a sentence on the noise.
    pub fn short_words(&self) -> (String, Option<String>) {
        let percent = |share: f64| match 100.0 * share {
            // Not -0.0.
            small if small.abs() < 0.05 => "0.0 %".to_owned(),
            percent if percent.abs() >= 1000.0 => format!("{percent:+.0} %"),
            percent => format!("{percent:+.1} %"),
        };
        let Some((low, high)) = self.low.zip(self.high) else { return (percent(self.change), None) };
        let (low, high) = (percent(low), percent(high));
        if low == high && low == percent(0.0) {
            return ("the same".to_owned(), None);
        }
        let change = if self.within_noise == Some(true) { "within noise".to_owned() } else { percent(self.change) };
        (change, (low != high).then(|| format!("{low} to {high}")))
    }

    /// `-30.2 % (-33.0 % to -27.3 %)`, `the same`, `within noise (-2.0 % to +3.1 %)`, `-30.2 %, noise not measured`.
    pub fn words(&self) -> String {
        match (self.short_words(), self.low) {
            ((change, Some(interval)), _) => format!("{change} ({interval})"),
            ((change, None), Some(_)) => change,
            ((change, None), None) => format!("{change}, noise not measured"),
        }
    }
}

/// Logarithms; empty when one of the values has none: a relative change from 0 has no meaning.
fn logarithms(values: &[f64]) -> Vec<f64> {
    let has_one = |value: &f64| *value > 0.0 && value.is_finite();
    if values.iter().all(has_one) { values.iter().map(|value| value.ln()).collect() } else { Vec::new() }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_held_against_the_noise_between_repeats() {
        // exp(0.1) - 1 = 0.10517 apart; deviation 0.1 of each pair around its mean gives sqrt(2 * 2 * 0.01 / 2).
        let (low, high) = ((1.0f64 - 0.1).exp(), (1.0f64 + 0.1).exp());
        let trials = [vec![low, high], vec![low * 0.1f64.exp(), high * 0.1f64.exp()]];
        let noise = Noise::of(&trials).unwrap();
        assert_eq!(noise.degrees_of_freedom, 2);
        assert!((noise.deviation - 0.02f64.sqrt()).abs() < 1e-12, "{noise:?}");
        let change = Change::of(&trials[1], &trials[0], Some(noise)).unwrap();
        assert!((change.change - 0.105_17).abs() < 1e-5);
        // 4.303 * 0.14142 * sqrt(1/2 + 1/2) = 0.60854
        assert!((change.high.unwrap() - (0.1f64 + 0.608_54).exp_m1()).abs() < 1e-3, "{change:?}");
        assert!(change.words().starts_with("within noise (-39.9 % to +103."), "{}", change.words());
        let still = Noise { deviation: 0.001, ..noise };
        let change = Change::of(&trials[1], &trials[0], Some(still)).unwrap();
        assert_eq!(change.words(), "+10.5 % (+10.0 % to +11.0 %)");
        let hardly = Change { change: 1e-4, low: Some(-2e-4), high: Some(3e-4), within_noise: Some(true) };
        assert_eq!(hardly.words(), "the same", "and not within noise (0.0 % to 0.0 %)");
        assert_eq!(Change::of(&[1.1], &[1.0], None).unwrap().words(), "+10.0 %, noise not measured");
        assert_eq!(Noise::of(&[vec![1.0], vec![2.0]]), None);
    }

    #[test]
    fn a_point_that_needs_nothing_takes_no_noise_from_the_others() {
        let trials = [vec![0.0, 0.0], vec![1.0, 1.1], vec![0.0, 2.0]];
        let noise = Noise::of(&trials).unwrap();
        assert_eq!(noise, Noise::of(&trials[1..2]).unwrap());
        let words = |values: &[f64], reference: &[f64]| Change::of(values, reference, Some(noise)).map(|c| c.words());
        assert_eq!(words(&[0.0, 0.0], &[0.0, 0.0]).unwrap(), "the same");
        assert_eq!(words(&[1.0, 1.1], &[0.0, 0.0]), None, "no share of nothing");
        assert_eq!(words(&[0.0, 2.0], &[1.0, 1.1]), None);
        assert!(words(&[1.0, 1.1], &[1.0, 1.1]).unwrap().starts_with("within noise"));
        assert_eq!(Noise::of(&[vec![0.0, 0.0]]), None);
    }
}
