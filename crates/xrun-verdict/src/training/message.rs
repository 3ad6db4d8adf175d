//! Verdict on training as a sentence.

use super::findings::{TrainingEnd, TrainingVerdict, TrainingVerdictWord};
use super::judge::{EXAMPLES_MIN, SPENT};

/// Facts for the sentence that the findings do not have.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    /// Step of the first loss that is no number.
    pub not_finite: Option<u64>,
    /// How the run ended.
    pub end: Option<TrainingEnd>,
    /// Steps done before the first validation: those of the parent of a fork.
    pub began_at: u64,
    /// Steps done since then.
    pub steps: u64,
    /// The metric is of too few examples.
    pub too_few: bool,
    /// The metric lost a part of its improvement again.
    pub metric_lost: bool,
    /// Step since which the metric is level.
    pub level_since: Option<u64>,
    /// The loss of training fell.
    pub fell: bool,
}

/// Number of steps from which on an uncertain verdict is not due to their number.
const STEPS_ENOUGH: u64 = 50;

/// Sentence: the numbers that decide, then what to do.
pub fn message(found: &TrainingVerdict, evidence: &Evidence) -> String {
    let loss = || {
        found.loss.as_ref().map(|loss| {
            let verb = if loss.last > loss.first { "rose" } else { "fell" };
            format!("the loss {verb} from {} to {}", number(loss.first), number(loss.last))
        })
    };
    let percent = found.metric.as_ref().is_some_and(|metric| metric.unit == "%");
    let value = |value: f64| number(value) + if percent { " %" } else { "" };
    let metric = || {
        found.metric.as_ref().map(|metric| {
            let untrained = metric.untrained.map(|found| match evidence.began_at {
                0 => format!("untrained {}", value(found)),
                step => format!("{} at step {step}", value(found)),
            });
            let kind = if metric.baseline.is_some() { "baseline" } else { "chance" };
            let range = metric.chance.zip(metric.chance_half_width);
            let range =
                range.map(|(mid, half)| format!(", {} to {}", number((mid - half).max(0.0)), number(mid + half)));
            let chance = metric.chance.map(|found| format!("{kind} {}{}", value(found), range.unwrap_or_default()));
            let compared: Vec<String> = untrained.into_iter().chain(chance).collect();
            let compared = if compared.is_empty() { String::new() } else { format!(" ({})", compared.join(", ")) };
            format!("{} {}{compared}", metric.name, value(metric.last))
        })
    };
    let spent = found.learning_rate_fraction.is_some_and(|fraction| fraction <= SPENT);
    let best = || {
        let best = found.metric.as_ref();
        best.map(|best| format!("best at step {} ({} {})", best.best_step, best.name, number(best.best)))
    };
    let join = |parts: Vec<Option<String>>| parts.into_iter().flatten().collect::<Vec<String>>().join("; ");
    match found.verdict {
        TrainingVerdictWord::Inconclusive if evidence.too_few => {
            let examples = found.metric.as_ref().and_then(|metric| metric.examples).unwrap_or_default();
            let few = format!("{examples} validation examples are too few to tell, {EXAMPLES_MIN} needed");
            join(vec![Some(few), metric()])
        }
        TrainingVerdictWord::Inconclusive => {
            let count = evidence.steps;
            let steps = if count == 1 { "step is" } else { "steps are" };
            let scatters = loss().filter(|_| count > STEPS_ENOUGH).map(|loss| format!("{loss}, within its scatter"));
            scatters.unwrap_or_else(|| format!("{count} {steps} too few for a verdict"))
        }
        TrainingVerdictWord::Improved => {
            let since = evidence.level_since.map(|step| format!("level since step {step}"));
            let early = (evidence.end == Some(TrainingEnd::StoppedEarly)).then(best).flatten();
            join(vec![metric().or_else(loss), early.or(since)])
        }
        TrainingVerdictWord::StillImproving => {
            let advice = match (evidence.end, spent) {
                (None, _) => None,
                (_, true) => Some("more steps with a longer schedule may improve it further".to_owned()),
                (_, false) => Some("more steps may improve it further".to_owned()),
            };
            let fell = found.held_out_loss.as_ref().filter(|held_out| held_out.last <= held_out.lowest);
            let improved = fell.map_or_else(
                || "it still improved at the end".to_owned(),
                |held_out| format!("{} still fell at the end, to {}", held_out.name, number(held_out.last)),
            );
            join(vec![metric().or_else(loss), Some(improved).filter(|_| evidence.end.is_some()), advice])
        }
        TrainingVerdictWord::Overfitting => {
            let held_out = found.held_out_loss.as_ref().filter(|_| !evidence.metric_lost).map(|held_out| {
                let (name, lowest, last) = (&held_out.name, number(held_out.lowest), number(held_out.last));
                format!("{name} rose from {lowest} at step {} to {last}", held_out.lowest_step)
            });
            let lost = found.metric.as_ref().filter(|_| evidence.metric_lost).map(|metric| {
                let (name, best, last) = (&metric.name, number(metric.best), number(metric.last));
                format!("{name} went from {best} at step {} to {last}", metric.best_step)
            });
            let advice = "stop earlier (`training.early_stopping`), or use more data or weight decay";
            join(vec![lost.or(held_out), loss().filter(|_| evidence.fell), Some(advice.to_owned())])
        }
        TrainingVerdictWord::NoBetterThanChance => {
            let needed = found.metric.as_ref().and_then(|metric| {
                let two = if metric.validations < 4 { "" } else { " in two consecutive validations" };
                Some(format!("better than {} needed{two}", value(metric.needed?)))
            });
            let advice = "train longer, or check the labels and the split of the data";
            join(vec![metric(), needed, loss(), Some(advice.to_owned())])
        }
        TrainingVerdictWord::NoProgress => {
            let flat = found.loss.as_ref().map(|loss| format!("loss {} -> {}", number(loss.first), number(loss.last)));
            let advice = "raise the learning rate, or check that the parameters are trained";
            join(vec![metric(), flat, Some(advice.to_owned())])
        }
        TrainingVerdictWord::Diverged => {
            let what = evidence.not_finite.map(|step| format!("the loss of step {step} is not a number"));
            let ended = (evidence.end == Some(TrainingEnd::NotFinite))
                .then(|| "the loss or its gradients are not a number".to_owned());
            let rose = || {
                found.loss.as_ref().map(|loss| {
                    let (first, last) = (number(loss.first), number(loss.last));
                    match loss.last > loss.first {
                        true => format!("the loss rose from {first} to {last}"),
                        false => format!("the loss rose again at the end; it began at {first}"),
                    }
                })
            };
            join(vec![
                what.or(ended).or_else(rose),
                metric(),
                Some("lower the learning rate or clip the gradients".to_owned()),
            ])
        }
    }
}

/// Number with four significant digits, without trailing zeros.
fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".into();
    }
    if !(1e-3..1e6).contains(&size) {
        return format!("{value:.2e}");
    }
    let decimals = (3 - size.log10().floor() as i32).clamp(0, 4) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
