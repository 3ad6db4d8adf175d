//! Verdict on training: did the loss fall, is the model better than untrained and than guessing, does it overfit, did it diverge?
//!
//! Judged from `metrics.jsonl` and `plan.json` alone, also for a run that was killed. A loss is compared between quarters of the run
//! by the rank-sum test of Mann and Whitney (1947), separately for each kind of step; a validation metric by its 95 % intervals, or,
//! where it has none, by the scatter of its successive values.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format::{MetricsLine, PlanFile};
use crate::outcome::Outcome;
use crate::read;
use crate::report::formatting::number;
use xrun_core::task::metric::Direction;

/// Maximum number of kinds of steps that are judged; steps of further kinds are ignored.
const KINDS_MAX: usize = 32;
/// Maximum number of means kept of a loss; neighbours are merged in pairs at this number.
const MEANS_MAX: usize = 256;
/// Maximum number of validations kept; every second one is dropped at this number.
const VALIDATIONS_MAX: usize = 512;
/// Minimum number of losses of a kind for a judgement: four in a quarter.
const LOSSES_MIN: usize = 16;
/// Quantile of the normal distribution for a one-sided error of 0.5 %.
const SIGNIFICANT: f64 = 2.58;
/// Minimum change of a loss that matters, relative to its start.
const LOSS_CHANGE_MIN: f64 = 0.01;
/// Minimum change of a metric that matters, relative to its start.
const METRIC_CHANGE_MIN: f64 = 0.01;
/// Minimum fall within the last half of a run to count as still falling, relative to the fall so far.
const STILL_FALLING_MIN: f64 = 0.05;
/// Factor by which a loss must exceed its start to have diverged.
const DIVERGED_FACTOR: f64 = 1.5;
/// Minimum fraction of steps whose kinds improved for the loss to have fallen.
const KINDS_FALLEN_MIN: f64 = 0.25;
/// Learning rate at the end, relative to its peak, below which it is spent.
const RATE_SPENT: f64 = 0.1;
/// Step of the best validation, relative to the last one, above which a worse end is not overfitting.
const OVERFITTING_LATEST: f64 = 0.75;

/// Judgement on training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrainingVerdictWord {
    /// Better than untrained and than guessing, and no longer improving.
    Improved,
    /// Better than untrained and than guessing, and improving at the end.
    StillImproving,
    /// Too few steps or validations for a judgement.
    Inconclusive,
    /// Neither the loss nor the validation metric improved.
    NoProgress,
    /// The loss fell, and the validation metric is no better than before training.
    NoBetterThanUntrained,
    /// The validation metric is no better than guessing.
    NoBetterThanChance,
    /// The loss fell, while the validation metric became worse than its best.
    Overfitting,
    /// The loss rose far above its start, or was not a number.
    Diverged,
}

impl TrainingVerdictWord {
    /// All judgements.
    pub const ALL: [Self; 8] = [
        Self::Improved,
        Self::StillImproving,
        Self::Inconclusive,
        Self::NoProgress,
        Self::NoBetterThanUntrained,
        Self::NoBetterThanChance,
        Self::Overfitting,
        Self::Diverged,
    ];

    /// The judgement as in JSON: `no_progress`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Improved => "improved",
            Self::StillImproving => "still_improving",
            Self::Inconclusive => "inconclusive",
            Self::NoProgress => "no_progress",
            Self::NoBetterThanUntrained => "no_better_than_untrained",
            Self::NoBetterThanChance => "no_better_than_chance",
            Self::Overfitting => "overfitting",
            Self::Diverged => "diverged",
        }
    }

    /// The judgement as text: `no progress`.
    pub fn words(self) -> String {
        self.as_str().replace('_', " ")
    }

    /// `Some(true)` if the model learnt, `Some(false)` if it did not, `None` if that is open.
    pub fn learnt(self) -> Option<bool> {
        match self {
            Self::Improved | Self::StillImproving => Some(true),
            Self::Inconclusive => None,
            _ => Some(false),
        }
    }
}

/// Verdict on training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrainingVerdict {
    /// The judgement.
    pub verdict: TrainingVerdictWord,
    /// The verdict in one sentence.
    pub message: String,
    /// Change of the loss of the most frequent kind of step; `null` with too few steps.
    pub loss: Option<LossChange>,
    /// Change of the validation metric that selects the best checkpoint; `null` with fewer than two validations.
    pub metric: Option<MetricChange>,
}

/// Change of a loss between the quarters of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossChange {
    /// Kind of step.
    pub kind: String,
    /// Loss of the first step.
    pub start: f64,
    /// Median in the first quarter of the run.
    pub first: f64,
    /// Median in the last quarter of the run.
    pub last: f64,
    /// Standard score of the rank-sum test between the two quarters; positive for a fall.
    pub score: f64,
}

/// Change of a validation metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricChange {
    /// Name of the metric.
    pub name: String,
    /// Step of the first validation; 0 before training.
    pub first_step: u64,
    /// First value.
    pub first: f64,
    /// Last value.
    pub last: f64,
    /// Best value.
    pub best: f64,
    /// Step of the best value.
    pub best_step: u64,
    /// Value of guessing, where the pipeline reports it.
    pub chance: Option<f64>,
    /// Difference between two validations that is within noise.
    pub noise: f64,
}

/// Losses of one kind of step, in at most [`MEANS_MAX`] means of neighbouring steps.
#[derive(Clone, Debug)]
struct LossSeries {
    kind: String,
    steps: u64,
    start: f64,
    means: Vec<f64>,
    steps_per_mean: u64,
    sum: f64,
    count: u64,
}

impl LossSeries {
    fn new(kind: &str, start: f64) -> Self {
        Self { kind: kind.to_owned(), steps: 0, start, means: Vec::new(), steps_per_mean: 1, sum: 0.0, count: 0 }
    }

    fn add(&mut self, loss: f64) {
        self.steps += 1;
        self.sum += loss;
        self.count += 1;
        if self.count < self.steps_per_mean {
            return;
        }
        self.means.push(self.sum / self.count as f64);
        (self.sum, self.count) = (0.0, 0);
        if self.means.len() == MEANS_MAX {
            self.means = self.means.chunks(2).map(|pair| pair.iter().sum::<f64>() / pair.len() as f64).collect();
            self.steps_per_mean *= 2;
        }
    }

    /// Quarter of the series: 0 to 3.
    fn quarter(&self, index: usize) -> &[f64] {
        let length = self.means.len();
        &self.means[length * index / 4..length * (index + 1) / 4]
    }

    fn change(&self) -> Option<LossChange> {
        (self.means.len() >= LOSSES_MIN).then(|| LossChange {
            kind: self.kind.clone(),
            start: self.start,
            first: median(self.quarter(0)),
            last: median(self.quarter(3)),
            score: rank_sum_score(self.quarter(0), self.quarter(3)),
        })
    }

    fn fell(&self) -> bool {
        self.change().is_some_and(|change| {
            let reference = change.first.abs().max(change.start.abs()).max(f64::MIN_POSITIVE);
            // After a jump far above its start a loss falls from quarter to quarter, and nothing is won.
            let below_start = change.start - change.last > LOSS_CHANGE_MIN * reference;
            change.score > SIGNIFICANT && change.first - change.last > LOSS_CHANGE_MIN * reference && below_start
        })
    }

    /// Whether the loss fell between the last two quarters by an amount that matters beside the fall so far.
    fn is_falling(&self) -> bool {
        if self.means.len() < LOSSES_MIN {
            return false;
        }
        let (before, last) = (median(self.quarter(2)), median(self.quarter(3)));
        let so_far = self.start.max(median(self.quarter(0))) - last;
        rank_sum_score(self.quarter(2), self.quarter(3)) > SIGNIFICANT && before - last > STILL_FALLING_MIN * so_far
    }

    /// Whether nearly all of the last quarter lies above the first loss, and its median far above.
    fn diverged(&self) -> bool {
        if self.means.len() < LOSSES_MIN {
            return false;
        }
        let mut last = self.quarter(3).to_vec();
        last.sort_by(f64::total_cmp);
        let rise = (DIVERGED_FACTOR - 1.0) * self.start.abs();
        last[last.len() / 10] > self.start && median(&last) > self.start + rise
    }
}

#[derive(Clone, Copy, Debug)]
struct Validation {
    step: u64,
    value: f64,
    half_width: Option<f64>,
}

/// Numbers of a run that its training is judged by, in bounded memory.
#[derive(Clone, Debug, Default)]
pub struct TrainingHistory {
    metric: Option<(String, Direction)>,
    chance_metrics: Vec<String>,
    series: Vec<LossSeries>,
    validations: Vec<Validation>,
    validations_seen: u64,
    keep_every: u64,
    newest: Option<Validation>,
    chance: Option<f64>,
    rate_peak: f64,
    rate_last: Option<f64>,
}

impl TrainingHistory {
    /// History of a run with this plan; without one only losses are judged.
    pub fn new(plan: Option<&PlanFile>) -> Self {
        let best = plan.and_then(|plan| plan.metrics.iter().find(|metric| Some(&metric.name) == plan.best_by.as_ref()));
        let chance_metrics = plan.zip(best).map_or_else(Vec::new, |(plan, best)| {
            let constants =
                plan.metrics.iter().filter(|metric| metric.direction.is_none() && metric.family == best.family);
            constants.map(|metric| metric.name.clone()).collect()
        });
        let metric = best.and_then(|metric| Some((metric.name.clone(), metric.direction?)));
        Self { metric, chance_metrics, keep_every: 1, ..Self::default() }
    }

    /// Adds a line of `metrics.jsonl`.
    pub fn add(&mut self, line: &MetricsLine) {
        match line {
            MetricsLine::Train { batch, loss, learning_rate, .. } => {
                self.add_loss(batch, *loss);
                if let Some(rate) = learning_rate {
                    self.rate_peak = self.rate_peak.max(*rate);
                    self.rate_last = Some(*rate);
                }
            }
            MetricsLine::Validation { step, metrics, intervals, .. } => {
                let Some((name, _)) = &self.metric else { return };
                let known = |name: &String| metrics.get(name).copied().flatten().filter(|value| value.is_finite());
                self.chance = self.chance_metrics.iter().find_map(known).or(self.chance);
                if let Some(value) = known(name) {
                    let half_width = intervals.get(name).map(|interval| interval.half_width);
                    self.add_validation(Validation { step: *step, value, half_width });
                }
            }
        }
    }

    fn add_loss(&mut self, kind: &str, loss: f64) {
        if !loss.is_finite() {
            return;
        }
        let known = self.series.iter().position(|series| series.kind == kind);
        let at = match known {
            Some(at) => at,
            None if self.series.len() < KINDS_MAX => {
                self.series.push(LossSeries::new(kind, loss));
                self.series.len() - 1
            }
            None => return,
        };
        self.series[at].add(loss);
    }

    fn add_validation(&mut self, validation: Validation) {
        self.newest = Some(validation);
        if self.validations_seen.is_multiple_of(self.keep_every) {
            self.validations.push(validation);
        }
        self.validations_seen += 1;
        if self.validations.len() == VALIDATIONS_MAX {
            let mut index = 0;
            self.validations.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.keep_every *= 2;
        }
    }

    fn metric_change(&self) -> Option<MetricChange> {
        let (name, direction) = self.metric.as_ref()?;
        let (first, last) = (*self.validations.first()?, self.newest?);
        if first.step == last.step {
            return None;
        }
        let best = self
            .validations
            .iter()
            .copied()
            .chain([last])
            .reduce(|best, one| if direction.prefers(one.value, best.value) { one } else { best })?;
        Some(MetricChange {
            name: name.clone(),
            first_step: first.step,
            first: first.value,
            last: last.value,
            best: best.value,
            best_step: best.step,
            chance: self.chance,
            noise: self.noise(first, last),
        })
    }

    /// 95 % half width of the difference of two validations: from their intervals, else from the scatter of successive values.
    fn noise(&self, first: Validation, last: Validation) -> f64 {
        if let (Some(one), Some(other)) = (first.half_width, last.half_width) {
            return one.hypot(other);
        }
        let half = &self.validations[self.validations.len() / 2..];
        if half.len() < 3 {
            return 0.0;
        }
        let mut changes: Vec<f64> = half.windows(2).map(|pair| (pair[1].value - pair[0].value).abs()).collect();
        changes.sort_by(f64::total_cmp);
        // 1.96 standard deviations of a difference; the median of its magnitude is 0.6745 of one.
        1.96 * median(&changes) / 0.6745
    }

    /// Judges the training of a run that ended like this, or goes on.
    pub fn verdict(&self, outcome: Option<Outcome>) -> TrainingVerdict {
        let metric = self.metric_change();
        let steps: u64 = self.series.iter().map(|series| series.steps).sum();
        let most = self.series.iter().max_by_key(|series| series.steps);
        let loss = most.and_then(LossSeries::change);
        let fallen: u64 = self.series.iter().filter(|series| series.fell()).map(|series| series.steps).sum();
        let fell = steps > 0 && fallen as f64 >= KINDS_FALLEN_MIN * steps as f64;
        let judged = self.series.iter().any(|series| series.means.len() >= LOSSES_MIN);
        let verdict = self.judgement(outcome, metric.as_ref(), fell, judged);
        let message = self.message(verdict, loss.as_ref(), metric.as_ref());
        TrainingVerdict { verdict, message, loss, metric }
    }

    fn judgement(
        &self,
        outcome: Option<Outcome>,
        metric: Option<&MetricChange>,
        fell: bool,
        judged: bool,
    ) -> TrainingVerdictWord {
        let diverged = self.series.iter().max_by_key(|series| series.steps).is_some_and(LossSeries::diverged);
        if outcome == Some(Outcome::Diverged) || diverged {
            return TrainingVerdictWord::Diverged;
        }
        if !judged {
            return TrainingVerdictWord::Inconclusive;
        }
        let Some((metric, (_, direction))) = metric.zip(self.metric.as_ref()) else {
            return match fell {
                true => self.improvement(None),
                false => TrainingVerdictWord::NoProgress,
            };
        };
        let gain = |from: f64, to: f64| if *direction == Direction::Higher { to - from } else { from - to };
        let worsened = gain(metric.last, metric.best) > 1.5 * metric.noise && gain(metric.last, metric.best) > 0.0;
        let early = metric.best_step as f64 <= OVERFITTING_LATEST * self.newest.map_or(0.0, |last| last.step as f64);
        let improved_once = gain(metric.first, metric.best) > metric.noise;
        if fell && worsened && early && improved_once && metric.noise > 0.0 {
            return TrainingVerdictWord::Overfitting;
        }
        // The first of several validations is of an untrained model only at step 0.
        let untrained = metric.first_step == 0;
        let needed = metric.noise.max(METRIC_CHANGE_MIN * metric.first.abs());
        if untrained && gain(metric.first, metric.last) <= needed {
            return if fell { TrainingVerdictWord::NoBetterThanUntrained } else { TrainingVerdictWord::NoProgress };
        }
        if !untrained && !fell {
            return TrainingVerdictWord::NoProgress;
        }
        if metric.chance.is_some_and(|chance| gain(chance, metric.last) <= 0.0) {
            return TrainingVerdictWord::NoBetterThanChance;
        }
        self.improvement(Some((metric, *direction)))
    }

    /// Distinguishes a model that goes on improving from one that no longer does.
    fn improvement(&self, metric: Option<(&MetricChange, Direction)>) -> TrainingVerdictWord {
        let falling = self.series.iter().max_by_key(|series| series.steps).is_some_and(LossSeries::is_falling);
        let rising = metric.is_some_and(|(metric, direction)| {
            let at = self.newest.map_or(0, |last| last.step) * 2 / 3;
            let before = self.validations.iter().rev().find(|validation| validation.step <= at);
            before.is_some_and(|before| {
                let gain = metric.last - before.value;
                let gain = if direction == Direction::Higher { gain } else { -gain };
                gain > metric.noise && gain > 0.0
            })
        });
        if falling || rising { TrainingVerdictWord::StillImproving } else { TrainingVerdictWord::Improved }
    }

    fn message(
        &self,
        verdict: TrainingVerdictWord,
        loss: Option<&LossChange>,
        metric: Option<&MetricChange>,
    ) -> String {
        let loss = loss.map(|loss| {
            let kind = if self.series.len() > 1 { format!(" of {} steps", loss.kind) } else { String::new() };
            format!("loss{kind} {} → {}", number(loss.start), number(loss.last))
        });
        let values = metric.map(|metric| format!("{} {} → {}", metric.name, number(metric.first), number(metric.last)));
        let numbers: Vec<String> = values.into_iter().chain(loss).collect();
        let numbers = if numbers.is_empty() { String::new() } else { format!(": {}", numbers.join(", ")) };
        let spent = self.rate_last.is_some_and(|rate| rate < RATE_SPENT * self.rate_peak);
        match verdict {
            TrainingVerdictWord::Improved => format!("the model improved and no longer does{numbers}"),
            TrainingVerdictWord::StillImproving if spent => {
                format!(
                    "the model was improving at the end, where the learning rate is spent{numbers}; a longer schedule may help"
                )
            }
            TrainingVerdictWord::StillImproving => {
                format!("the model was improving at the end{numbers}; more steps may help")
            }
            TrainingVerdictWord::Inconclusive => {
                format!("too few steps for a judgement: {LOSSES_MIN} of one kind are needed{numbers}")
            }
            TrainingVerdictWord::NoProgress => {
                format!("the loss did not fall{numbers}; the learning rate may be too low or too high")
            }
            TrainingVerdictWord::NoBetterThanUntrained => {
                let noise = metric.filter(|metric| metric.noise > 0.0);
                let noise = noise.map_or_else(String::new, |metric| format!(" (noise {})", number(metric.noise)));
                format!("the loss fell, and the model is no better than before training{noise}{numbers}")
            }
            TrainingVerdictWord::NoBetterThanChance => {
                let chance = metric.and_then(|metric| metric.chance).map_or_else(String::new, number);
                format!("the model is no better than guessing, which has {chance}{numbers}")
            }
            TrainingVerdictWord::Overfitting => {
                let best = metric.map_or_else(String::new, |metric| {
                    format!(
                        ": {} was {} at step {} and is {}",
                        metric.name,
                        number(metric.best),
                        metric.best_step,
                        number(metric.last)
                    )
                });
                format!("the loss fell while validations became worse{best}; stop earlier or regularise")
            }
            TrainingVerdictWord::Diverged => format!("the loss diverged{numbers}; lower the learning rate"),
        }
    }
}

/// Judges the training of a run from its files; `None` if it has no losses.
///
/// # Errors
/// `metrics.jsonl` is missing or unreadable.
pub fn of_run(run: &Path, outcome: Option<Outcome>) -> Result<Option<TrainingVerdict>, read::ReadError> {
    // A watched command has no plan.
    let plan = read::plan(run).ok();
    let mut history = TrainingHistory::new(plan.as_ref());
    // A damaged line is reported by the reader of the run; the others are judged.
    read::metrics(run)?.flatten().for_each(|line| history.add(&line));
    let diverged = outcome == Some(Outcome::Diverged);
    Ok((diverged || !history.series.is_empty()).then(|| history.verdict(outcome)))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

/// Standard score of the rank-sum statistic: positive if `before` tends to exceed `after`. Normal approximation, without the
/// correction for ties.
fn rank_sum_score(before: &[f64], after: &[f64]) -> f64 {
    let (n, m) = (before.len() as f64, after.len() as f64);
    if n == 0.0 || m == 0.0 {
        return 0.0;
    }
    let exceeds = |one: f64, other: f64| match one.total_cmp(&other) {
        std::cmp::Ordering::Greater => 1.0,
        std::cmp::Ordering::Equal => 0.5,
        std::cmp::Ordering::Less => 0.0,
    };
    let statistic: f64 = before.iter().map(|one| after.iter().map(|other| exceeds(*one, *other)).sum::<f64>()).sum();
    (statistic - n * m / 2.0) / (n * m * (n + m + 1.0) / 12.0).sqrt()
}

#[cfg(test)]
#[path = "training_verdict_tests.rs"]
mod tests;
