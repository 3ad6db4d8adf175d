//! Line-by-line comparison of the `metrics.jsonl` of two runs.
//!
//! Both files are streamed. Cap: [`SERIES_MAX`] series of numbers; beyond it only the counts of equal and different
//! values are kept.

use std::collections::BTreeMap;
use std::path::Path;

use super::format::MetricsLine;
use super::read::{self, ReadError};
use super::reproduction::{ComparedMetrics, FirstDifference, SeriesAgreement};

/// Maximum number of series with statistics of their own; more than any task reports.
pub const SERIES_MAX: usize = 256;

/// Result of the comparison.
#[derive(Clone, Debug, Default)]
pub struct MetricsComparison {
    /// Numbers and the first difference; without the series.
    pub metrics: ComparedMetrics,
    /// The lines describe different things (another step, kind or set of names). No line after this one is compared.
    pub diverged: bool,
    /// Sums in place of means; `share` is `None` if a value is present in one run and missing in the other.
    series: BTreeMap<String, SeriesAgreement>,
}

/// Compares the lines that both runs have, in order.
pub fn compare(original: &Path, reproduction: &Path) -> Result<MetricsComparison, ReadError> {
    let mut comparison = MetricsComparison::default();
    let (mut first, mut second) = (read::metrics(original)?, read::metrics(reproduction)?);
    loop {
        let (a, b) = (first.next().transpose()?, second.next().transpose()?);
        comparison.metrics.lines_original += u64::from(a.is_some());
        comparison.metrics.lines_reproduction += u64::from(b.is_some());
        match (a, b) {
            (None, None) => return Ok(comparison),
            (Some(a), Some(b)) if !comparison.diverged => comparison.add(&a, &b),
            _ => {}
        }
    }
}

impl MetricsComparison {
    fn add(&mut self, a: &MetricsLine, b: &MetricsLine) {
        let (key_a, key_b) = (line_key(a), line_key(b));
        if key_a != key_b {
            self.diverged = true;
            self.differs(a.step().min(b.step()), "line", key_a, key_b);
            return;
        }
        self.metrics.lines_compared += 1;
        self.metrics.last_step = self.metrics.last_step.max(Some(a.step()));
        for ((name, a_value), (_, b_value)) in values(a).into_iter().zip(values(b)) {
            self.value(a.step(), name, a_value, b_value);
        }
    }

    fn value(&mut self, step: u64, name: String, a: Option<f64>, b: Option<f64>) {
        self.metrics.values_compared += 1;
        let same = a.map(f64::to_bits) == b.map(f64::to_bits);
        if !same {
            self.metrics.values_different += 1;
            let text = |value: Option<f64>| value.map_or("not measured".into(), |value| format!("{value:?}"));
            self.differs(step, &name, text(a), text(b));
        }
        if self.series.len() >= SERIES_MAX && !self.series.contains_key(&name) {
            return;
        }
        let known = SeriesAgreement { name: name.clone(), share: Some(0.0), ..SeriesAgreement::default() };
        let sums = self.series.entry(name).or_insert(known);
        sums.values += 1;
        sums.different += u64::from(!same);
        sums.share = sums.share.filter(|_| a.is_some() == b.is_some());
        let (Some(a), Some(b)) = (a, b) else { return };
        let difference = (a - b).abs();
        sums.mean_size += a.abs();
        sums.mean_difference += difference;
        if difference > sums.largest_difference {
            (sums.largest_difference, sums.largest_at) = (difference, Some(step));
        }
    }

    fn differs(&mut self, step: u64, value: &str, original: String, reproduction: String) {
        let value = value.to_owned();
        self.metrics.first_difference.get_or_insert(FirstDifference { step, value, original, reproduction });
    }

    /// Returns `true` if no bit differs.
    pub fn identical(&self) -> bool {
        self.metrics.values_different == 0 && !self.diverged
    }

    /// Returns `true` if the mean absolute difference of each series is at most `tolerance` times its mean absolute
    /// value.
    pub fn within(&self, tolerance: f64) -> bool {
        let near = |sums: &SeriesAgreement| sums.share.is_some() && sums.mean_difference <= tolerance * sums.mean_size;
        !self.diverged && self.series.len() < SERIES_MAX && self.series.values().all(near)
    }

    /// Result with the statistics of each series, largest relative difference first.
    pub fn into_metrics(self) -> ComparedMetrics {
        let mut series: Vec<SeriesAgreement> = self.series.into_values().collect();
        for one in &mut series {
            let relative = if one.mean_difference == 0.0 { 0.0 } else { one.mean_difference / one.mean_size };
            one.share = one.share.map(|_| relative).filter(|relative| relative.is_finite());
            one.mean_size /= one.values.max(1) as f64;
            one.mean_difference /= one.values.max(1) as f64;
        }
        let rank = |one: &SeriesAgreement| one.share.unwrap_or(f64::INFINITY);
        series.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
        ComparedMetrics { series, ..self.metrics }
    }
}

/// Key of a line: step, kind and names. Lines with equal keys have the same values in the same order.
fn line_key(line: &MetricsLine) -> String {
    let names = |names: &mut dyn Iterator<Item = &String>| names.map(String::as_str).collect::<Vec<_>>().join(" ");
    match line {
        MetricsLine::Train { step, epoch, batch, values, .. } => {
            format!("{batch} step {step} of epoch {epoch} with {}", names(&mut values.keys()))
        }
        MetricsLine::Validation { step, epoch, metrics, .. } => {
            format!("validation after step {step} of epoch {epoch} with {}", names(&mut metrics.keys()))
        }
    }
}

fn values(line: &MetricsLine) -> Vec<(String, Option<f64>)> {
    match line {
        MetricsLine::Train { batch, loss, learning_rate, gradient_norm, gradient_norm_median, values, .. } => {
            let series = |name: &str| format!("{name} of {batch} steps");
            let mut all = vec![
                (series("loss"), Some(*loss)),
                (series("learning_rate"), *learning_rate),
                (series("gradient_norm"), *gradient_norm),
                (series("gradient_norm_median"), *gradient_norm_median),
            ];
            all.extend(values.iter().map(|(name, value)| (series(name), Some(*value))));
            all
        }
        MetricsLine::Validation { metrics, .. } => {
            metrics.iter().map(|(name, value)| (format!("metric {name}"), *value)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::files::{layout, write};

    fn run(losses: &[f64]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let line = |(at, loss): (usize, &f64)| {
            let line = MetricsLine::Train {
                step: at as u64 + 1,
                epoch: 1,
                batch: "dummy".into(),
                loss: *loss,
                learning_rate: Some(0.1),
                gradient_norm: None,
                gradient_norm_median: None,
                values: BTreeMap::new(),
            };
            serde_json::to_string(&line).unwrap() + "\n"
        };
        let text: String = losses.iter().enumerate().map(line).collect();
        write::replace(&directory.path().join(layout::METRICS), text.as_bytes()).unwrap();
        directory
    }

    fn compared(a: &[f64], b: &[f64]) -> MetricsComparison {
        let (a, b) = (run(a), run(b));
        compare(a.path(), b.path()).unwrap()
    }

    #[test]
    fn a_difference_in_the_last_bit_is_found() {
        let same = compared(&[1.0, 0.1], &[1.0, 0.1]);
        assert!(same.identical() && same.within(0.0) && same.metrics.first_difference.is_none());
        let near = compared(&[1.0, 0.1], &[1.0, 0.1_f64.next_up()]);
        assert!(!near.identical() && !near.within(0.0) && near.within(1e-12));
        let first = near.metrics.first_difference.clone().unwrap();
        assert_eq!((first.step, first.value.as_str()), (2, "loss of dummy steps"));
        assert_eq!((first.original.as_str(), first.reproduction.as_str()), ("0.1", "0.10000000000000002"));
        assert_eq!(near.metrics.values_different, 1);
    }

    #[test]
    fn a_tolerance_is_relative_to_the_mean_size() {
        let off = compared(&[100.0, 300.0], &[101.0, 303.0]);
        assert!(off.within(0.0101) && !off.within(0.0099));
        let loss = &off.into_metrics().series[0];
        assert_eq!((loss.mean_size, loss.mean_difference, loss.largest_at), (200.0, 2.0, Some(2)));
        let from_nothing = compared(&[0.0], &[1e-9]);
        assert!(!from_nothing.within(1.0) && from_nothing.into_metrics().series[0].share.is_none());
    }

    #[test]
    fn runs_of_different_length_are_compared_on_their_common_lines() {
        let shorter = compared(&[1.0, 2.0, 3.0], &[1.0, 2.0]);
        assert!(shorter.identical());
        assert_eq!(
            (shorter.metrics.lines_compared, shorter.metrics.lines_original, shorter.metrics.lines_reproduction),
            (2, 3, 2)
        );
    }
}
