//! The plan and the table of a sweep for a terminal.

use std::fmt;

use super::conclusion::{conclusion, next_commands};
use super::plan::PlannedTrial;
use super::table::COMPARED;
use super::trials::masked;
use crate::records::sweep::{Row, Table};
use xrun_core::experiment::read_sweep::shown;
use xrun_core::printable;
use xrun_results::noise::{Change, Spread};
use xrun_results::report::formatting::{bytes, bytes_as, duration, number};
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
    header.extend([">steps", ">buffers at most"].map(str::to_owned));
    let rows = trials.iter().enumerate().map(|(at, trial)| {
        let mut row = vec![(at + 1).to_string()];
        row.extend(keys.iter().zip(&trial.values).map(|(key, one)| value(&masked(key, one))));
        row.extend([trial.steps.to_string(), bytes(trial.buffer_bytes as f64)]);
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let runs = trials.len() as u64 * repeats;
    let steps: u64 = trials.iter().map(|trial| trial.steps).sum::<u64>().saturating_mul(repeats);
    let each = if repeats == 1 { "once".to_owned() } else { format!("{repeats} times") };
    let table = fit_table(&header, &rows, width);
    format!("{table}\n{} trials, each {each}: {runs} runs, {steps} steps\n", trials.len())
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

/// Columns of a table, by where it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableView {
    /// Medians: peaks of memory, and the minimum of the heap in the second half.
    Terminal,
    /// Results, speed, memory peaks and outcomes, with their ranges.
    Page,
    /// The minimum of the second half beside each peak, and the time of cleanups.
    Memory,
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
    fn of(text: impl Into<String>) -> Self {
        Self { text: text.into(), range: String::new() }
    }

    /// An unknown value.
    fn none() -> Self {
        Self::of("-")
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

/// A column: its title, and the cell of a row.
type Column<'a> = (String, Box<dyn Fn(&Row) -> Cell + 'a>);

/// The titles and the rows.
pub fn rows(table: &Table, view: TableView) -> Cells {
    let columns = columns_of(table, view);
    let row = |row| columns.iter().map(|(_, cell)| cell(row)).collect();
    (columns.iter().map(|(title, _)| title.clone()).collect(), table.shown_rows().into_iter().map(row).collect())
}

fn columns_of(table: &Table, view: TableView) -> Vec<Column<'_>> {
    let mut all: Vec<Column<'_>> = vec![(">trial".into(), Box::new(|row: &Row| Cell::of(row.trial.to_string())))];
    for (at, key) in short(&table.keys).into_iter().enumerate() {
        let title = format!(">{}", printable::line(key, CELL_CHARACTERS_MAX));
        all.push((title, Box::new(move |row: &Row| Cell::of(row.values.get(at).map_or_else(String::new, value)))));
    }
    if !table.rungs.is_empty() && view != TableView::Memory {
        let number = |number: Option<u64>| number.map_or_else(Cell::none, |number| Cell::of(number.to_string()));
        all.push((">steps".into(), Box::new(move |row: &Row| number(row.steps))));
        all.push((">rung".into(), Box::new(move |row: &Row| number(row.rung))));
    }
    let judged = || -> Vec<Column<'_>> {
        let memory = |row: &Row| row.verdict.map_or_else(Cell::none, |verdict| Cell::of(verdict.words()));
        let training = |row: &Row| row.training.map_or_else(Cell::none, |verdict| Cell::of(verdict.words()));
        let memory: Column<'_> = ("verdict".into(), Box::new(memory));
        // Runs that measure memory are too short for one.
        let conclusive = |row: &Row| row.training.is_some_and(|verdict| verdict != TrainingVerdictWord::Inconclusive);
        let training: Option<Column<'_>> =
            table.rows.iter().any(conclusive).then(|| ("training".into(), Box::new(training) as _));
        std::iter::once(memory).chain(training).collect()
    };
    let ended = || -> Column<'_> { ("outcome".into(), Box::new(|row: &Row| Cell::of(outcome(row)))) };
    let size = move |title: &str, of: fn(&Row) -> Option<Spread>| -> Column<'_> {
        let cell = move |row: &Row| match of(row) {
            None => Cell::none(),
            Some(spread) if view == TableView::Terminal => Cell::of(bytes(spread.median)),
            Some(spread) => sizes(spread),
        };
        (title.to_owned(), Box::new(cell))
    };
    let device = has_device(table);
    if view == TableView::Memory {
        all.push(size(">heap peak", |row| row.heap_peak));
        all.push(size(">heap floor", |row| row.heap_floor));
        all.push(size(">RSS peak", |row| row.rss_peak));
        all.push(size(">RSS floor", |row| row.rss_floor));
        if device {
            all.push(size(">device in use, peak", |row| row.device_in_use_peak));
            all.push(size(">device in use, floor", |row| row.device_in_use_floor));
            all.push(size(">device reserved, peak", |row| row.device_reserved_peak));
            all.push(size(">device reserved, floor", |row| row.device_reserved_floor));
        }
        all.push((">cleanup".into(), Box::new(cleanup)));
        return all;
    }
    if view == TableView::Page {
        all.push(ended());
    }
    if let Some(metric) = &table.metric {
        let arrow = table.direction.map_or_else(String::new, |direction| format!(" {}", direction.arrow()));
        let title = format!(">{}{arrow}", printable::line(metric, CELL_CHARACTERS_MAX));
        let cell = move |row: &Row| {
            let cell = row.metric.map_or_else(Cell::none, plain);
            if table.is_best(row) { Cell { text: format!("best {}", cell.text), ..cell } } else { cell }
        };
        all.push((title, Box::new(cell)));
    }
    if let Some(kind) = &table.loss_kind {
        let several = table.rows.iter().flat_map(|row| &row.runs).any(|run| run.losses.len() > 1);
        let kind = if several { format!(", {}", printable::line(kind, CELL_CHARACTERS_MAX)) } else { String::new() };
        let cell = |row: &Row| row.loss.map_or_else(Cell::none, |spread| Cell::of(number(spread.median)));
        all.push((format!(">loss{kind} ↓"), Box::new(cell)));
    }
    // A search is for the metric; the record has all measurements.
    if table.is_search() {
        all.push(size(">RSS peak", |row| row.rss_peak));
        if device {
            all.push(size(">device reserved", |row| row.device_reserved_peak));
        }
        all.extend(judged());
        if view == TableView::Terminal {
            all.push(ended());
        }
        return all;
    }
    // Cleanups are part of the cost; `show` has the speed of the steps alone.
    all.push((
        ">steps/s with cleanup".into(),
        Box::new(|row: &Row| row.steps_per_second.map_or_else(Cell::none, plain)),
    ));
    if view == TableView::Terminal {
        all.push((">cleanup".into(), Box::new(cleanup)));
    }
    all.push(size(">heap peak", |row| row.heap_peak));
    if view == TableView::Terminal {
        all.push(size(">heap floor", |row| row.heap_floor));
    }
    all.push(size(">RSS peak", |row| row.rss_peak));
    if device {
        if view == TableView::Terminal {
            all.push(size(">device in use", |row| row.device_in_use_peak));
        }
        all.push(size(">device reserved", |row| row.device_reserved_peak));
    }
    let growth = |row: &Row| row.growth.map_or_else(Cell::none, |spread| Cell::of(signed(spread.median)));
    all.push((">growth per step".into(), Box::new(growth)));
    all.extend(judged());
    all.push(("Pareto front".into(), Box::new(|row: &Row| Cell::of(row.pareto.join(" ")))));
    if view == TableView::Terminal {
        all.push(ended());
    }
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

fn cleanup(row: &Row) -> Cell {
    row.cleanup_seconds.map_or_else(Cell::none, |spread| Cell::of(duration(spread.median)))
}

/// Removes the columns that are equal in all rows, and returns each of them as text: `steps/s 5.1`. The first `kept` columns
/// stay, and so does a table of one row.
pub fn constant_columns((titles, rows): Cells, kept: usize) -> (Cells, Vec<String>) {
    let constant = |at: usize| at >= kept && rows.len() > 1 && rows.iter().all(|row| row[at] == rows[0][at]);
    let (once, columns): (Vec<usize>, Vec<usize>) = (0..titles.len()).partition(|&at| constant(at));
    // A value that no row has is left out.
    let known = once.into_iter().filter(|&at| !rows[0][at].text.is_empty() && rows[0][at] != Cell::none());
    let said = known.map(|at| format!("{} {}", titles[at].trim_start_matches('>'), rows[0][at])).collect();
    let left = |row: &Vec<Cell>| columns.iter().map(|&at| row[at].clone()).collect();
    ((columns.iter().map(|&at| titles[at].clone()).collect(), rows.iter().map(left).collect()), said)
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

/// Returns whether a trial used a device.
pub fn has_device(table: &Table) -> bool {
    table.rows.iter().any(|row| row.device_reserved_peak.is_some())
}

fn plain(spread: Spread) -> Cell {
    Cell::between(number(spread.median), &number(spread.low), &number(spread.high))
}

/// A size and its range, in one unit.
fn sizes(spread: Spread) -> Cell {
    let as_written = |size: f64| bytes_as(size, spread.median);
    Cell::between(bytes(spread.median), &as_written(spread.low), &as_written(spread.high))
}

fn signed(size: f64) -> String {
    if size < 0.0 { format!("-{}", bytes(-size)) } else { bytes(size) }
}

/// Changes against the reference, of the trials that finished.
pub fn changes(table: &Table) -> Cells {
    let shown: Vec<&str> =
        COMPARED.into_iter().filter(|name| table.rows.iter().any(|row| row.change.contains_key(name))).collect();
    let mut titles = vec![">trial".to_owned()];
    titles.extend(short(&table.keys).into_iter().map(|key| format!(">{}", printable::line(key, CELL_CHARACTERS_MAX))));
    titles.extend(shown.iter().map(|name| compared(table, name)));
    let rows = table.rows.iter().filter(|row| !row.change.is_empty()).map(|row| {
        let mut cells = vec![Cell::of(row.trial.to_string())];
        cells.extend(row.values.iter().map(|one| Cell::of(value(one))));
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
    Some(format!("trial {} ({})", row.trial, settings(table, row)))
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
    text.push_str(&as_table(rows(table, TableView::Terminal)));
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
