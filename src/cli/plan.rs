//! `xrun plan FILE`: how much memory will it need, does it fit, and what is the largest value that fits?

use super::PlanArguments;
use super::locked;
use super::terminal::{Failure, Terminal};
use crate::dataset::Dataset;
use crate::experiment::shape::{self, Shape};
use crate::experiment::{Experiment, read, schema};
use crate::invocation;
use crate::plan::{Plan, describe, disk, fit};
use crate::printable;
use crate::probe::ProbeError;
use crate::probe::solve::{End, Solution, solve};
use crate::report::width;
use crate::results::format::{Forecast, ForecastRow, Outcome};
use crate::run::prepare::Planned;
use crate::stop::{EXIT_DOES_NOT_FIT, exit_code};
use crate::task::TaskFacts;
use crate::units::Bytes;

pub fn run(arguments: &PlanArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let overrides = arguments.overrides.all();
    if let Some(key) = &arguments.solve {
        return solve_for(key, arguments, &overrides, terminal);
    }
    let (planned, forecast, parameters) = match forecast_of(arguments, &overrides, terminal)? {
        Ok(planned) => planned,
        Err(error @ ProbeError::TooSlow { .. }) => {
            let message = format!("no forecast: {error}; nothing is known of whether it fits");
            match arguments.json {
                true => terminal.json(&serde_json::json!({ "fits": null, "sentence": message })),
                false => terminal.answer(&message),
            }
            return Ok(exit_code(Outcome::TimeLimit));
        }
        Err(message) => {
            let message = message.to_string();
            match arguments.json {
                true => terminal.json(&serde_json::json!({ "fits": false, "sentence": message })),
                false => terminal.answer(&format!("does not fit: {message}")),
            }
            return Ok(EXIT_DOES_NOT_FIT);
        }
    };
    if arguments.lock {
        locked::refuse_overrides(&overrides)?;
        let path = locked::write(&arguments.file, &planned, &forecast, *terminal)?;
        terminal.say(&format!("{}: written", path.display()));
    }
    let rooms = planned.rooms();
    let (fits, sentence) = fit::sentence(&forecast, &rooms);
    let results = &arguments.results.folder;
    let free = disk::free(results);
    let on_disk = forecast.disk.map(|disk| disk::sentence(&disk, free, results, &planned.plan));
    let disk_fits = on_disk.as_ref().is_none_or(|(fits, _)| *fits);
    let advice = fit::advice(&planned.plan, &forecast, &rooms).map(|(said, key)| match key {
        Some(key) => {
            let file = printable::shell_word(&arguments.file.to_string_lossy());
            format!("{said}; `{} plan {file} --solve {key}` finds what fits", invocation::program())
        }
        None => said,
    });
    match arguments.json {
        true => terminal.json(&serde_json::json!({
            "fits": fits && disk_fits,
            "sentence": sentence,
            "advice": advice,
            "disk": on_disk.as_ref().map(|(fits, sentence)| serde_json::json!({
                "fits": fits, "sentence": sentence, "free": free,
            })),
            "rooms": rooms.iter().map(|room| serde_json::json!({
                "place": room.place, "bytes": room.bytes, "because": room.because,
                "left": fit::left(&forecast, room).and_then(|left| i64::try_from(left).ok()),
            })).collect::<Vec<_>>(),
            "plan": planned.plan.to_file(parameters),
        })),
        false => {
            terminal.answer(&describe::describe(&planned.plan, parameters, &planned.chosen.words(), terminal.width()));
            terminal.answer(&describe::forecast(&forecast, terminal.width()));
            terminal.answer(&format!("\n{sentence}"));
            advice.iter().for_each(|advice| terminal.answer(&width::fold(advice, terminal.width(), 2)));
            let unknown = "disk: not known, since the number of steps or what they write is not";
            let on_disk = on_disk.as_ref().map_or(unknown, |(_, sentence)| sentence);
            terminal.answer(&width::fold(on_disk, terminal.width(), 2));
        }
    }
    Ok(if fits && disk_fits { 0 } else { EXIT_DOES_NOT_FIT })
}

/// The experiment, what it will need, and the number of its parameters; or that not even a probe fits, or ends in time.
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
    let Some(schema) = shape::at(schema::shared(), key) else {
        return Err(wrong("there is no such key; name one such as limits.batch_size"));
    };
    let (range, in_bytes) = match shape::of(schema) {
        Shape::Integer { least, most } => ((least.max(0) as u64, most.max(0) as u64), false),
        Shape::Bytes => ((0, 1 << 50), true),
        _ => return Err(wrong("only a key that takes a whole number or bytes can be solved for")),
    };
    let start = match start {
        Some(value) if in_bytes => serde_json::from_value::<Bytes>(value.clone()).map_or(1 << 20, |bytes| bytes.0),
        Some(value) => value.as_u64().unwrap_or(range.0),
        None => match checked.experiment.pipeline.kind().batch_size() {
            Some(size) if key == "training.batch_size" => size as u64,
            _ => return Err(wrong("it has no value here; give one to start from: -s")),
        },
    };
    // From nothing there is no line to follow.
    let start = if in_bytes { start.max(1 << 20) } else { start };
    let matters = matters_up_to(key, &checked.experiment, terminal)?.map(|most| most.max(range.0));
    let range = (range.0, matters.map_or(range.1, |most| range.1.min(most)));
    let written = |value: u64| if in_bytes { format!("\"{}\"", Bytes(value).exact()) } else { value.to_string() };
    let (mut room_said, mut rather) = (String::new(), Rather::default());
    let left = |value: u64| -> Result<i128, Failure> {
        let mut with = overrides.to_vec();
        with.push(format!("{key}={value}"));
        let (planned, forecast, _) = match forecast_of(arguments, &with, terminal)? {
            Ok(planned) => planned,
            Err(error @ ProbeError::TooSlow { .. }) => return Err(Failure::from(error)),
            Err(message) => {
                terminal.say(&format!("{key} = {}: {message}", written(value)));
                return Ok(-OUT_OF_MEMORY);
            }
        };
        rather = Rather::of(&planned.plan, &forecast);
        let rooms = planned.rooms();
        let (_, sentence) = fit::sentence(&forecast, &rooms);
        terminal.say(&format!("{key} = {}: {sentence}", written(value)));
        let tightest = fit::tightest(&forecast, &rooms);
        room_said = tightest.map_or_else(String::new, |(room, _)| room.because.clone());
        Ok(tightest.map_or(i128::MAX, |(_, left)| left))
    };
    let mut solution = solve(start, range, left)?;
    if solution.end == End::LargestAllowed && matters.is_some() {
        solution.end = End::DoesNotMatter;
    }
    tell(key, &solution, &written, (&room_said, &rather), arguments.json, terminal);
    Ok(if solution.value.is_some() { 0 } else { EXIT_DOES_NOT_FIT })
}

/// The largest value of the key that changes anything, where that is known: a batch has so many items.
fn matters_up_to(key: &str, experiment: &Experiment, terminal: &Terminal) -> Result<Option<u64>, Failure> {
    if key != BATCH_SIZE {
        return Ok(None);
    }
    // What there is to say of the data, each probe says.
    let pending = experiment.dataset.as_ref().and_then(Dataset::pending).is_some();
    let planned = Planned::new(experiment.clone(), Terminal { quiet: !pending, verbose: false, ..*terminal })?;
    Ok(largest_that_matters(key, &planned.plan.facts))
}

fn largest_that_matters(key: &str, facts: &TaskFacts) -> Option<u64> {
    (key == BATCH_SIZE && !facts.batch_keys.is_empty()).then_some(facts.batch_items)
}

/// How much is taken to be missing where a probe ran out of memory: nobody measured it.
const OUT_OF_MEMORY: i128 = 1 << 40;

/// What memory depends on where the key that was asked for does not matter.
#[derive(Debug, Default)]
struct Rather {
    batch_items: u64,
    /// Whose product is a batch.
    batch_keys: Vec<String>,
    /// The largest part of the forecast.
    largest: Option<ForecastRow>,
}

impl Rather {
    fn of(plan: &Plan, forecast: &Forecast) -> Self {
        Self {
            batch_items: plan.facts.batch_items,
            batch_keys: plan.facts.batch_keys.iter().map(|key| (*key).to_owned()).collect(),
            largest: forecast.rows.iter().max_by_key(|row| row.bytes).cloned(),
        }
    }

    /// The keys to solve for in place of this one.
    fn keys(&self, key: &str) -> &[String] {
        if key == BATCH_SIZE { &self.batch_keys } else { &[] }
    }

    fn words(&self, key: &str) -> String {
        let largest = self.largest.as_ref().map_or_else(String::new, |row| {
            format!("; what needs most is {}, {} ({})", row.name, Bytes(row.bytes), row.about)
        });
        match self.keys(key) {
            [] => format!("it is not what memory depends on here{largest}"),
            keys => format!(
                "a batch has no more than {} items ({}), so a larger {key} changes nothing; solve for one of those{largest}",
                self.batch_items,
                keys.join(" x ")
            ),
        }
    }
}

const BATCH_SIZE: &str = "limits.batch_size";

fn tell(
    key: &str,
    solution: &Solution,
    written: &dyn Fn(u64) -> String,
    (room, rather): (&str, &Rather),
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
                End::Found => "found",
                End::LargestAllowed => "largest_allowed",
                End::DoesNotMatter => "does_not_matter",
                End::GaveUp => "gave_up",
            },
            "room": room,
            "solve_for": rather.keys(key),
            "tried": tried.collect::<Vec<_>>(),
        }));
    }
    terminal.answer(&match solution.value {
        None => format!("no value of {key} fits ({room})"),
        Some(value) => {
            let fits = format!("{key} = {}", written(value));
            match solution.end {
                End::Found => format!("{fits} is the largest that fits ({room}); every value was tried out"),
                End::LargestAllowed => format!("{fits} fits, and is the largest that may be written"),
                End::DoesNotMatter => {
                    format!("{fits} fits, and larger values would, too: {}", rather.words(key))
                }
                End::GaveUp => format!("{fits} fits; larger values may, too: {} were tried", solution.tried.len()),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_for_what_is_on_the_device_at_once_ends_at_the_batch() {
        let facts = TaskFacts { batch_items: 32, batch_keys: &["training.batch_size"], ..TaskFacts::new(10, &[]) };
        let most = largest_that_matters(BATCH_SIZE, &facts).unwrap();
        assert_eq!((most, largest_that_matters("limits.prefetch", &facts)), (32, None));
        assert_eq!(largest_that_matters(BATCH_SIZE, &TaskFacts::new(10, &[])), None, "nobody knows");
        let solution = solve(4, (1, most), |_| Ok::<_, ()>(1 << 30)).unwrap();
        assert_eq!(solution.value, Some(32), "and not 65536: {solution:?}");
        let rather = Rather { batch_items: 32, batch_keys: vec!["training.batch_size".into()], largest: None };
        assert!(rather.words(BATCH_SIZE).contains("so a larger limits.batch_size changes nothing"));
    }

    #[test]
    fn a_batch_that_is_an_episode_names_the_keys_of_the_episode() {
        let keys = ["pipeline.fewshot-detection.n_way", "pipeline.fewshot-detection.n_query"];
        let rather = Rather { batch_items: 32, batch_keys: keys.map(str::to_owned).to_vec(), largest: None };
        assert_eq!(
            rather.words(BATCH_SIZE),
            "a batch has no more than 32 items (pipeline.fewshot-detection.n_way x pipeline.fewshot-detection.n_query), \
             so a larger limits.batch_size changes nothing; solve for one of those"
        );
        assert!(rather.words("limits.prefetch").starts_with("it is not what memory depends on here"));
    }
}
