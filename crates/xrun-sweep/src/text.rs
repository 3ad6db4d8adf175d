//! The plan and the table of a sweep for a terminal.

use std::fmt;

use super::conclusion::{conclusion, next_commands};
use super::plan::PlannedTrial;
use super::table::COMPARED;
use super::trials::masked;
use crate::records::sweep::{Measurements, Row, Table};
use xrun_core::experiment::read_sweep::shown;
use xrun_core::printable;
use xrun_results::noise::{Change, Spread};
use xrun_results::report::formatting::{bytes, duration, number, signed_bytes};
use xrun_results::report::width::{fold, table as fit_table};
use xrun_results::resolved::{format_rounded, short_keys};
use xrun_results::verdict::TrainingVerdictWord;

/// Largest number of rows that are printed; the files have all.
const ROWS_MAX: usize = 60;
/// Longest value, in characters; the rest is cut.
const CELL_CHARACTERS_MAX: usize = 40;

/// The table of all trials that `--dry-run` prints.
pub fn plan(keys: &[&str], trials: &[PlannedTrial], repeats: u64, width: Option<usize>) -> String {
    let mut header: Vec<String> = vec![">trial".into()];
    header.extend(keys.iter().map(|key| format!(">{key}")));
    // A command has no buffers of xrun.
    let has_buffers = trials.iter().any(|trial| trial.buffer_bytes > 0);
    let has_steps = trials.iter().any(|trial| trial.steps > 0);
    header.extend(has_steps.then(|| ">steps".to_owned()));
    header.extend(has_buffers.then(|| ">buffers at most".to_owned()));
    let rows = trials.iter().enumerate().map(|(at, trial)| {
        let mut row = vec![(at + 1).to_string()];
        row.extend(keys.iter().zip(&trial.values).map(|(key, one)| value(&masked(key, one))));
        row.extend(has_steps.then(|| trial.steps.to_string()));
        row.extend(has_buffers.then(|| bytes(trial.buffer_bytes as f64)));
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let runs = trials.len() as u64 * repeats;
    let steps: u64 = trials.iter().map(|trial| trial.steps).sum::<u64>().saturating_mul(repeats);
    let each = if repeats == 1 { "once".to_owned() } else { format!("{repeats} times") };
    let table = fit_table(&header, &rows, width);
    let steps = if has_steps { format!(", {steps} steps") } else { String::new() };
    format!("{table}\n{} trials, each {each}: {runs} runs{steps}\n", trials.len())
}

/// The shortest names of the keys that are different.
pub fn short(keys: &[String]) -> Vec<&str> {
    short_keys(&keys.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Title of a measurement of [`COMPARED`].
pub fn compared(table: &Table, name: &str) -> String {
    match name {
        "metric" => metric_name(table).unwrap_or_default(),
        "steps_per_second" => "speed".into(),
        "heap_peak" => "heap peak".into(),
        "rss_peak" => "RSS peak".into(),
        _ => "device reserved peak".into(),
    }
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its value.
    pub text: String,
    /// The range over repeats that differ; otherwise empty.
    pub range: String,
}

impl Cell {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), range: String::new() }
    }

    /// An unknown value.
    fn none() -> Self {
        Self::new("-")
    }

    /// A value with its range, unless both ends are the same text.
    fn between(text: String, low: &str, high: &str) -> Self {
        Self { range: if low == high { String::new() } else { format!("{low} to {high}") }, text }
    }
}

/// Writes `5.12`, or `5.12 (4.98 to 5.2)`.
impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.range.as_str() {
            "" => formatter.write_str(&self.text),
            range => write!(formatter, "{} ({range})", self.text),
        }
    }
}

/// Titles, which begin with `>` above numbers, and rows.
pub type Cells = (Vec<String>, Vec<Vec<Cell>>);

/// Returns the cell of a row.
type CellOf<'a> = Box<dyn Fn(&Row) -> Cell + 'a>;

/// A column: its title, and its cells.
type Column<'a> = (String, CellOf<'a>);

type Spreads = Measurements<Spread, Spread>;

/// The titles and the rows, without measurements of memory and cleanup that are unknown or the same in all trials.
pub fn rows(table: &Table) -> Cells {
    let mut columns = columns(table);
    let rows = table.shown_rows();
    columns.retain(|(title, cell)| {
        let texts: Vec<Cell> = rows.iter().map(|row| cell(row)).collect();
        let differs = texts.iter().any(|one| one != &texts[0]);
        let is_unknown = texts.iter().all(|one| *one == Cell::none() || one.text.is_empty());
        !HIDDEN_IF_EQUAL.contains(&title.trim_start_matches('>')) || differs || (texts.len() == 1 && !is_unknown)
    });
    let row = |row| columns.iter().map(|(_, cell)| cell(row)).collect();
    (columns.iter().map(|(title, _)| title.clone()).collect(), rows.into_iter().map(row).collect())
}

/// Columns that say something only where trials differ.
const HIDDEN_IF_EQUAL: [&str; 6] =
    ["cleanup", "heap floor", "device in use", "device reserved", "growth per step", "Pareto front"];

fn columns<'a>(table: &'a Table) -> Vec<Column<'a>> {
    // A search is for the metric; the record has all measurements.
    let timed = !table.is_search();
    let device = table.rows.iter().any(|row| row.measurements.device_reserved_peak.is_some());
    let mut all: Vec<Column<'a>> = vec![(">trial".into(), Box::new(|row: &Row| Cell::new(row.trial.to_string())))];
    for (at, key) in short(&table.keys).into_iter().enumerate() {
        let title = format!(">{}", printable::line(key, CELL_CHARACTERS_MAX));
        all.push((title, Box::new(move |row: &Row| Cell::new(row.values.get(at).map_or_else(String::new, value)))));
    }
    let mut add = |is_shown: bool, title: &str, cell: CellOf<'a>| {
        if is_shown {
            all.push((title.to_owned(), cell));
        }
    };
    let words = |words: fn(&Row) -> Option<String>| -> CellOf<'a> {
        Box::new(move |row| words(row).map_or_else(Cell::none, Cell::new))
    };
    let size = |size: fn(&Spreads) -> Option<Spread>| -> CellOf<'a> {
        Box::new(move |row| size(&row.measurements).map_or_else(Cell::none, |spread| Cell::new(bytes(spread.median))))
    };
    let rungs = !table.rungs.is_empty();
    add(rungs, ">steps", words(|row| Some(row.steps?.to_string())));
    add(rungs, ">rung", words(|row| Some(row.rung?.to_string())));
    if let Some(metric) = &table.metric {
        let arrow = table.direction.map_or_else(String::new, |direction| format!(" {}", direction.arrow()));
        let cell = move |row: &Row| {
            let cell = row.metric.map_or_else(Cell::none, plain);
            if table.is_best(row) { Cell { text: format!("best {}", cell.text), ..cell } } else { cell }
        };
        add(true, &format!(">{}{arrow}", printable::line(metric, CELL_CHARACTERS_MAX)), Box::new(cell));
    }
    if let Some(kind) = &table.loss_kind {
        let several = table.rows.iter().flat_map(|row| &row.runs).any(|run| run.losses.len() > 1);
        let kind = if several { format!(", {}", printable::line(kind, CELL_CHARACTERS_MAX)) } else { String::new() };
        add(true, &format!(">loss{kind} ↓"), words(|row| Some(number(row.loss?.median))));
    }
    // Cleanups are part of the cost; `show` has the speed of the steps alone.
    let speed = |row: &Row| row.measurements.steps_per_second.map_or_else(Cell::none, plain);
    let has_cleanups = table.rows.iter().any(|row| row.measurements.cleanup_seconds.is_some_and(|all| all.high > 0.0));
    add(timed, if has_cleanups { ">steps/s with cleanup" } else { ">steps/s" }, Box::new(speed));
    add(timed, ">cleanup", words(|row| Some(duration(row.measurements.cleanup_seconds?.median))));
    add(timed, ">heap peak", size(|row| row.heap_peak));
    add(timed, ">heap floor", size(|row| row.heap_floor));
    add(true, ">RSS peak", size(|row| row.rss_peak));
    add(device && timed, ">device in use", size(|row| row.device_in_use_peak));
    add(device, ">device reserved", size(|row| row.device_reserved_peak));
    add(timed, ">growth per step", words(|row| Some(signed_bytes(row.measurements.growth?.median))));
    add(true, "verdict", words(|row| Some(row.verdict?.words().to_owned())));
    // Runs that measure memory are too short for one.
    let conclusive = |row: &Row| row.training.is_some_and(|verdict| verdict != TrainingVerdictWord::Inconclusive);
    let trained = table.rows.iter().any(conclusive);
    add(trained, "training", words(|row| Some(row.training?.words().to_owned())));
    add(timed, "Pareto front", words(|row| Some(row.pareto.join(" "))));
    add(true, "outcome", words(|row| Some(outcome(row))));
    all
}

/// `finished`, or `finished, 1 interrupted` where a run was interrupted and resumed.
fn outcome(row: &Row) -> String {
    let mark = match (row.interrupted, row.runs.len() as u64) {
        (0, _) => String::new(),
        (all, runs) if all == runs => ", interrupted".to_owned(),
        (some, _) => format!(", {some} interrupted"),
    };
    printable::line(&row.outcome, 3 * CELL_CHARACTERS_MAX) + &mark
}

/// A swept value, without the quotes of TOML, and with at most four significant digits.
pub fn value(value: &serde_json::Value) -> String {
    let text = match value {
        serde_json::Value::String(text) => text.clone(),
        number if number.is_f64() => format_rounded(number),
        other => shown(other),
    };
    printable::line(&text, CELL_CHARACTERS_MAX)
}

/// `trial 3 (optimizer.adamw.learning_rate = 0.003)`.
pub fn trial(table: &Table, row: &Row) -> String {
    format!("trial {} ({})", row.trial, settings(table, row))
}

/// Values of a trial: `optimizer.adamw.learning_rate = 0.003, limits.prefetch = 2`.
pub fn settings(table: &Table, row: &Row) -> String {
    let pairs = table.keys.iter().zip(&row.values).map(|(key, one)| format!("{key} = {}", value(one)));
    printable::line(&pairs.collect::<Vec<_>>().join(", "), 200)
}

/// Name of the table's metric.
pub fn metric_name(table: &Table) -> Option<String> {
    table.metric.as_ref().map(|name| printable::line(name, CELL_CHARACTERS_MAX))
}

/// Value of the metric of a trial, with its range.
pub fn metric_value(row: &Row) -> Option<Cell> {
    row.metric.map(plain)
}

fn plain(spread: Spread) -> Cell {
    Cell::between(number(spread.median), &number(spread.low), &number(spread.high))
}

/// Changes against the reference, of the trials that finished.
pub fn changes(table: &Table) -> Cells {
    let shown: Vec<&str> =
        COMPARED.into_iter().filter(|name| table.rows.iter().any(|row| row.change.contains_key(name))).collect();
    let mut titles = vec![">trial".to_owned()];
    titles.extend(short(&table.keys).into_iter().map(|key| format!(">{}", printable::line(key, CELL_CHARACTERS_MAX))));
    titles.extend(shown.iter().map(|name| compared(table, name)));
    let rows = table.rows.iter().filter(|row| !row.change.is_empty()).map(|row| {
        let mut cells = vec![Cell::new(row.trial.to_string())];
        cells.extend(row.values.iter().map(|one| Cell::new(value(one))));
        cells.extend(shown.iter().map(|name| row.change.get(name).map_or_else(Cell::none, change)));
        cells
    });
    (titles, rows.collect())
}

fn change(change: &Change) -> Cell {
    let (text, range) = change.short_words();
    Cell { text, range: range.unwrap_or_default() }
}

/// `rungs: after 10, 40 and 160 steps`; `None` without rungs.
pub fn rungs(table: &Table) -> Option<String> {
    let (last, before) = table.rungs.split_last()?;
    let before: Vec<String> = before.iter().map(u64::to_string).collect();
    Some(format!("rungs: after {} and {last} steps", before.join(", ")))
}

/// The trial that the others are compared with: `trial 1 (cleanup.every_steps = 0)`.
pub fn reference(table: &Table) -> Option<String> {
    let row = table.rows.iter().find(|row| Some(row.trial) == table.reference)?;
    Some(trial(table, row))
}

/// Sentence on the noise of the comparison.
pub fn noise(table: &Table) -> String {
    match table.noise.get("steps_per_second") {
        Some(noise) => format!(
            "95 % confidence intervals of differences in pairs of one seed; besides, speeds differ by {:.1} % (standard \
             deviation)",
            100.0 * noise.deviation
        ),
        None => {
            "each trial was measured once, so the noise of the machine is not known; --repeats 3 measures it".into()
        }
    }
}

/// The whole table, for a terminal of `width` characters. Ends with a line break.
pub fn text(table: &Table, width: Option<usize>) -> String {
    let as_table = |(titles, rows): Cells| {
        let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect();
        let left = rows.len().saturating_sub(ROWS_MAX);
        let shown = fit_table(&titles, &rows[..rows.len() - left], width);
        if left > 0 { format!("{shown}… and {left} more trials in table.csv\n") } else { shown }
    };
    let mut text: String =
        conclusion(table).into_iter().map(|sentence| format!("{}\n", fold(&sentence, width, 2))).collect();
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(&as_table(rows(table)));
    if !table.is_search() && table.rows.iter().any(|row| !row.pareto.is_empty()) {
        let front = "Pareto front: the memory for which no other trial is both faster and smaller";
        text.push_str(&format!("{}\n", fold(front, width, 2)));
    }
    if table.rows.iter().any(|row| row.interrupted > 0) {
        let note = "interrupted: the memory of runs that were interrupted and resumed is in no row and no Pareto front";
        text.push_str(&format!("{}\n", fold(note, width, 2)));
    }
    text.extend(rungs(table).map(|rungs| format!("{}\n", fold(&rungs, width, 2))));
    for (purpose, command) in next_commands(table) {
        text.push_str(&format!("{purpose}: {command}\n"));
    }
    let changes = changes(table);
    if let (Some(reference), false) = (reference(table), changes.1.is_empty()) {
        let against = format!("against {reference}; {}", noise(table));
        text.push_str(&format!("\n{}\n", fold(&against, width, 2)));
        text.push_str(&as_table(changes));
    }
    printable::lines(&text)
}
