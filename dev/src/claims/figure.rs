//! Figures of claims from kept results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::{Answer, read};
use xrun_core::files::layout::{REFERENCE, TABLE_JSON};
use xrun_results::noise::{Change, Noise, Repeats, Spread};
use xrun_results::report::formatting::{bytes, duration, number, signed_bytes};
use xrun_sweep::records::sweep::Measured;

/// Number of times that `results/take-claims` runs each sweep, and all leaks.
const RUNS: usize = 3;

/// A figure of a claim, with the range that confirms it. It is that of a sweep, a leak, or a field of a kept file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Figure {
    /// Text before the figure.
    pub label: String,
    /// Name of a kept sweep.
    pub sweep: Option<String>,
    /// Number of the trial.
    pub trial: u64,
    /// Number of the trial that it is compared with; the figure is then the relative change in percent.
    pub against: Option<u64>,
    /// Name of the measurement: a field of a run in `table.json`, such as `rss_peak`, one of its metrics, or one of its `figures`.
    pub name: String,
    /// Name of a leak whose pair of runs is in `leaks.json`.
    pub leak: Option<String>,
    /// A JSON file below the results.
    pub file: Option<String>,
    /// JSON pointer into `file`.
    pub field: String,
    /// Reason why nothing here shows the figure.
    pub missing: Option<String>,
    /// Range that confirms the figure; the one of a leak is in its experiment.
    pub expect: Option<Expectation>,
    /// Change of `expect` after the measurement, with its reason.
    pub changed: Option<String>,
}

/// Range of a figure that confirms it: the whole interval must be inside. An interval that is outside refutes it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Smallest value; of a relative change in percent, otherwise in the unit of the figure.
    pub at_least: Option<f64>,
    /// Largest value.
    pub at_most: Option<f64>,
    /// Text, such as a verdict.
    pub is: Option<String>,
}

/// Kept results, each file read once.
#[derive(Debug)]
pub struct Results {
    directory: PathBuf,
    files: BTreeMap<PathBuf, Value>,
}

impl Results {
    /// Kept results below this directory of results.
    pub fn new(results: &Path) -> Self {
        Self { directory: results.to_path_buf(), files: BTreeMap::new() }
    }

    /// Reads a figure, as text with its answer.
    ///
    /// # Errors
    /// A file cannot be read or has no such figure, or the figure has no expectation.
    pub fn measure(&mut self, figure: &Figure) -> Result<(String, Answer), String> {
        let Figure { sweep, leak, file, missing, .. } = figure;
        let label = if figure.label.is_empty() { String::new() } else { format!("{}: ", figure.label) };
        let (text, answer) = match (sweep, leak, file, missing) {
            (Some(sweep), None, None, None) => self.of_sweep(sweep, figure)?,
            (None, Some(leak), None, None) => self.of_leak(leak)?,
            (None, None, Some(file), None) => {
                let value = self.file(file)?.pointer(&figure.field).cloned();
                let value = value.ok_or_else(|| format!("{file} has no {}", figure.field))?;
                let name = figure.field.rsplit('/').next().unwrap_or_default();
                figure.expected()?.of_values(name, &[value])?
            }
            (None, None, None, Some(reason)) => (reason.clone(), Answer::NotShown),
            _ => return Err("a figure has one of `sweep`, `leak`, `file` and `missing`".into()),
        };
        let changed = figure.changed.as_ref().map_or_else(String::new, |reason| format!(" (changed: {reason})"));
        Ok((format!("{label}{text}{changed}"), answer))
    }

    fn file(&mut self, name: &str) -> Result<&Value, String> {
        let path = self.directory.join(name);
        if !self.files.contains_key(&path) {
            let text = read(&path).map_err(|error| error.to_string())?;
            let value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            self.files.insert(path.clone(), value);
        }
        self.files.get(&path).ok_or_else(|| unreachable!("inserted above"))
    }

    /// Kept files of up to [`RUNS`] measurements: `name(1)` must be there, `name(2)` need not.
    fn runs(&mut self, name: impl Fn(&str) -> String) -> Result<Vec<Value>, String> {
        let mut runs = vec![self.file(&name(""))?.clone()];
        for run in 2..=RUNS {
            let name = name(&format!(".{run}"));
            if self.directory.join(&name).exists() {
                runs.push(self.file(&name)?.clone());
            }
        }
        Ok(runs)
    }

    fn of_sweep(&mut self, sweep: &str, figure: &Figure) -> Result<(String, Answer), String> {
        let mut runs = self.runs(|run| format!("{REFERENCE}/{sweep}{run}/{TABLE_JSON}"))?;
        if is_time(&figure.name) {
            // Only the first table was measured on a machine without other work.
            runs.truncate(1);
        }
        let mut tables = runs.iter().map(trials).collect::<Result<Vec<_>, _>>()?;
        let values = |table: &Trials, trial: u64| -> Vec<Value> {
            table.get(&trial).into_iter().flatten().filter_map(|run| value(run, &figure.name)).collect()
        };
        let compared: Vec<u64> = [Some(figure.trial), figure.against].into_iter().flatten().collect();
        tables.retain(|table| compared.iter().all(|trial| !values(table, *trial).is_empty()));
        if tables.is_empty() {
            return Err(format!("{sweep} has no `{}` of trials {compared:?}", figure.name));
        }
        let expected = figure.expected()?;
        let (text, answer) = match figure.against {
            None => {
                let all: Vec<Value> = tables.iter().flat_map(|table| values(table, figure.trial)).collect();
                expected.of_values(&figure.name, &all)?
            }
            Some(reference) => {
                let repeats = |runs: &Vec<Measured>| -> Repeats {
                    let number = |run: &Measured| Some((run.repeat, value(run, &figure.name)?.as_f64()?));
                    runs.iter().filter_map(number).collect()
                };
                let mut changes = Vec::new();
                for table in &tables {
                    let noise = Noise::paired(&table.values().map(repeats).collect::<Vec<_>>());
                    let change = Change::paired(&repeats(&table[&figure.trial]), &repeats(&table[&reference]), noise);
                    changes.push(change.ok_or_else(|| format!("{sweep}: a change needs positive values"))?);
                }
                expected.of_changes(&changes)
            }
        };
        Ok((format!("{text}{}", measurements(tables.len())), answer))
    }

    /// A leak is found if the leaking run names its owner and the control run is bounded, in all measurements.
    fn of_leak(&mut self, name: &str) -> Result<(String, Answer), String> {
        let mut found = Vec::new();
        let mut shown = None;
        for leaks in self.runs(|run| format!("{REFERENCE}/leaks{run}.json"))? {
            let is_this = |leak: &&Value| leak["name"] == name && leak["left_out"].is_null();
            let leak = leaks.as_array().into_iter().flatten().find(is_this);
            let leak = leak.ok_or_else(|| format!("leaks.json has no leak `{name}`"))?;
            let text = |key: &str| leak[key].as_str().unwrap_or("no buffer").replace('_', " ");
            let size = |key: &str| bytes(leak[key].as_f64().unwrap_or_default());
            let unit = if leak["ends"] == true { "in all" } else { "a step" };
            let owner = leak["owner_named"].as_str().unwrap_or("no buffer");
            let (leaky, bounded, expected) = (text("leaky"), text("bounded"), size("slope_expected"));
            let measured = size("slope_measured");
            shown.get_or_insert(format!(
                "leak on: {leaky}, {measured} {unit} in `{owner}` ({expected} expected); leak off: {bounded}"
            ));
            let is_right = leak["wrong"].as_array().is_some_and(Vec::is_empty);
            found.push(is_right && leak["owner_named"] == leak["owner_expected"]);
        }
        let answer = match (found.contains(&true), found.contains(&false)) {
            (true, false) => Answer::Confirmed,
            (true, true) => Answer::Depends,
            _ => Answer::Refuted,
        };
        Ok((format!("{}{}", shown.unwrap_or_default(), measurements(found.len())), answer))
    }
}

impl Figure {
    fn expected(&self) -> Result<&Expectation, String> {
        let is_empty = |expected: &&Expectation| **expected != Expectation::default();
        self.expect.as_ref().filter(is_empty).ok_or_else(|| format!("figure `{}` needs `expect`", self.label))
    }
}

impl Expectation {
    /// Values of all runs, with the answer of their range.
    fn of_values(&self, name: &str, values: &[Value]) -> Result<(String, Answer), String> {
        if let Some(word) = &self.is {
            let words: Vec<String> =
                values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), String::from)).collect();
            let right = words.iter().filter(|found| *found == word).count();
            let answer = match right {
                0 => Answer::Refuted,
                count if count == words.len() => Answer::Confirmed,
                _ => Answer::Depends,
            };
            let mut distinct = words;
            distinct.sort();
            distinct.dedup();
            return Ok((format!("{}, expected {word}", distinct.join(", ")), answer));
        }
        let spread = Spread::of(numbers(values).into_iter()).ok_or_else(|| format!("`{name}` is no number"))?;
        let Spread { median, low, high, .. } = spread;
        let [median_text, low_text, high_text] = [median, low, high].map(|value| shown(name, value));
        let range = if low_text == high_text { String::new() } else { format!(" ({low_text} to {high_text})") };
        Ok((
            format!("{median_text}{range}, expected {}", self.words(|value| shown(name, value))),
            self.answer(low, high),
        ))
    }

    /// Median change of the runs, with the answer of all their intervals together.
    fn of_changes(&self, changes: &[Change]) -> (String, Answer) {
        let end = |end: fn(&Change) -> f64| {
            Spread::of(changes.iter().map(end)).map_or([0.0; 3], |all| [all.low, all.median, all.high])
        };
        let [low, ..] = end(|change| change.low.unwrap_or(change.change));
        let [_, median, _] = end(|change| change.change);
        let [.., high] = end(|change| change.high.unwrap_or(change.change));
        let within_noise = Some(low <= 0.0 && 0.0 <= high);
        let words = Change { change: median, low: Some(low), high: Some(high), within_noise }.words();
        let expected = self.words(|value| format!("{value} %"));
        let answer = match changes {
            // Without repeats, one measurement says nothing about the noise.
            [Change { low: None, .. }] => Answer::Depends,
            _ => self.answer(100.0 * low, 100.0 * high),
        };
        (format!("{words}, expected {expected}"), answer)
    }

    fn words(&self, shown: impl Fn(f64) -> String) -> String {
        match (self.at_least, self.at_most) {
            (Some(least), Some(most)) => format!("{} to {}", shown(least), shown(most)),
            (Some(least), None) => format!("at least {}", shown(least)),
            (None, Some(most)) => format!("at most {}", shown(most)),
            (None, None) => String::new(),
        }
    }

    fn answer(&self, low: f64, high: f64) -> Answer {
        let (least, most) = (self.at_least.unwrap_or(f64::NEG_INFINITY), self.at_most.unwrap_or(f64::INFINITY));
        if least <= low && high <= most {
            Answer::Confirmed
        } else if high < least || most < low {
            Answer::Refuted
        } else {
            Answer::Depends
        }
    }
}

/// Number of measurements, where it is not that of `results/take-claims`.
fn measurements(count: usize) -> String {
    if count == RUNS { String::new() } else { format!(", {count} of {RUNS} runs") }
}

/// Runs by trial.
type Trials = BTreeMap<u64, Vec<Measured>>;

fn trials(table: &Value) -> Result<Trials, String> {
    let rows = table["rows"].as_array().into_iter().flatten();
    rows.map(|row| {
        let runs = Vec::<Measured>::deserialize(&row["runs"]).map_err(|error| error.to_string())?;
        Ok((row["trial"].as_u64().unwrap_or_default(), runs))
    })
    .collect()
}

/// A measurement of a run, by the name of its field, of a metric, or in `figures`.
fn value(run: &Measured, name: &str) -> Option<Value> {
    let number = run.figures.get(name).copied().or_else(|| run.metrics.get(name).copied().flatten());
    let field = || serde_json::to_value(run).ok()?.get(name).filter(|value| !value.is_null()).cloned();
    number.map(Value::from).or_else(field)
}

fn numbers(values: &[Value]) -> Vec<f64> {
    values.iter().filter_map(Value::as_f64).collect()
}

fn is_time(name: &str) -> bool {
    ["steps_per_second", "seconds", "cleanup_seconds"].contains(&name)
        || name.starts_with("phase.")
        || is_in_milliseconds(name)
}

/// Returns whether a metric of a command has the unit in its name, first or last: `ms_gc`, `gc_ms`.
fn is_in_milliseconds(name: &str) -> bool {
    name.starts_with("ms_") || name.ends_with("_ms")
}

fn shown(name: &str, value: f64) -> String {
    let ends = ["_peak", "_floor", "validation_left", "_bytes"];
    let begins = ["planned.", "actual.", "part.", "owner.", "step."];
    match name {
        "growth" => format!("{} a step", signed_bytes(value)),
        "steps_per_second" => format!("{} steps/s", number(value)),
        "seconds" | "cleanup_seconds" => duration(value),
        name if name.starts_with("phase.") => format!("{} ms", number(1e3 * value)),
        name if is_in_milliseconds(name) => format!("{} ms", number(value)),
        name if ends.iter().any(|end| name.ends_with(end)) || begins.iter().any(|begin| name.starts_with(begin)) => {
            signed_bytes(value)
        }
        _ => number(value),
    }
}
