//! Curves of a page, read from `metrics.jsonl` in one pass.
//!
//! Caps: [`KINDS_MAX`] kinds of steps and [`METRICS_MAX`] metrics, each with series as `series` bounds them: at most
//! 64 * 48 KB for metrics, 64 * 64 KB for means over episodes, 2 * 6 * 48 KB for losses; sums of epochs and stages as
//! `epochs` and `stages` bound them.

use std::collections::BTreeMap;

use super::epochs::EpochLosses;
use super::series::ThinnedSeries;
use super::stages::Stages;
use crate::format::{MetricsLine, PlanFile};
use crate::judge::{add_metrics, training_context};
use crate::loss;
use crate::loss::{KindLoss, OTHER_KINDS};
use crate::read::ReadError;
use crate::verdict::{LineDamage, TrainingVerdict};
use crate::view::RunView;
use xrun_core::task::metric::Interval;
use xrun_verdict::training::{TrainingEnd, TrainingWatch};

/// Maximum number of kinds of steps; the rest are `other kinds`.
pub const KINDS_MAX: usize = 6;
/// Maximum number of metrics; the rest are left out.
pub const METRICS_MAX: usize = 64;

/// Loss curve of one kind of steps.
#[derive(Clone, Debug, Default)]
pub struct LossCurve {
    /// Kind of the steps.
    pub kind: String,
    /// Loss of each step.
    pub raw: ThinnedSeries,
    /// Moving average of the loss.
    pub smooth: ThinnedSeries,
    average: KindLoss,
}

/// Curves and last values of `metrics.jsonl`.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    /// Loss curves, at most [`KINDS_MAX`].
    pub losses: Vec<LossCurve>,
    /// Loss of all kinds of steps, as in `summary.json`.
    pub by_kind: Vec<KindLoss>,
    /// Learning rate by step.
    pub learning_rate: ThinnedSeries,
    /// Gradient norm by step, before clipping.
    pub gradient_norm: ThinnedSeries,
    /// Running median of the gradient norm.
    pub gradient_norm_median: ThinnedSeries,
    /// Validation metrics, at most [`METRICS_MAX`].
    pub metrics: Vec<(String, ThinnedSeries)>,
    /// Metrics that are means over episodes; each point carries the half width of its interval, 0 if it has none.
    pub means: Vec<(String, ThinnedSeries<f64>)>,
    /// Intervals of the last validation.
    pub intervals: BTreeMap<String, Interval>,
    /// Number of steps over which losses are averaged.
    pub averaging_window: f64,
    /// Newest step.
    pub last_step: Option<u64>,
    /// Number of damaged lines.
    pub damaged_lines: u64,
    /// Difference from the lines that were written.
    pub line_damage: Option<LineDamage>,
    /// Reason why the file, or the rest of it, cannot be read.
    pub read_error: Option<String>,
    /// Mean loss of each epoch.
    pub(super) epoch_losses: EpochLosses,
    /// Stages of the training, without their memory.
    pub(super) stages: Stages,
    watch: TrainingWatch,
}

impl Curves {
    /// Reads the curves of a run; a missing file gives none.
    pub fn read(run: &RunView) -> Self {
        let plan = run.plan();
        let mut curves = Self {
            averaging_window: loss::averaging_window(plan.and_then(PlanFile::known_steps)),
            stages: Stages::new(plan.map_or(&[], |plan| &plan.stages)),
            watch: TrainingWatch::new(training_context(plan)),
            ..Self::default()
        };
        match run.metrics_lines() {
            Err(error) => curves.read_error = (!error.is_missing()).then(|| error.to_string()),
            Ok(lines) => {
                for line in lines {
                    match line {
                        Ok(line) => curves.add(line),
                        Err(ReadError::Content { .. }) => curves.damaged_lines += 1,
                        Err(ReadError::Lines { damage, .. }) => curves.line_damage = Some(damage),
                        Err(error) => curves.read_error = Some(error.to_string()),
                    }
                }
            }
        }
        curves
    }

    /// Verdict on the training of a run that ended so; `None` without a readable line.
    pub fn training(&self, end: Option<TrainingEnd>) -> Option<TrainingVerdict> {
        (!self.watch.is_empty()).then(|| self.watch.verdict(end))
    }

    fn add(&mut self, line: MetricsLine) {
        self.last_step = self.last_step.max(Some(line.step()));
        let x = line.step() as f64;
        add_metrics(&mut self.watch, &line);
        self.stages.add_metrics(&line);
        self.epoch_losses.add(&line);
        match line {
            MetricsLine::Train { batch, loss, learning_rate, gradient_norm, gradient_norm_median, .. } => {
                self.learning_rate.add(x, learning_rate.unwrap_or(f64::NAN), ());
                self.gradient_norm.add(x, gradient_norm.unwrap_or(f64::NAN), ());
                self.gradient_norm_median.add(x, gradient_norm_median.unwrap_or(f64::NAN), ());
                let over = self.averaging_window;
                loss::add(&mut self.by_kind, &batch, loss, over);
                let curve = self.loss_curve(batch);
                curve.raw.add(x, loss, ());
                curve.average.add(loss, over);
                if loss.is_finite() {
                    curve.smooth.add(x, curve.average.last, ());
                }
            }
            MetricsLine::Validation { metrics, intervals, .. } => {
                for (name, value) in metrics {
                    let value = value.unwrap_or(f64::NAN);
                    self.add_mean(&name, x, value, intervals.get(&name));
                    let known = self.metrics.iter().position(|(known, _)| *known == name);
                    let at = match known {
                        Some(at) => at,
                        None if self.metrics.len() < METRICS_MAX => {
                            self.metrics.push((name, ThinnedSeries::default()));
                            self.metrics.len() - 1
                        }
                        None => continue,
                    };
                    self.metrics[at].1.add(x, value, ());
                }
                self.intervals = intervals.into_iter().take(METRICS_MAX).collect();
            }
        }
    }

    fn add_mean(&mut self, name: &str, x: f64, value: f64, interval: Option<&Interval>) {
        let known = self.means.iter().position(|(known, _)| known == name);
        let at = match (known, interval) {
            (Some(at), _) => at,
            (None, Some(_)) if self.means.len() < METRICS_MAX => {
                self.means.push((name.to_owned(), ThinnedSeries::default()));
                self.means.len() - 1
            }
            (None, _) => return,
        };
        let half_width = interval.map_or(0.0, |interval| interval.half_width);
        self.means[at].1.add(x, value, if half_width.is_finite() { half_width } else { 0.0 });
    }

    fn loss_curve(&mut self, kind: String) -> &mut LossCurve {
        let known = self.losses.iter().position(|loss| loss.kind == kind);
        let at = known.unwrap_or_else(|| {
            if self.losses.len() < KINDS_MAX {
                let kind = if self.losses.len() + 1 < KINDS_MAX { kind } else { OTHER_KINDS.into() };
                self.losses.push(LossCurve { kind, ..LossCurve::default() });
            }
            self.losses.len() - 1
        });
        &mut self.losses[at]
    }
}
