//! Judges whether training made a model better: whether the loss fell, whether the model is better than untrained and than
//! chance, and whether it diverged, overfits or still improves.
//!
//! ```
//! use xrun_verdict::training::{TrainingContext, TrainingJudge, TrainingVerdictWord};
//!
//! let mut watch = TrainingJudge::new(TrainingContext::default());
//! for step in 1..=200u64 {
//!     watch.add_step(step, "train", 0.3 + 2.0 / step as f64, None);
//! }
//! assert_eq!(watch.verdict(None).verdict, TrainingVerdictWord::Improved);
//! ```
//!
//! A [`TrainingJudge`] takes the loss of each step and the metrics of each validation. What it holds is bounded, however long
//! the run is. The judgement is a pure function of what it holds and of how the run ended.

mod bins;
mod findings;
mod judge;
mod message;
mod validations;

use bins::{BINS_MAX, Bin, LossOfKind};
pub use findings::{HeldOutFindings, LossFindings, MetricFindings, TrainingEnd, TrainingVerdict, TrainingVerdictWord};
use validations::Validations;

/// Maximum number of kinds of steps; the rest share the last one.
const KINDS_MAX: usize = 16;

/// Scale of a loss on held-out data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossScale {
    /// Mean loss.
    Mean,
    /// Exponential of the mean loss.
    Perplexity,
}

/// Metric that training is judged by.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedMetric {
    /// Name of the metric.
    pub name: String,
    /// `true` if lower values are better.
    pub lower_is_better: bool,
    /// Unit: `%`, `share`, `cosine`, or another one.
    pub unit: String,
    /// Value of a model that guesses; `None` if unknown before the run.
    pub chance: Option<f64>,
    /// Name of the metric that measures what needs no learning.
    pub baseline: Option<String>,
    /// Scale of the metric, if it is the loss on held-out data.
    pub loss: Option<LossScale>,
}

impl JudgedMetric {
    /// Value of a perfect model; `None` if unknown.
    fn ideal(&self) -> Option<f64> {
        match (self.loss, self.lower_is_better, self.unit.as_str()) {
            (Some(LossScale::Mean), ..) => Some(0.0),
            (Some(LossScale::Perplexity), ..) => Some(1.0),
            (None, false, "%") => Some(100.0),
            (None, false, "share" | "cosine") => Some(1.0),
            (None, true, "%" | "share") => Some(0.0),
            _ => None,
        }
    }
}

/// Facts about a run that are known before its first step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingContext {
    /// Planned steps; `None` if unknown.
    pub steps: Option<u64>,
    /// Metric that selects the best checkpoint.
    pub metric: Option<JudgedMetric>,
    /// Name and scale of the loss on held-out data.
    pub held_out_loss: Option<(String, LossScale)>,
}

/// Value of a metric in one validation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricValue<'a> {
    /// Name of the metric.
    pub name: &'a str,
    /// Value; `None` if it could not be measured.
    pub value: Option<f64>,
    /// Half width of its 95 % interval, if known.
    pub half_width: Option<f64>,
    /// Number of examples that it was measured on, if known.
    pub examples: Option<u64>,
}

/// Observer of the losses and validations of a run.
#[derive(Clone, Debug, Default)]
pub struct TrainingJudge {
    context: TrainingContext,
    losses: Vec<LossOfKind>,
    /// Empty bins of the first kind, allocated before the first step, which would otherwise seem to need them.
    first_bins: Vec<Bin>,
    validations: Validations,
    /// Newest step.
    last_step: u64,
    /// Highest and newest learning rate.
    rates: Option<(f64, f64)>,
    /// Step of the first loss that is no number.
    not_finite: Option<u64>,
}

impl TrainingJudge {
    /// Creates a watch without steps.
    pub fn new(context: TrainingContext) -> Self {
        Self { context, first_bins: Vec::with_capacity(BINS_MAX), ..Self::default() }
    }

    /// Returns a watch of the same context without steps.
    pub fn without_steps(&self) -> Self {
        Self::new(self.context.clone())
    }

    /// Returns `true` without a step and a validation.
    pub fn is_empty(&self) -> bool {
        let validations = self.validations.count + u64::from(self.validations.untrained.is_some());
        self.losses.is_empty() && self.not_finite.is_none() && validations == 0
    }

    /// Adds a step, in ascending order.
    pub fn add_step(&mut self, step: u64, kind: &str, loss: f64, learning_rate: Option<f64>) {
        self.last_step = self.last_step.max(step);
        if self.losses.is_empty() {
            self.validations.begin(step);
        }
        if let Some(rate) = learning_rate.filter(|rate| rate.is_finite()) {
            let highest = self.rates.map_or(rate, |(highest, _)| highest.max(rate));
            self.rates = Some((highest, rate));
        }
        if !loss.is_finite() {
            self.not_finite.get_or_insert(step);
            return;
        }
        let at = self.losses.iter().position(|known| known.kind == kind).unwrap_or_else(|| {
            if self.losses.len() < KINDS_MAX {
                self.losses.push(LossOfKind::new(kind, std::mem::take(&mut self.first_bins)));
            }
            self.losses.len() - 1
        });
        self.losses[at].add(step, loss);
    }

    /// Adds a validation after `step` steps, in ascending order.
    pub fn add_validation<'a>(&mut self, step: u64, metrics: impl IntoIterator<Item = MetricValue<'a>>) {
        self.last_step = self.last_step.max(step);
        let mut found = validations::Validation { step, ..validations::Validation::default() };
        let metric = self.context.metric.as_ref();
        let held_out = self.context.held_out_loss.as_ref();
        for MetricValue { name, value, half_width, examples } in metrics {
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            let half_width = half_width.filter(|width| width.is_finite());
            if metric.is_some_and(|metric| metric.name == name) {
                (found.metric, found.half_width, found.examples) = (Some(value), half_width, examples);
            }
            if metric.is_some_and(|metric| metric.baseline.as_deref() == Some(name)) {
                (found.baseline, found.baseline_half_width) = (Some(value), half_width);
            }
            if held_out.is_some_and(|(known, _)| known == name) {
                found.held_out = Some(value);
            }
        }
        self.validations.add(found);
    }

    /// Verdict on everything so far. `end`: how the run ended; `None` while it is running.
    pub fn verdict(&self, end: Option<TrainingEnd>) -> TrainingVerdict {
        judge::judge(self, end)
    }
}

#[cfg(test)]
mod tests;
