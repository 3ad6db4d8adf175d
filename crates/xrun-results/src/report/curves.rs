//! Curves of a page, read from `metrics.jsonl` in one pass.
//!
//! Caps: [`KINDS_MAX`] kinds of steps and [`METRICS_MAX`] metrics, each with series as `series` bounds them: at most
//! 64 * 64 KB for metrics, 2 * 6 * 48 KB for losses; sums of epochs and stages as `periods` bounds them.

use std::collections::BTreeMap;

use super::periods::{KINDS_MAX, Periods};
use super::series::ThinnedSeries;
use crate::format::{MetricsLine, PlanFile};
use crate::judge::{add_metrics, training_context};
use crate::loss;
use crate::loss::{KindLoss, OTHER_KINDS};
use crate::read::{self, Skipped};
use crate::verdict::TrainingVerdict;
use crate::view::RunView;
use xrun_core::task::metric::Interval;
use xrun_verdict::training::{TrainingEnd, TrainingJudge};

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
#[derive(Debug, Default)]
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
    /// Validation metrics, at most [`METRICS_MAX`]. Each point carries the half width of its interval, 0 if it has none.
    pub metrics: Vec<(String, ThinnedSeries<f64>)>,
    /// Intervals of the last validation.
    pub intervals: BTreeMap<String, Interval>,
    /// Number of steps over which losses are averaged.
    pub averaging_window: f64,
    /// Newest step.
    pub last_step: Option<u64>,
    /// Damage of the file.
    pub skipped: Skipped,
    /// Epochs and stages of the training, without their memory.
    pub(super) periods: [Periods; 2],
    watch: TrainingJudge,
}

impl Curves {
    /// Reads the curves of a run; a missing file gives none.
    pub fn read(run: &RunView) -> Self {
        let plan = run.plan();
        let mut curves = Self {
            averaging_window: loss::averaging_window(plan.and_then(PlanFile::known_steps)),
            periods: [Periods::epochs(), Periods::stages(plan.map_or(&[], |plan| &plan.stages))],
            watch: TrainingJudge::new(training_context(plan)),
            ..Self::default()
        };
        curves.skipped = read::for_each(read::metrics(&run.path), |line| curves.add(line));
        curves
    }

    /// Verdict on the training of a run that ended so; `None` without a readable line.
    pub fn training(&self, end: Option<TrainingEnd>) -> Option<TrainingVerdict> {
        (!self.watch.is_empty()).then(|| self.watch.verdict(end))
    }

    /// Curve of a metric.
    pub fn metric(&self, name: &str) -> Option<&ThinnedSeries<f64>> {
        self.metrics.iter().find(|(known, _)| known == name).map(|(_, series)| series)
    }

    fn add(&mut self, line: MetricsLine) {
        self.last_step = self.last_step.max(Some(line.step()));
        let x = line.step() as f64;
        add_metrics(&mut self.watch, &line);
        self.periods.iter_mut().for_each(|periods| periods.add_metrics(&line));
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
                    let half_width = intervals.get(&name).map_or(0.0, |interval| interval.half_width);
                    let known = self.metrics.iter().position(|(known, _)| *known == name);
                    let at = match known {
                        Some(at) => at,
                        None if self.metrics.len() < METRICS_MAX => {
                            self.metrics.push((name, ThinnedSeries::default()));
                            self.metrics.len() - 1
                        }
                        None => continue,
                    };
                    self.metrics[at].1.add(x, value, if half_width.is_finite() { half_width } else { 0.0 });
                }
                self.intervals = intervals.into_iter().take(METRICS_MAX).collect();
            }
        }
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
