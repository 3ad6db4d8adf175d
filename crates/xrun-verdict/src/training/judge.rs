//! Judgement on training, as a pure function of losses and validations.

use super::bins::{Bin, Level, LossOfKind, level};
use super::findings::{
    HeldOutFindings, LossFindings, MetricFindings, TrainingEnd, TrainingVerdict, TrainingVerdictWord,
};
use super::message::{Evidence, message};
use super::validations::Validation;
use super::{JudgedMetric, LossScale, TrainingJudge};

/// Number of losses of a kind below which nothing is said about it.
const LOSSES_MIN: u64 = 12;
/// Number of validation examples below which nothing is said about a metric: each of them is more than a tenth of it.
pub const EXAMPLES_MIN: u64 = 10;
/// Number of validations after a step from which on their scatter is known.
const VALIDATIONS_FOR_SCATTER: usize = 5;
/// Quantile of the normal distribution for a 95 % interval.
const NORMAL: f64 = 1.96;
/// Number of standard errors that count as a difference. A run has many kinds of steps and is judged at any time.
const SIGNIFICANT: f64 = 4.0;
/// Standard errors from which the fall of a loss is significant; it is compared with some beginnings.
const FALL_SIGNIFICANT: f64 = 3.5;
/// Number of standard errors for the mean of the later half of the validations, whose deviation is from few values.
const LATER_HALF_SIGNIFICANT: f64 = 5.0;
/// Number of standard errors of a metric's own interval that count as a difference.
const SIGNIFICANT_INTERVAL: f64 = 3.0;
/// Smallest fall of a loss, as a fraction of its first value.
const LOSS_FALL_MIN: f64 = 0.02;
/// Fall of a loss within its first steps, as a fraction of its first value, for which weaker evidence is enough.
const PLUNGE_MIN: f64 = 0.25;
const PLUNGE_SIGNIFICANT: f64 = 2.8;
/// Smallest improvement of a metric, as a fraction of the distance from chance to a perfect model.
const METRIC_GAIN_MIN: f64 = 0.01;
/// Number of standard deviations of a value that count as a loss of the improvement.
const LOST_SIGNIFICANT: f64 = 3.0;
/// Part of an improvement that, if lost again, counts as overfitting or divergence.
const LOST_MIN: f64 = 0.15;
/// Part of the fall of a loss that, if it rises again, counts as divergence.
const LOSS_RISE_MIN: f64 = 0.5;
/// Part of the whole improvement that the last third must bring to count as improving.
const STILL_MIN: f64 = 0.05;
/// That fraction where the learning rate is spent: continuing with it would change little.
const STILL_MIN_SPENT: f64 = 0.2;
/// Fraction of the highest learning rate at which it is spent.
pub const SPENT: f64 = 0.1;

/// Course of the loss of one kind of steps.
#[derive(Clone, Copy, Debug)]
struct LossTrend {
    late: Level,
    fall_error: f64,
    fell: bool,
    /// A considerable fall is not excluded.
    may_have_fallen: bool,
    diverged: bool,
    still_falling: bool,
}

/// Later half of the values of a metric.
#[derive(Clone, Copy, Debug)]
struct LaterHalf {
    mean: f64,
    count: f64,
    /// Standard deviation of one value about the trend.
    deviation: f64,
}

/// Course of a metric, scaled so that higher is better.
#[derive(Clone, Debug)]
struct Course {
    steps: Vec<f64>,
    values: Vec<f64>,
    /// Standard deviation of one value about the course, from its scatter.
    scatter: Option<f64>,
    untrained: Option<f64>,
}

pub fn judge(watch: &TrainingJudge, end: Option<TrainingEnd>) -> TrainingVerdict {
    let trends: Vec<(&LossOfKind, LossTrend)> =
        watch.losses.iter().filter_map(|kind| Some((kind, trend(kind)?))).collect();
    // A kind that ended long before the last step, such as a first phase, says nothing about the end.
    let is_recent = |kind: &LossOfKind| {
        let last = kind.bins.last().map_or(0, |bin| bin.step);
        last as f64 >= 0.75 * watch.last_step as f64
    };
    let recent: Vec<&(&LossOfKind, LossTrend)> = trends.iter().filter(|(kind, _)| is_recent(kind)).collect();
    let held_out = held_out_findings(watch);
    let spent = watch.rates.map(|(highest, last)| if highest > 0.0 { last / highest } else { 0.0 });
    let is_spent = spent.is_some_and(|fraction| fraction <= SPENT);
    let validations = &watch.validations;
    // A fork begins trained: it need not be better than that.
    let untrained = validations.untrained.as_ref().filter(|first| first.step == 0);
    let course = watch.context.metric.as_ref().and_then(|metric| {
        let of = |validation: &Validation| validation.metric;
        Course::new(untrained, &validations.kept, of, |value| scaled(metric, value))
    });
    let held_out_course = watch.context.held_out_loss.as_ref().and_then(|(_, scale)| {
        let of = |validation: &Validation| validation.held_out;
        Course::new(untrained, &validations.kept, of, |value| -nats(*scale, value))
    });
    let fell = trends.iter().any(|(_, trend)| trend.fell);
    let loss_diverged = recent.iter().any(|(_, trend)| trend.diverged);
    let still_falling = recent.iter().any(|(_, trend)| trend.still_falling);

    let gain = course.as_ref().zip(watch.context.metric.as_ref()).map(|(course, metric)| gain(watch, metric, course));
    let learnt = match &gain {
        Some(gain) => gain.over_untrained != Some(false) && gain.over_chance != Some(false),
        None => fell,
    };
    // A loss may rise because what it counts has changed; then the metric decides.
    let metric_holds = gain.is_some() && learnt && course.as_ref().is_some_and(|course| !course.was_lost());
    let not_finite = watch.not_finite.is_some() || end == Some(TrainingEnd::NotFinite);
    let enough_losses = trends.iter().any(|(kind, _)| kind.count >= 2 * LOSSES_MIN);
    let metric = metric_findings(watch, gain.as_ref());
    let too_few = metric.as_ref().and_then(|metric| metric.examples).is_some_and(|examples| examples < EXAMPLES_MIN);
    // Neither can improve: a metric of a perfect model, nor a loss of 0.
    let last_held_out = held_out_course.as_ref().and_then(|course| course.values.last());
    let is_perfect =
        gain.as_ref().is_some_and(|gain| gain.is_perfect) || last_held_out.is_some_and(|last| *last >= 0.0);
    let verdict = if not_finite || (loss_diverged && !metric_holds) {
        TrainingVerdictWord::Diverged
    } else if too_few {
        TrainingVerdictWord::Inconclusive
    } else if !learnt {
        match &gain {
            // Below chance before and after.
            Some(gain) if fell && gain.over_chance == Some(false) => TrainingVerdictWord::NoBetterThanChance,
            Some(_) if fell && watch.validations.untrained.is_none() => TrainingVerdictWord::NoBetterThanChance,
            None if trends.iter().any(|(_, trend)| trend.may_have_fallen) => TrainingVerdictWord::Inconclusive,
            _ if enough_losses || validations.count >= 3 => TrainingVerdictWord::NoProgress,
            _ => TrainingVerdictWord::Inconclusive,
        }
    } else if end != Some(TrainingEnd::StoppedEarly)
        && (course.as_ref().is_some_and(Course::was_lost) || held_out_course.as_ref().is_some_and(Course::was_lost))
    {
        TrainingVerdictWord::Overfitting
    } else if gain.is_none() && trends.is_empty() {
        TrainingVerdictWord::Inconclusive
    } else if !is_perfect
        // Two validations do not show that the metric is level.
        && ((gain.is_some() && validations.count < 3 && !is_spent)
            || is_improving(course.as_ref(), held_out_course.as_ref(), still_falling, is_spent))
    {
        TrainingVerdictWord::StillImproving
    } else {
        TrainingVerdictWord::Improved
    };
    let decides = |kind: &LossOfKind| {
        trends.iter().any(|(one, trend)| {
            one.kind == kind.kind && if verdict == TrainingVerdictWord::Diverged { trend.diverged } else { trend.fell }
        })
    };
    let deciding = watch.losses.iter().max_by_key(|kind| (decides(kind), kind.count));
    let loss = deciding.map(|kind| {
        let trend = trends.iter().find(|(one, _)| one.kind == kind.kind).map(|(_, trend)| trend);
        let first = kind.first.first().copied().unwrap_or_default();
        let last = trend.map_or_else(|| late(kind).map_or(first, |level| level.mean), |trend| trend.late.mean);
        LossFindings {
            kind: kind.kind.clone(),
            steps: kind.count,
            first,
            last,
            fall_low: trend.map(|trend| first - last - NORMAL * trend.fall_error),
            fall_high: trend.map(|trend| first - last + NORMAL * trend.fall_error),
        }
    });
    let mut found = TrainingVerdict {
        verdict,
        message: String::new(),
        loss,
        metric,
        held_out_loss: held_out,
        learning_rate_fraction: spent,
    };
    let began_at = validations.untrained.map_or(0, |first| first.step);
    let evidence = Evidence {
        not_finite: watch.not_finite,
        end,
        steps: watch.last_step - began_at,
        began_at,
        too_few,
        metric_lost: course.as_ref().is_some_and(Course::was_lost),
        level_since: course.as_ref().and_then(Course::level_since),
        fell,
    };
    found.message = message(&found, &evidence);
    found
}

/// Level of the last quarter of the losses of a kind.
fn late(kind: &LossOfKind) -> Option<Level> {
    level(part(&kind.bins, 0.75, 1.0))
}

/// Part of the bins between two fractions of their number; at least one bin.
fn part(bins: &[Bin], from: f64, to: f64) -> &[Bin] {
    let count = bins.len() as f64;
    let (from, to) = ((count * from).floor() as usize, (count * to).ceil() as usize);
    &bins[from.min(bins.len().saturating_sub(1))..to.min(bins.len())]
}

/// Course of a loss; `None` for too few losses.
fn trend(kind: &LossOfKind) -> Option<LossTrend> {
    if kind.count < LOSSES_MIN {
        return None;
    }
    let first = *kind.first.first()?;
    let (before, late) = (level(part(&kind.bins, 0.5, 0.75))?, late(kind)?);
    let error = |one: f64, other: f64| (one * one + other * other).sqrt().max(f64::MIN_POSITIVE);
    // The first losses are single ones: they scatter as single losses at the end do.
    let start = kind.first.iter().sum::<f64>() / kind.first.len() as f64;
    let fall_error = error(late.deviation, late.error);
    let start_error = error(late.deviation / (kind.first.len() as f64).sqrt(), late.error);
    let matters = |change: f64| change > LOSS_FALL_MIN * first.abs().max(late.mean.abs());
    let fell_from = |from: f64, its_error: f64| {
        matters(from - late.mean) && from - late.mean > FALL_SIGNIFICANT * error(its_error, late.error)
    };
    // A loss may fall within its first steps.
    let beginnings = [0.0625, 0.125, 0.25].into_iter().filter_map(|to| level(part(&kind.bins, 0.0, to)));
    // One that falls at once leaves few high losses; then a considerable fall is enough.
    let considerable = |fall: f64| fall > PLUNGE_MIN * start.abs();
    let plunged = considerable(start - late.mean) && start - late.mean > PLUNGE_SIGNIFICANT * start_error;
    let fell = plunged
        || fell_from(start, late.deviation / (kind.first.len() as f64).sqrt())
        || beginnings
            .into_iter()
            .any(|beginning| fell_from(beginning.mean, beginning.error.max(beginning.least_error())));
    let rise = late.mean - first;
    let left_upwards = rise > SIGNIFICANT * fall_error && rise > 0.1 * first.abs();
    // A loss that exploded scatters too much for a test; it never comes back to where it began.
    let exploded = first > 0.0 && late.mean > 2.0 * first && late.lowest > first;
    let lowest = kind.bins.iter().map(|bin| bin.mean).fold(f64::INFINITY, f64::min);
    let newest = level(part(&kind.bins, 0.875, 1.0))?;
    let fall = start.max(first) - lowest;
    let rose_again = fall > 0.0
        && newest.mean - lowest > LOSS_RISE_MIN * fall
        && newest.mean - lowest > SIGNIFICANT * error(newest.deviation, newest.error)
        && newest.mean > before.mean;
    let gone = before.mean - late.mean;
    let still_falling = gone > STILL_MIN * (first - late.mean).abs().max(f64::MIN_POSITIVE)
        && gone > 3.0 * error(before.error, late.error)
        && matters(gone);
    Some(LossTrend {
        late,
        fall_error,
        fell,
        may_have_fallen: considerable(start - late.mean + NORMAL * start_error),
        diverged: left_upwards || exploded || rose_again,
        still_falling,
    })
}

/// Value of a metric on a scale on which higher is better and differences compare.
fn scaled(metric: &JudgedMetric, value: f64) -> f64 {
    match metric.loss {
        Some(scale) => -nats(scale, value),
        None if metric.lower_is_better => -value,
        None => value,
    }
}

/// Value of a metric from its scaled one.
fn unscaled(metric: &JudgedMetric, value: f64) -> f64 {
    match metric.loss {
        Some(LossScale::Perplexity) => (-value).exp(),
        None if !metric.lower_is_better => value,
        _ => -value,
    }
}

/// Loss in nats.
fn nats(scale: LossScale, value: f64) -> f64 {
    match scale {
        LossScale::Mean => value,
        LossScale::Perplexity => value.max(f64::MIN_POSITIVE).ln(),
    }
}

/// Improvement of a metric; `None` where there is nothing to compare with.
#[derive(Clone, Copy, Debug)]
struct Gain {
    over_untrained: Option<bool>,
    over_chance: Option<bool>,
    /// Value beyond which two consecutive validations are above chance.
    needed: Option<f64>,
    /// The last value is that of a perfect model.
    is_perfect: bool,
}

/// Whether a metric is above the untrained model and above chance: by its best neighbours or by its later half.
fn gain(watch: &TrainingJudge, metric: &JudgedMetric, course: &Course) -> Gain {
    let chance = chance(watch, metric).map(|value| scaled(metric, value));
    let ideal = metric.ideal().map(|value| scaled(metric, value));
    let reference = chance.or(course.untrained);
    let best = course.best().1;
    let range = match (ideal, reference) {
        (Some(ideal), Some(reference)) => (ideal - reference).abs(),
        (_, Some(reference)) => (best - reference).abs().max(reference.abs()),
        _ => 0.0,
    };
    let own_error = interval_error(watch, metric).unwrap_or_default();
    let matters = |other_error: f64| (METRIC_GAIN_MIN * range).max(SIGNIFICANT_INTERVAL * own_error.hypot(other_error));
    // The best of several is above the mean, and an error from few values is itself uncertain.
    let count = course.values.len() as f64;
    let by_scatter = course.scatter.map(|scatter| SIGNIFICANT * (1.0 + 3.0 / count) * scatter).unwrap_or_default();
    let later_half = course.later_half();
    // `noise`: variance of the reference as a part of that of a value.
    let above = |reference: f64, matters: f64, noise: f64| {
        let by_best = course.robust_best() - reference > matters.max(by_scatter);
        let by_half = later_half.is_some_and(|half| {
            let error = half.deviation * (1.0 / half.count + noise).sqrt();
            let significant = LATER_HALF_SIGNIFICANT * (1.0 + 1.0 / (count - 2.0)) * error;
            half.mean - reference > matters.max(significant)
        });
        by_best || by_half
    };
    let over = matters(chance_half_width(watch, metric).unwrap_or_default() / NORMAL);
    let over_chance = chance.map(|chance| above(chance, over, 0.0));
    let over_untrained = course.untrained.map(|untrained| {
        // A model below chance has nothing to lose.
        above(untrained, matters(0.0), 1.0)
            || (over_chance == Some(true) && chance.is_some_and(|chance| untrained <= chance))
    });
    let needed = chance.map(|chance| unscaled(metric, chance + over.max(by_scatter)));
    let is_perfect = ideal.zip(course.values.last()).is_some_and(|(ideal, last)| *last >= ideal);
    Gain { over_untrained, over_chance, needed, is_perfect }
}

/// Half width of the 95 % interval of the newest value of the baseline.
fn chance_half_width(watch: &TrainingJudge, metric: &JudgedMetric) -> Option<f64> {
    let newest = watch.validations.kept.iter().rev().find(|validation| validation.baseline.is_some());
    newest.filter(|_| metric.chance.is_none())?.baseline_half_width
}

/// Chance level of the metric, or the newest value of its baseline.
fn chance(watch: &TrainingJudge, metric: &JudgedMetric) -> Option<f64> {
    metric.chance.or_else(|| watch.validations.kept.iter().rev().find_map(|validation| validation.baseline))
}

/// Standard error of one value of the metric on its scale, from its newest interval.
fn interval_error(watch: &TrainingJudge, metric: &JudgedMetric) -> Option<f64> {
    let (value, width) = watch.validations.kept.iter().rev().find_map(|one| Some((one.metric?, one.half_width?)))?;
    let error = width / NORMAL;
    Some(match metric.loss {
        Some(LossScale::Perplexity) => error / value.max(f64::MIN_POSITIVE),
        _ => error,
    })
}

impl Course {
    fn new(
        untrained: Option<&Validation>,
        kept: &[Validation],
        of: impl Fn(&Validation) -> Option<f64>,
        scaled: impl Fn(f64) -> f64,
    ) -> Option<Self> {
        let values = kept.iter().filter_map(|validation| Some((validation.step as f64, scaled(of(validation)?))));
        let (steps, values): (Vec<f64>, Vec<f64>) = values.unzip();
        if values.is_empty() {
            return None;
        }
        let scatter = scatter(&values);
        Some(Self { steps, values, scatter, untrained: untrained.and_then(of).map(scaled) })
    }

    /// Index and value of the best.
    fn best(&self) -> (usize, f64) {
        let all = self.values.iter().copied().enumerate();
        all.reduce(|best, one| if one.1 > best.1 { one } else { best }).unwrap_or_default()
    }

    /// Best mean of two consecutive values; the best value of fewer than four.
    fn robust_best(&self) -> f64 {
        if self.values.len() < 4 {
            return self.best().1;
        }
        self.values.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Later half of the values, with their deviation from a straight line through all of them; `None` for few values.
    fn later_half(&self) -> Option<LaterHalf> {
        let count = self.values.len();
        if count < VALIDATIONS_FOR_SCATTER {
            return None;
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (middle, level) = (mean(&self.steps), mean(&self.values));
        let pairs = || self.steps.iter().zip(&self.values).map(|(step, value)| (step - middle, value - level));
        let slope = pairs().map(|(x, y)| x * y).sum::<f64>() / pairs().map(|(x, _)| x * x).sum::<f64>();
        let squares: f64 = pairs().map(|(x, y)| (y - slope * x).powi(2)).sum();
        let half = &self.values[count / 2..];
        let deviation = (squares / (count as f64 - 2.0)).sqrt();
        Some(LaterHalf { mean: mean(half), count: half.len() as f64, deviation })
    }

    /// Mean of the last quarter of the values, at most of those after the best one; the last value of few.
    fn newest(&self) -> f64 {
        let count = (self.values.len() / 4).max(1);
        let values = &self.values[self.values.len() - count..];
        values.iter().sum::<f64>() / count as f64
    }

    /// Returns `true` if a considerable part of the improvement was lost again.
    fn was_lost(&self) -> bool {
        let count = self.values.len();
        let (at, best) = self.best();
        if count < 3 || at + 1 == count {
            return false;
        }
        let lost = best - self.newest();
        let start = self.untrained.unwrap_or(self.values[0]);
        let scatter = self.scatter.unwrap_or_default();
        lost > LOST_MIN * (best - start).max(0.0) && lost > LOST_SIGNIFICANT * scatter
    }

    /// Step since which the values are level with the best, for the message.
    fn level_since(&self) -> Option<u64> {
        let (_, best) = self.best();
        let start = self.untrained.unwrap_or(self.values[0]);
        let close = (STILL_MIN * (best - start)).max(2.0 * self.scatter.unwrap_or_default());
        let level = self.values.iter().rev().take_while(|value| best - **value <= close).count();
        (level >= 2).then(|| self.steps[self.values.len() - level] as u64)
    }

    /// Improvement over the last third of the steps as a part of the whole; `None` for fewer than three values.
    fn late_gain(&self) -> Option<(f64, f64)> {
        let count = self.values.len();
        if count < 3 {
            return None;
        }
        let third = (count / 3).max(1);
        let late = &self.values[count - third..];
        let before = &self.values[count - 2 * third..count - third];
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let start = self.untrained.unwrap_or(self.values[0]);
        let whole = (self.best().1 - start).max(f64::MIN_POSITIVE);
        let gain = mean(late) - mean(before);
        let error = self.scatter.unwrap_or_default() * (2.0 / third as f64).sqrt();
        Some((gain / whole, error / whole))
    }
}

/// Standard deviation of values about their course: of each about the mean of its neighbours, by the median, so that steep
/// parts and outliers do not count. `None` for few values.
fn scatter(values: &[f64]) -> Option<f64> {
    if values.len() < VALIDATIONS_FOR_SCATTER {
        return None;
    }
    let mut differences: Vec<f64> =
        values.windows(3).map(|three| (three[1] - f64::midpoint(three[0], three[2])).abs()).collect();
    differences.sort_by(f64::total_cmp);
    // The variance of the difference is 1.5 times that of a value; 1.4826 makes the median a standard deviation.
    Some(1.4826 * differences[differences.len() / 2] / 1.5f64.sqrt())
}

/// Returns `true` if the model still improved at the end.
fn is_improving(metric: Option<&Course>, held_out: Option<&Course>, still_falling: bool, is_spent: bool) -> bool {
    let threshold = if is_spent { STILL_MIN_SPENT } else { STILL_MIN };
    let improves = |(gain, error): (f64, f64)| gain > threshold && gain > 2.0 * error;
    let gains: Vec<(f64, f64)> = [metric, held_out].into_iter().flatten().filter_map(Course::late_gain).collect();
    match gains.is_empty() {
        false => gains.into_iter().any(improves),
        true => still_falling && !is_spent,
    }
}

fn metric_findings(watch: &TrainingJudge, gain: Option<&Gain>) -> Option<MetricFindings> {
    let metric = watch.context.metric.as_ref()?;
    let mut measured = watch.validations.kept.iter().filter_map(|one| Some((one.step, one.metric?)));
    // Of equal ones the latest, as the best checkpoint.
    let better = |one: f64, other: f64| if metric.lower_is_better { one <= other } else { one >= other };
    let (best_step, best) = measured.clone().reduce(|best, one| if better(one.1, best.1) { one } else { best })?;
    let (_, last) = measured.next_back()?;
    let widths = watch.validations.kept.iter().rev().find_map(|one| one.half_width);
    let of = |validation: &Validation| validation.metric;
    let course = Course::new(None, &watch.validations.kept, of, |value| value)?;
    Some(MetricFindings {
        name: metric.name.clone(),
        unit: metric.unit.clone(),
        baseline: metric.baseline.clone().filter(|_| metric.chance.is_none()),
        untrained: watch.validations.untrained.and_then(|one| one.metric),
        chance: chance(watch, metric),
        chance_half_width: chance_half_width(watch, metric),
        needed: gain.and_then(|gain| gain.needed),
        best,
        best_step,
        last,
        validations: watch.validations.count,
        examples: watch.validations.kept.iter().rev().find_map(|one| one.examples),
        error: widths.map(|width| width / NORMAL).into_iter().chain(course.scatter).reduce(f64::max),
    })
}

fn held_out_findings(watch: &TrainingJudge) -> Option<HeldOutFindings> {
    let (name, _) = watch.context.held_out_loss.as_ref()?;
    let mut measured = watch.validations.kept.iter().filter_map(|one| Some((one.step, one.held_out?)));
    let (lowest_step, lowest) = measured.clone().reduce(|best, one| if one.1 < best.1 { one } else { best })?;
    let (_, last) = measured.next_back()?;
    let untrained = watch.validations.untrained.and_then(|one| one.held_out);
    Some(HeldOutFindings { name: name.clone(), untrained, lowest, lowest_step, last })
}
