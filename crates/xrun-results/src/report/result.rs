//! Results of a run: the loss of each kind of step, and each validation metric before, after and at its best.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::formatting::number;
use super::series::ThinnedSeries;
use crate::loss::KindLoss;
use crate::view::RunView;
use xrun_core::files::layout;
use xrun_core::task::metric::{Direction, Interval, PlannedMetric};
use xrun_core::units::Bytes;

/// Values of a validation metric.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricResult {
    /// Its description; that of a metric without a plan has only the name.
    pub planned: PlannedMetric,
    /// Value before training.
    pub before: Option<f64>,
    /// Value of the last validation after a step.
    pub after: Option<f64>,
    /// 95 % interval of `after`.
    pub interval: Option<Interval>,
    /// Best value of all validations after a step, and its step.
    pub best: Option<(f64, u64)>,
    /// The metric selects the best checkpoint.
    pub selects_best: bool,
}

impl MetricResult {
    /// Formats a value, with its unit if that is `%`.
    pub fn value(&self, value: f64) -> String {
        format!("{}{}", number(value), PlannedMetric::percent(&self.planned.unit))
    }
}

/// Explains the 95 % intervals; `None` if no metric has one.
pub fn intervals_note(metrics: &[MetricResult]) -> Option<String> {
    let episodes = || metrics.iter().filter_map(|metric| metric.interval).map(|interval| interval.episodes);
    let (fewest, most) = (episodes().min()?, episodes().max()?);
    let count = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
    Some(format!("±: 95 % confidence interval of the mean over {count} samples (Student's t, independent samples)"))
}

/// Maximum number of kinds of steps listed.
const KINDS_SHOWN: usize = 4;

impl RunView {
    /// Loss of each kind of step, the kind with the most steps first.
    pub fn losses(&self) -> Vec<KindLoss> {
        let losses = self.final_summary().map_or_else(|| &self.curves().by_kind, |summary| &summary.losses);
        let mut losses: Vec<KindLoss> = losses.iter().filter(|loss| loss.steps > 0).cloned().collect();
        losses.sort_by_key(|loss| Reverse(loss.steps));
        losses
    }

    /// Name of the metric that selects the best checkpoint.
    pub fn best_by(&self) -> Option<&str> {
        let planned = self.plan().and_then(|plan| plan.best_by.as_deref());
        planned.or_else(|| Some(self.summary()?.best.as_ref()?.metric.as_str()))
    }

    /// Line such as `detection 8.676 -> 1.724, triplet 0.31 -> 0.02 (moving average over 24 steps)`, most steps first.
    pub fn loss_line(&self) -> Option<String> {
        let losses = self.losses();
        let shown = losses.iter().take(KINDS_SHOWN).map(|loss| {
            let kind = if losses.len() == 1 { String::new() } else { format!("{} ", loss.kind) };
            format!("{kind}{} -> {}", number(loss.first), number(loss.last))
        });
        let more = losses.len().saturating_sub(KINDS_SHOWN);
        let more = if more > 0 { format!(" and {more} more kinds") } else { String::new() };
        let shown = shown.collect::<Vec<_>>().join(", ");
        let over = number(self.curves().averaging_window);
        (!shown.is_empty()).then(|| format!("{shown}{more} (moving average over {over} steps)"))
    }

    /// Line with the metric that selects the best checkpoint: `map50 0 -> 0.4974, best 0.5111 after step 441
    /// (checkpoints/step_00000441)`.
    pub fn result_line(&self) -> Option<String> {
        let metrics = self.metrics();
        let metric = metrics.iter().find(|metric| metric.selects_best)?;
        let (name, value) = (&metric.planned.name, |value: f64| metric.value(value));
        let mut line = match (metric.before, metric.after) {
            (Some(before), Some(after)) => format!("{name} {} -> {}", value(before), value(after)),
            (None, Some(after)) => format!("{name} {}", value(after)),
            (before, None) => return Some(format!("{name} {} before training, not measured since", value(before?))),
        };
        if let Some((best, step)) = metric.best {
            line.push_str(&format!(", best {} after step {step}", value(best)));
            let directory = layout::checkpoint(&self.path, step);
            if directory.is_dir() {
                let directory = directory.strip_prefix(&self.path).unwrap_or(&directory).display().to_string();
                line.push_str(&format!(" ({directory})"));
            }
        }
        Some(line)
    }

    /// Peaks of memory: `heap 54.8 MiB (34.4 MiB at the end), RSS 98.2 MiB`.
    pub fn memory_line(&self) -> String {
        let memory = self.memory();
        let heap =
            format!("{} {} ({} at the end)", self.heap_label(), Bytes(memory.heap_peak), Bytes(memory.heap_at_end));
        let others = [
            ("RSS", memory.rss_peak),
            ("device in use", memory.device_in_use_peak),
            ("device reserved", memory.device_reserved_peak),
        ];
        let others = others.into_iter().filter_map(|(name, peak)| Some(format!("{name} {}", Bytes(peak?))));
        std::iter::once(heap).chain(others).collect::<Vec<_>>().join(", ")
    }

    /// Validation metrics by family: first the family of the metric that selects the best checkpoint, then in the
    /// order of the plan.
    pub fn metrics(&self) -> Vec<MetricResult> {
        let intervals = match self.final_summary() {
            Some(summary) => &summary.intervals_last,
            None => &self.curves().intervals,
        };
        let measured = |(name, before, after): (String, Option<f64>, Option<f64>)| {
            let planned = self.plan().and_then(|plan| plan.metrics.iter().find(|metric| metric.name == name)).cloned();
            let unknown = || PlannedMetric { direction: None, ..PlannedMetric::plain(&name, Direction::Higher) };
            let planned = planned.unwrap_or_else(unknown);
            MetricResult {
                before,
                after,
                interval: intervals.get(&name).copied().filter(|_| after.is_some()),
                best: planned.direction.and_then(|direction| self.best_value(&name, direction)),
                selects_best: self.best_by() == Some(&name),
                planned,
            }
        };
        let mut metrics: Vec<MetricResult> = self.first_and_last().into_iter().map(measured).collect();
        metrics.sort_by_cached_key(|metric| self.metric_sort_key(&metric.planned.name));
        metrics
    }

    /// Sort key of a metric: its family, whether it selects the best checkpoint, and its index in the plan. Metrics
    /// that are not in the plan come last.
    fn metric_sort_key(&self, name: &str) -> (usize, bool, usize) {
        let plan = self.plan().map_or(&[][..], |plan| &plan.metrics);
        let chosen = |name: &str| self.best_by() == Some(name);
        let Some(at) = plan.iter().position(|metric| metric.name == name) else { return (usize::MAX, true, 0) };
        let family = &plan[at].family;
        let first = plan.iter().position(|metric| metric.family == *family).unwrap_or(at);
        let is_first_family = plan.iter().any(|metric| chosen(&metric.name) && metric.family == *family);
        (if is_first_family { 0 } else { first + 1 }, !chosen(name), at)
    }

    /// Best value of all validations after a step.
    fn best_value(&self, name: &str, direction: Direction) -> Option<(f64, u64)> {
        let recorded =
            self.final_summary().and_then(|summary| summary.best.as_ref()).filter(|best| best.metric == name);
        if let Some(best) = recorded {
            return Some((best.value, best.step));
        }
        let trained = self.curves().metric(name)?.points().into_iter().filter(|point| point.x > 0.0);
        let best = trained.reduce(|best, point| if direction.replaces(point.y, best.y) { point } else { best })?;
        Some((best.y, best.x as u64))
    }

    /// Name of each metric with its value before training and its last value.
    fn first_and_last(&self) -> Vec<(String, Option<f64>, Option<f64>)> {
        if let Some(summary) = self.final_summary()
            && !(summary.metrics_first.is_empty() && summary.metrics_last.is_empty())
        {
            let after = &summary.metrics_last;
            let names: BTreeSet<&String> = summary.metrics_first.keys().chain(after.keys()).collect();
            let value = |values: &BTreeMap<String, Option<f64>>, name| values.get(name).copied().flatten();
            return names
                .into_iter()
                .map(|name| (name.clone(), value(&summary.metrics_first, name), value(after, name)))
                .collect();
        }
        let before = |series: &ThinnedSeries<f64>| series.first.filter(|point| point.x == 0.0).map(|point| point.y);
        let after = |series: &ThinnedSeries<f64>| series.last.filter(|point| point.x > 0.0).map(|point| point.y);
        (self.curves().metrics.iter()).map(|(name, series)| (name.clone(), before(series), after(series))).collect()
    }
}

#[cfg(test)]
#[path = "result_tests.rs"]
mod tests;
