//! Comparison of trials in speed and memory, with the noise of the machine.
//!
//! Differences are relative. The noise is one number for the whole sweep: the standard deviation of the logarithm of a
//! measurement, pooled over all trials. Repeats of unrelated runs vary around the mean of their trial (one-way analysis of
//! variance). Repeats of a sweep share seeds across its trials and are compared in pairs, so what a seed does to all trials
//! is no noise (a randomised block design, the seed being the block; of two trials this is the paired t test). Intervals are
//! Student's, 95 %.

use std::collections::BTreeMap;

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
    /// Degrees of freedom: measurements less trials and, of paired repeats, less the number of seeds but one.
    pub degrees_of_freedom: usize,
}

/// Measurements of a trial by the number of the repeat: one number is one seed in all trials of a sweep.
pub type Repeats = BTreeMap<u64, f64>;

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

    /// Noise of repeats with common seeds: the residuals of an effect for each trial and one for each repeat. `None` when no
    /// two trials have two repeats in common.
    pub fn paired(trials: &[Repeats]) -> Option<Self> {
        let logarithms = trials.iter().map(|trial| {
            let values: Vec<f64> = trial.values().copied().collect();
            trial.keys().copied().zip(logarithms(&values)).collect::<Vec<_>>()
        });
        let mut cells: Vec<([u64; 2], f64)> = (0..)
            .zip(logarithms)
            .flat_map(|(trial, repeats)| repeats.into_iter().map(move |(repeat, value)| ([trial, repeat], value)))
            .collect();
        let mut effects = [0, 0];
        // Alternating means are the least squares: at once where no repeat is missing, otherwise in the limit.
        for _ in 0..100 {
            for (by, count) in effects.iter_mut().enumerate() {
                let mut sums: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
                for (at, value) in &cells {
                    let sum = sums.entry(at[by]).or_default();
                    *sum = (sum.0 + value, sum.1 + 1.0);
                }
                cells.iter_mut().for_each(|(at, value)| *value -= sums[&at[by]].0 / sums[&at[by]].1);
                *count = sums.len();
            }
        }
        let degrees_of_freedom = cells.len().saturating_sub(effects.iter().sum::<usize>().saturating_sub(1));
        let squares: f64 = cells.iter().map(|(_, residual)| residual.powi(2)).sum();
        (degrees_of_freedom > 0)
            .then(|| Self { deviation: (squares / degrees_of_freedom as f64).sqrt(), degrees_of_freedom })
    }

    /// Half of the 95 % interval of the difference of two trials with these numbers of repeats, in logarithms.
    pub fn half_width(&self, [here, there]: [usize; 2]) -> f64 {
        let counts = 1.0 / here as f64 + 1.0 / there as f64;
        student_t_quantile(self.degrees_of_freedom) * self.deviation * counts.sqrt()
    }
}

impl Change {
    /// Change of a trial against the reference by the repeats that both have, with the noise of [`Noise::paired`].
    pub fn paired(values: &Repeats, reference: &Repeats, noise: Option<Noise>) -> Option<Self> {
        let pairs = values.iter().filter_map(|(repeat, value)| Some((*value, *reference.get(repeat)?)));
        let (here, there): (Vec<f64>, Vec<f64>) = pairs.unzip();
        Self::of(&here, &there, noise)
    }

    /// Change of a trial against the reference. `None` without positive numbers in both, unless both are the same.
    pub fn of(values: &[f64], reference: &[f64], noise: Option<Noise>) -> Option<Self> {
        let nothing = |values: &[f64]| !values.is_empty() && values.iter().all(|value| *value == 0.0);
        if nothing(values) && nothing(reference) || !values.is_empty() && values == reference {
            return Some(Self { change: 0.0, low: Some(0.0), high: Some(0.0), within_noise: Some(true) });
        }
        let (here, there) = (logarithms(values), logarithms(reference));
        let difference = mean(&here)? - mean(&there)?;
        let half = noise.map(|noise| noise.half_width([here.len(), there.len()]));
        let relative = |logarithm: f64| logarithm.exp_m1();
        Some(Self {
            change: relative(difference),
            low: half.map(|half| relative(difference - half)),
            high: half.map(|half| relative(difference + half)),
            within_noise: half.map(|half| difference.abs() <= half),
        })
    }

    /// Returns whether the difference is neither noise nor less than what [`Change::words`] calls the same.
    pub fn is_shown(&self) -> bool {
        self.within_noise == Some(false) && self.short_words().0 != SAME
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
        if [self.change, low, high] == [0.0; 3] {
            return ("identical".to_owned(), None);
        }
        let (low, high) = (percent(low), percent(high));
        if low == high && low == percent(0.0) {
            return (SAME.to_owned(), None);
        }
        let change = if self.within_noise == Some(true) { "within noise".to_owned() } else { percent(self.change) };
        (change, (low != high).then(|| format!("{low} to {high}")))
    }

    /// `-30.2 % (-33.0 % to -27.3 %)`, `identical` (to the last digit), `the same`, `within noise (-2.0 % to +3.1 %)`, `-30.2 %, noise not measured`.
    pub fn words(&self) -> String {
        match (self.short_words(), self.low) {
            ((change, Some(interval)), _) => format!("{change} ({interval})"),
            ((change, None), Some(_)) => change,
            ((change, None), None) => format!("{change}, noise not measured"),
        }
    }
}

/// A difference of less than 0.05 %, noise included.
const SAME: &str = "the same";

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
        assert_eq!(words(&[0.0, 0.0], &[0.0, 0.0]).unwrap(), "identical");
        assert_eq!(words(&[1.0, 1.1], &[0.0, 0.0]), None, "no share of nothing");
        assert_eq!(words(&[0.0, 2.0], &[1.0, 1.1]), None);
        assert_eq!(words(&[1.0, 1.1], &[1.0, 1.1]).unwrap(), "identical");
        assert!(words(&[1.1, 1.0], &[1.0, 1.1]).unwrap().starts_with("within noise"));
        assert_eq!(Noise::of(&[vec![0.0, 0.0]]), None);
    }

    /// Seeds differ by a factor of ten, trials by some 10 % in each: the paired t test, 4.303 * statistics.stdev(differences) / sqrt(3).
    #[test]
    fn repeats_of_one_seed_are_compared_in_pairs() {
        let trial = |values: &[(u64, f64)]| values.iter().copied().collect::<Repeats>();
        let first = trial(&[(1, 0.1), (2, 1.0), (3, 10.0)]);
        let second = trial(&[(1, 0.109), (2, 1.1), (3, 11.2)]);
        let noise = Noise::paired(&[first.clone(), second.clone()]).unwrap();
        assert_eq!(noise.degrees_of_freedom, 2);
        let change = Change::paired(&second, &first, Some(noise)).unwrap();
        assert_eq!(change.words(), "+10.3 % (+6.6 % to +14.2 %)");
        // A repeat that only one trial has says nothing about the difference, nor does a trial of one repeat about the noise.
        let more = trial(&[(1, 0.1), (2, 1.0), (3, 10.0), (4, 7.0)]);
        let alone = trial(&[(2, 5.0)]);
        let again = Noise::paired(&[more.clone(), second.clone(), alone]).unwrap();
        assert!((again.deviation - noise.deviation).abs() < 1e-9 && again.degrees_of_freedom == 2, "{again:?}");
        assert_eq!(Change::paired(&second, &more, Some(again)).unwrap().words(), change.words());
        assert_eq!(Noise::paired(&[trial(&[(1, 2.0), (2, 3.0)])]), None, "nothing to pair with");
        assert_eq!(Noise::paired(&[Repeats::new(), Repeats::new()]), None);
        assert_eq!(Change::paired(&first, &first.clone(), Some(noise)).unwrap().words(), "identical");
    }
}
