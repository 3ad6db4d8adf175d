//! `xrun plan FILE`: forecast memory, check that it fits, or find the largest value of a key that fits.

use super::PlanArguments;
use super::contract;
use super::terminal::{Failure, Terminal};
use crate::exit::{EXIT_DOES_NOT_FIT, exit_code};
use crate::experiment::shape::{self, Shape};
use crate::experiment::{Experiment, read, schema};
use crate::invocation;
use crate::plan::{describe, duration, fit};
use crate::printable;
use crate::probe::ProbeError;
use crate::probe::solve::{SearchEnd, Solution, solve};
use crate::report::width;
use crate::results::format::{Forecast, Outcome};
use crate::run::prepare::Planned;
use crate::task::TaskFacts;
use crate::units::{Bytes, pluralize};

pub fn run(arguments: &PlanArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let overrides = arguments.overrides.all();
    if let Some(key) = &arguments.solve {
        return solve_for(key, arguments, &overrides, terminal);
    }
    let (planned, forecast, parameters) = match forecast_of(arguments, &overrides, terminal)? {
        Ok(planned) => planned,
        Err(error) => {
            let (fits, code, message) = match error {
                ProbeError::TooSlow { .. } => {
                    let message = format!("no forecast: {error}; whether the experiment fits is unknown");
                    (None, exit_code(Outcome::TimeLimit), message)
                }
                error => (Some(false), EXIT_DOES_NOT_FIT, error.to_string()),
            };
            let prefix = if fits.is_some() { "does not fit: " } else { "" };
            let answer = serde_json::json!({ "fits": fits, "sentence": message });
            terminal.answer(arguments.json, &answer, || format!("{prefix}{message}"));
            return Ok(code);
        }
    };
    if arguments.lock {
        contract::refuse_overrides(&overrides)?;
        let path = contract::write(&arguments.file, &planned, &forecast, *terminal)?;
        terminal.info(&format!("{}: written", path.display()));
    }
    let unset = planned.plan.experiment.unset_batch_size();
    unset.iter().for_each(|warning| terminal.info(&format!("warning: {warning}")));
    let budgets = planned.memory_budgets();
    let (fits, message) = fit::message(&forecast, &budgets);
    let work = duration::work_after(&planned.plan, 0, false);
    let lasts = forecast.duration.map(|found| duration::message(&planned.plan, &work, &found));
    let advice = fit::advice(&planned.plan, &forecast, &budgets).map(|(largest, key)| match key {
        Some(key) => {
            let file = printable::shell_word(&arguments.file.to_string_lossy());
            format!("{largest}; `{} plan {file} --solve {key}` finds what fits", invocation::program())
        }
        None => largest,
    });
    match arguments.json {
        true => terminal.json(&serde_json::json!({
            "fits": fits,
            "sentence": message,
            "advice": advice,
            "duration": forecast.duration.zip(lasts.as_ref()).map(|(found, message)| serde_json::json!({
                "sentence": message, "seconds": found.seconds, "low": found.low, "high": found.high, "steps": found.steps,
                "validations": found.validations, "checkpoints": found.checkpoints,
            })),
            "budgets": budgets.iter().map(|budget| serde_json::json!({
                "place": budget.place, "bytes": budget.bytes, "because": budget.because,
                "left": fit::left(&forecast, budget).and_then(|left| i64::try_from(left).ok()),
            })).collect::<Vec<_>>(),
            "plan": planned.plan.to_file(parameters),
        })),
        false => {
            terminal.print(&describe::describe(
                &planned.plan,
                parameters,
                &planned.chosen.description(),
                terminal.width(),
            ));
            terminal.print(&describe::forecast(&forecast, terminal.width()));
            terminal.print(&format!("\n{message}"));
            advice.iter().for_each(|advice| terminal.print(&width::fold(advice, terminal.width(), 2)));
            let lasts = lasts.unwrap_or_else(|| "time: unknown, because the probe measured too little".to_owned());
            terminal.print(&width::fold(&lasts, terminal.width(), 2));
        }
    }
    Ok(if fits { 0 } else { EXIT_DOES_NOT_FIT })
}

/// Planned experiment, its forecast and its number of parameters; or the error of a probe that does not fit or is too slow.
fn forecast_of(
    arguments: &PlanArguments,
    overrides: &[String],
    terminal: &Terminal,
) -> Result<Result<(Planned, Forecast, u64), ProbeError>, Failure> {
    let checked = read::read(&arguments.file, overrides, super::environment())?;
    let mut planned = Planned::new(checked.experiment, *terminal)?;
    match planned.forecast(&arguments.file, overrides) {
        Err(error @ (ProbeError::OutOfMemory(_) | ProbeError::TooSlow { .. })) => Ok(Err(error)),
        expected => expected.map(|(forecast, parameters)| Ok((planned, forecast, parameters))).map_err(Failure::from),
    }
}

fn solve_for(key: &str, arguments: &PlanArguments, overrides: &[String], terminal: &Terminal) -> Result<u8, Failure> {
    let checked = read::read(&arguments.file, overrides, super::environment())?;
    let values = serde_json::to_value(&checked.experiment).map_err(Failure::failed)?;
    let start = key.split('.').try_fold(&values, |value, key| value.get(key));
    let wrong = |why: &str| Failure::Usage(format!("--solve {key}: {why}"));
    let Some(schema) = shape::schema_at(schema::shared(), key) else {
        return Err(wrong("unknown key; use one such as limits.batch_size"));
    };
    let (range, in_bytes) = match shape::parse(schema) {
        Shape::Integer { least, most } => ((least.max(0) as u64, most.max(0) as u64), false),
        Shape::Bytes => ((0, 1 << 50), true),
        _ => return Err(wrong("only keys with an integer or a size in bytes can be solved for")),
    };
    let start = match start {
        Some(value) if in_bytes => serde_json::from_value::<Bytes>(value.clone()).map_or(1 << 20, |bytes| bytes.0),
        Some(value) => value.as_u64().unwrap_or(range.0),
        None => match checked.experiment.pipeline.facts().batch_size {
            Some(size) if key == "training.batch_size" => size as u64,
            _ if key == "limits.prefetch" => checked.experiment.limits.batches_ahead(),
            _ => return Err(wrong("the key has no value to start from; set one with -s")),
        },
    };
    // The search needs a positive start.
    let start = if in_bytes { start.max(1 << 20) } else { start };
    let effective_max = effective_max_of(key, &checked.experiment, terminal)?.map(|max| max.max(range.0));
    let range = (range.0, effective_max.map_or(range.1, |max| range.1.min(max)));
    let formatted = |value: u64| if in_bytes { format!("\"{}\"", Bytes(value).exact()) } else { value.to_string() };
    let mut bound = String::new();
    let left = |value: u64| -> Result<i128, Failure> {
        let mut with = overrides.to_vec();
        with.push(format!("{key}={value}"));
        let (planned, forecast, _) = match forecast_of(arguments, &with, terminal)? {
            Ok(planned) => planned,
            Err(error @ ProbeError::TooSlow { .. }) => return Err(Failure::from(error)),
            Err(error) => {
                terminal.info(&format!("{key} = {}: {error}", formatted(value)));
                return Ok(-OUT_OF_MEMORY);
            }
        };
        let budgets = planned.memory_budgets();
        let (_, message) = fit::message(&forecast, &budgets);
        terminal.info(&format!("{key} = {}: {message}", formatted(value)));
        let tightest = fit::tightest(&forecast, &budgets);
        bound = tightest.map_or_else(String::new, |(budget, _)| budget.because.clone());
        Ok(tightest.map_or(i128::MAX, |(_, left)| left))
    };
    let mut solution = solve(start, range, left)?;
    if solution.end == SearchEnd::LargestAllowed && effective_max.is_some() {
        solution.end = SearchEnd::DoesNotMatter;
    }
    report_solution(key, &solution, &formatted, &bound, arguments.json, terminal);
    Ok(if solution.value.is_some() { 0 } else { EXIT_DOES_NOT_FIT })
}

/// Largest value of the key that has an effect, if known: `limits.batch_size` has none above the size of a batch.
fn effective_max_of(key: &str, experiment: &Experiment, terminal: &Terminal) -> Result<Option<u64>, Failure> {
    if key != BATCH_SIZE {
        return Ok(None);
    }
    // Each probe reports the facts about the data again, so they are not shown here.
    let pending = experiment.dataset.as_ref().and_then(|dataset| dataset.generation_notice()).is_some();
    let planned = Planned::new(experiment.clone(), Terminal { quiet: !pending, verbose: false, ..*terminal })?;
    Ok(effective_max(key, &planned.plan.facts))
}

fn effective_max(key: &str, facts: &TaskFacts) -> Option<u64> {
    (key == BATCH_SIZE && !facts.batch_keys.is_empty()).then_some(facts.batch_items)
}

/// Bytes assumed to be missing if a probe ran out of memory, since the real number is unknown.
const OUT_OF_MEMORY: i128 = 1 << 40;

const BATCH_SIZE: &str = "limits.batch_size";

fn report_solution(
    key: &str,
    solution: &Solution,
    formatted: &dyn Fn(u64) -> String,
    bound: &str,
    json: bool,
    terminal: &Terminal,
) {
    if json {
        let tried = solution.tried.iter();
        let tried = tried.map(|(value, left)| serde_json::json!({ "value": value, "left": i64::try_from(*left).ok() }));
        return terminal.json(&serde_json::json!({
            "key": key,
            "value": solution.value,
            "end": match solution.end {
                SearchEnd::Found => "found",
                SearchEnd::LargestAllowed => "largest_allowed",
                SearchEnd::DoesNotMatter => "no_effect",
                SearchEnd::GaveUp => "probe_limit",
            },
            "budget": bound,
            "tried": tried.collect::<Vec<_>>(),
        }));
    }
    terminal.print(&match solution.value {
        None => format!("no value of {key} fits ({bound})"),
        Some(value) => {
            let fits = format!("{key} = {}", formatted(value));
            match solution.end {
                SearchEnd::Found => format!("{fits} is the largest value that fits ({bound}); measured by probes"),
                SearchEnd::LargestAllowed => format!("{fits} fits and is the largest value that is allowed"),
                SearchEnd::DoesNotMatter => {
                    format!("{fits} fits, as would larger values: memory does not depend on it from there on")
                }
                SearchEnd::GaveUp => format!(
                    "{fits} fits; larger values may fit too (stopped after {})",
                    pluralize(solution.tried.len() as u64, "probe")
                ),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_for_limits_batch_size_ends_at_the_batch() {
        let facts = TaskFacts { batch_items: 32, batch_keys: &["training.batch_size"], ..TaskFacts::new(10, &[]) };
        let max = effective_max(BATCH_SIZE, &facts).unwrap();
        assert_eq!((max, effective_max("limits.prefetch", &facts)), (32, None));
        assert_eq!(effective_max(BATCH_SIZE, &TaskFacts::new(10, &[])), None, "unknown");
        let solution = solve(4, (1, max), |_| Ok::<_, ()>(1 << 30)).unwrap();
        assert_eq!(solution.value, Some(32), "and not 65536: {solution:?}");
    }
}
