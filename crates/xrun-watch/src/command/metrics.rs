//! Losses and metrics of a command, for its summary.

use std::collections::BTreeMap;

use xrun_core::settings::step_pattern::STEP;
use xrun_core::task::metric::Direction;
use xrun_results::format::{Best, MetricsLine, PlanFile, Summary};
use xrun_results::judge;
use xrun_results::loss;
use xrun_results::loss::KindLoss;
use xrun_results::verdict::TrainingVerdict;
use xrun_verdict::training::{TrainingEnd, TrainingJudge};

/// Counter of the losses that are no numbers, which `metrics.jsonl` cannot hold.
const NOT_FINITE: &str = "losses_not_finite";

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
    /// Number of losses that were no numbers.
    not_finite: u64,
    training: TrainingJudge,
}

impl MetricsSummary {
    /// Summary without lines, for a command with these metrics.
    pub fn new(metrics: BTreeMap<String, Direction>) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Sets the plan, whose metrics training is judged by; before the first line.
    pub fn set_plan(&mut self, plan: &PlanFile) {
        self.training = TrainingJudge::new(judge::training_context(Some(plan)));
    }

    /// Notes that the loss of a step is not a number.
    pub fn loss_not_finite(&mut self, step: u64) {
        self.not_finite += 1;
        self.training.add_step(step, STEP, f64::NAN, None);
    }

    /// Verdict on the training so far; `None` without a loss and a validation.
    pub fn training(&self, end: TrainingEnd) -> Option<TrainingVerdict> {
        (!self.training.is_empty()).then(|| self.training.verdict(Some(end)))
    }

    /// Forgets all lines.
    pub fn clear(&mut self) {
        let training = self.training.without_steps();
        *self = Self { training, ..Self::new(std::mem::take(&mut self.metrics)) };
    }

    /// Adds a line.
    pub fn add(&mut self, line: &MetricsLine) {
        judge::add_metrics(&mut self.training, line);
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
        let is_best = self.best.as_ref().is_none_or(|best| direction.replaces(value, best.value));
        is_best.then(|| Best { metric: name.clone(), value, step })
    }

    /// Fills the fields of a summary.
    pub fn fill(self, summary: &mut Summary) {
        summary.training = self.training(judge::training_end(summary.outcome));
        if self.not_finite > 0 {
            summary.counters.insert(NOT_FINITE.to_owned(), self.not_finite);
        }
        (summary.loss_first, summary.loss_last) = (self.loss_first, self.loss_last);
        summary.losses = self.losses;
        summary.metrics_first = self.before_training;
        summary.metrics_last = self.newest;
        summary.best = self.best;
    }
}
