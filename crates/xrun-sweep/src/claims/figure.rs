//! Figures of claims from kept results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ClaimsError, Figure, read};
use crate::records::sweep::Measured;
use xrun_core::files::layout;
use xrun_results::noise::{Change, Noise, Spread};
use xrun_results::report::formatting::{bytes, duration, number, signed_bytes};
use xrun_results::verdict::VerdictWord;

/// File of `xrun leaks --json` below the kept results.
pub const LEAKS: &str = "leaks.json";

/// A kept `table.json`, as far as it is needed.
#[derive(Debug, Deserialize)]
struct KeptTable {
    rows: Vec<KeptRow>,
}

#[derive(Debug, Deserialize)]
struct KeptRow {
    trial: u64,
    runs: Vec<Measured>,
}

/// A pair of `leaks.json`, as far as it is needed.
#[derive(Debug, Deserialize)]
struct KeptLeak {
    name: String,
    leaky: VerdictWord,
    bounded: VerdictWord,
    slope_expected: f64,
    slope_measured: Option<f64>,
    ends: bool,
    owner_named: Option<String>,
    wrong: Vec<String>,
    left_out: Option<String>,
}

/// Kept results, each read once: one table for each sweep that the claims name.
#[derive(Debug)]
pub struct Results {
    directory: PathBuf,
    tables: BTreeMap<String, KeptTable>,
    leaks: Option<Vec<KeptLeak>>,
}

/// A measured figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Figure with its noise, for people.
    pub text: String,
    /// Interval that an expectation is compared with: a 95 % confidence interval of a change in percent, or the range of the
    /// repeats; `None` for text.
    pub interval: Option<(f64, f64)>,
    /// Whether a leak was shown: found in the leaking run, and absent from the control run.
    pub is_shown: Option<bool>,
}

/// Error of a figure.
#[derive(Debug)]
pub enum FigureError {
    /// A file of the results.
    File(ClaimsError),
    /// The results have no such figure.
    Missing(String),
}

impl Results {
    /// Kept results below this directory of results.
    pub fn new(results: &Path) -> Self {
        Self { directory: results.join(layout::REFERENCE), tables: BTreeMap::new(), leaks: None }
    }

    /// Reads a figure.
    ///
    /// # Errors
    /// A file cannot be read, or has no such trial, leak or measurement.
    pub fn measure(&mut self, figure: &Figure) -> Result<Measurement, FigureError> {
        match (&figure.sweep, &figure.leak, &figure.text) {
            (Some(sweep), None, None) => self.of_sweep(sweep, figure),
            (None, Some(leak), None) => self.of_leak(leak),
            (None, None, Some(text)) => Ok(Measurement { text: text.clone(), interval: None, is_shown: None }),
            _ => Err(FigureError::Missing("a figure has one of `sweep`, `leak` and `text`".into())),
        }
    }

    fn of_sweep(&mut self, sweep: &str, figure: &Figure) -> Result<Measurement, FigureError> {
        if !self.tables.contains_key(sweep) {
            let table = parse(&self.directory.join(sweep).join(layout::TABLE_JSON)).map_err(FigureError::File)?;
            self.tables.insert(sweep.to_owned(), table);
        }
        let Some(table) = self.tables.get(sweep) else { unreachable!("inserted above") };
        let values = |trial: u64| {
            let values = table.values(trial, &figure.name);
            let what = || format!("{sweep} has no `{}` of trial {trial}", figure.name);
            if values.is_empty() { Err(FigureError::Missing(what())) } else { Ok(values) }
        };
        let here = values(figure.trial)?;
        match figure.against {
            None => Ok(absolute(&figure.name, &here)),
            Some(reference) => {
                let all = table.rows.iter().map(|row| table.values(row.trial, &figure.name)).collect::<Vec<_>>();
                relative(&here, &values(reference)?, &all)
                    .ok_or_else(|| FigureError::Missing(format!("{sweep}: a change needs positive values")))
            }
        }
    }

    fn of_leak(&mut self, name: &str) -> Result<Measurement, FigureError> {
        if self.leaks.is_none() {
            self.leaks = Some(parse(&self.directory.join(LEAKS)).map_err(FigureError::File)?);
        }
        let leak = self.leaks.iter().flatten().find(|leak| leak.name == name && leak.left_out.is_none());
        let leak = leak.ok_or_else(|| FigureError::Missing(format!("{LEAKS} has no leak `{name}`")))?;
        let size = bytes(leak.slope_measured.unwrap_or_default());
        let unit = if leak.ends { "in all" } else { "a step" };
        let owner = leak.owner_named.as_deref().unwrap_or("no buffer");
        Ok(Measurement {
            text: format!(
                "leak on: {}, {size} {unit} in `{owner}` ({} expected); leak off: {}",
                leak.leaky.words(),
                bytes(leak.slope_expected),
                leak.bounded.words(),
            ),
            interval: leak.slope_measured.map(|slope| (slope, slope)),
            is_shown: Some(leak.wrong.is_empty()),
        })
    }
}

fn parse<T: DeserializeOwned>(path: &Path) -> Result<T, ClaimsError> {
    serde_json::from_str(&read(path)?)
        .map_err(|error| ClaimsError::Content { path: path.to_path_buf(), message: error.to_string() })
}

impl KeptTable {
    /// Values of the runs of a trial that finished.
    fn values(&self, trial: u64, name: &str) -> Vec<f64> {
        let runs = self.rows.iter().filter(|row| row.trial == trial).flat_map(|row| &row.runs);
        runs.filter_map(|run| value(run, name)).collect()
    }
}

/// A measurement of a run, by the name of its field, of a metric, or in `figures`.
fn value(run: &Measured, name: &str) -> Option<f64> {
    if let Some(value) = run.figures.get(name) {
        return Some(*value);
    }
    if let Some(value) = run.metrics.get(name) {
        return *value;
    }
    serde_json::to_value(run).ok()?.get(name).and_then(Value::as_f64)
}

fn absolute(name: &str, values: &[f64]) -> Measurement {
    let spread = Spread::of(values.iter().copied()).unwrap_or(Spread { median: 0.0, low: 0.0, high: 0.0, count: 0 });
    let shown = |value: f64| match name {
        "growth" => format!("{} a step", signed_bytes(value)),
        "steps_per_second" => format!("{} steps/s", number(value)),
        "seconds" | "cleanup_seconds" => duration(value),
        name if name.starts_with("phase.") => format!("{} ms", number(1e3 * value)),
        name if is_bytes(name) => signed_bytes(value),
        _ => number(value),
    };
    let range = match shown(spread.low) == shown(spread.high) {
        true => String::new(),
        false => format!(" ({} to {})", shown(spread.low), shown(spread.high)),
    };
    Measurement {
        text: format!("{}{range}", shown(spread.median)),
        interval: Some((spread.low, spread.high)),
        is_shown: None,
    }
}

fn is_bytes(name: &str) -> bool {
    let ends = ["_peak", "_floor", "validation_left"];
    let begins = ["planned.", "actual.", "part.", "owner.", "step."];
    ends.iter().any(|end| name.ends_with(end)) || begins.iter().any(|begin| name.starts_with(begin))
}

/// Change of a trial against another; the noise is that of all its trials. `None` where a value is not
/// positive.
fn relative(here: &[f64], there: &[f64], all: &[Vec<f64>]) -> Option<Measurement> {
    let change = Change::of(here, there, Noise::of(all))?;
    let interval = (100.0 * change.low.unwrap_or(change.change), 100.0 * change.high.unwrap_or(change.change));
    Some(Measurement { text: change.words(), interval: Some(interval), is_shown: None })
}
