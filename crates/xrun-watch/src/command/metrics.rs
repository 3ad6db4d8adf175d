//! Losses and metrics of a command, for its summary.

use std::collections::BTreeMap;

use xrun_core::task::metric::Direction;
use xrun_results::format::{Best, MetricsLine, Summary};
use xrun_results::loss;
use xrun_results::loss::KindLoss;

/// Summary of the metrics lines so far.
#[derive(Clone, Debug, Default)]
pub struct MetricsSummary {
    /// Names of the metrics, with the direction that is better.
    metrics: BTreeMap<String, Direction>,
    losses: Vec<KindLoss>,
    loss_first: Option<f64>,
    loss_last: Option<f64>,
    before_training: BTreeMap<String, Option<f64>>,
    newest: BTreeMap<String, Option<f64>>,
    best: Option<Best>,
    validations: u64,
}

impl MetricsSummary {
    /// Summary without lines, for a command with these metrics.
    pub fn new(metrics: BTreeMap<String, Direction>) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Forgets all lines.
    pub fn clear(&mut self) {
        *self = Self::new(std::mem::take(&mut self.metrics));
    }

    /// Adds a line.
    pub fn add(&mut self, line: &MetricsLine) {
        match line {
            MetricsLine::Train { batch, loss, .. } => {
                self.loss_first.get_or_insert(*loss);
                self.loss_last = Some(*loss);
                loss::add(&mut self.losses, batch, *loss, loss::averaging_window(None));
            }
            MetricsLine::Validation { step, metrics, .. } => {
                self.validations += 1;
                let all = if *step == 0 { &mut self.before_training } else { &mut self.newest };
                all.extend(metrics.iter().map(|(name, value)| (name.clone(), *value)));
                self.best = self.new_best(*step, metrics).or(self.best.take());
            }
        }
    }

    /// Number of validations.
    pub fn validations(&self) -> u64 {
        self.validations
    }

    /// Best value of the first metric, if this step has it.
    fn new_best(&self, step: u64, metrics: &BTreeMap<String, Option<f64>>) -> Option<Best> {
        let (name, direction) = self.metrics.first_key_value()?;
        let value = metrics.get(name).copied().flatten().filter(|value| value.is_finite() && step > 0)?;
        let is_best = self.best.as_ref().is_none_or(|best| direction.prefers(value, best.value));
        is_best.then(|| Best { metric: name.clone(), value, step })
    }

    /// Fills the fields of a summary.
    pub fn fill(self, summary: &mut Summary) {
        (summary.loss_first, summary.loss_last) = (self.loss_first, self.loss_last);
        summary.losses = self.losses;
        summary.metrics_first = self.before_training;
        summary.metrics_last = self.newest;
        summary.best = self.best;
    }
}
