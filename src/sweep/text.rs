//! The plan and the table of a sweep for a terminal.

use super::plan::PlannedPoint;
use super::points::words;
use super::table::COMPARED;
use crate::experiment::read_sweep::written;
use crate::report::axes::{bytes, bytes_as, duration, number};
use crate::report::listing::columns;
use crate::results::printable;
use crate::results::sweep::{Change, Row, Spread, Table};

/// More rows than this are not printed: the files have all.
const ROWS_MAX: usize = 60;
/// A longer value, or outcome, is cut.
const CELL_CHARACTERS_MAX: usize = 40;

/// What `--dry-run` prints: every point.
pub fn plan(keys: &[&str], points: &[PlannedPoint], repeats: u64) -> String {
    let mut header: Vec<String> = vec![">point".into()];
    header.extend(keys.iter().map(|key| format!(">{key}")));
    header.extend([">steps", ">buffers at most"].map(str::to_owned));
    let rows = points.iter().enumerate().map(|(at, point)| {
        let mut row = vec![(at + 1).to_string()];
        row.extend(point.values.iter().map(|value| printable::line(&written(value), CELL_CHARACTERS_MAX)));
        row.extend([point.steps.to_string(), bytes(point.buffer_bytes as f64)]);
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let runs = points.len() as u64 * repeats;
    let steps: u64 = points.iter().map(|point| point.steps).sum::<u64>().saturating_mul(repeats);
    let each = if repeats == 1 { "once".to_owned() } else { format!("{repeats} times") };
    format!("{}\n{} points, each {each}: {runs} runs, {steps} steps\n", columns(&header, &rows), points.len())
}

/// The names of the keys, as short as tells them apart.
pub fn short(keys: &[String]) -> Vec<&str> {
    let last = |key: &'_ str| key.rsplit('.').next().unwrap_or_default().to_owned();
    keys.iter()
        .map(|key| match keys.iter().filter(|other| last(other) == last(key)).count() {
            1 => key.rsplit('.').next().unwrap_or(key),
            _ => key.as_str(),
        })
        .collect()
}

/// A name of [`COMPARED`] for people.
pub fn compared(name: &str) -> &'static str {
    match name {
        "steps_per_second" => "speed",
        "heap_peak" => "heap peak",
        "resident_peak" => "resident peak",
        _ => "device reserved peak",
    }
}

/// Where the table is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Of memory the peaks, of the heap the floor; medians.
    Terminal,
    /// Every floor beside its peak, and of repeats the lowest and the highest.
    Page,
}

/// A row of the table as text, in the order of [`titles`]; `device` is [`has_device`].
pub fn cells(table: &Table, row: &Row, device: bool, room: Room) -> Vec<String> {
    let page = room == Room::Page;
    let size = |spread: Option<Spread>| match spread {
        None => "-".into(),
        Some(spread) if page => sizes(spread),
        Some(spread) => bytes(spread.median),
    };
    let mut cells = vec![row.point.to_string()];
    cells.extend(row.values.iter().map(|value| printable::line(&written(value), CELL_CHARACTERS_MAX)));
    cells.push(row.steps_per_second.map_or_else(|| "-".into(), speed));
    cells.push(row.cleanup_seconds.map_or_else(|| "-".into(), |spread| duration(spread.median)));
    cells.extend([row.heap_peak, row.heap_floor, row.resident_peak].map(size));
    cells.extend(page.then(|| size(row.resident_floor)));
    if device {
        cells.push(size(row.device_in_use_peak));
        cells.extend(page.then(|| size(row.device_in_use_floor)));
        cells.push(size(row.device_reserved_peak));
        cells.extend(page.then(|| size(row.device_reserved_floor)));
    }
    cells.push(row.growth.map_or_else(|| "-".into(), |spread| signed(spread.median)));
    cells.push(row.verdict.map_or_else(|| "-".into(), |verdict| verdict.words().to_owned()));
    if table.metric.is_some() {
        cells.push(row.metric.map_or_else(|| "-".into(), |spread| number(spread.median)));
    }
    cells.push(row.pareto.join(" "));
    cells.push(printable::line(&row.outcome, 3 * CELL_CHARACTERS_MAX));
    cells
}

/// The header; a title that begins with `>` is that of numbers.
pub fn titles(table: &Table, room: Room) -> Vec<String> {
    let mut titles = vec![">point".to_owned()];
    titles.extend(short(&table.keys).into_iter().map(|key| format!(">{}", printable::line(key, CELL_CHARACTERS_MAX))));
    titles.extend([">steps/s", ">cleanup", ">heap peak", ">heap floor", ">resident peak"].map(str::to_owned));
    let floors: &[&str] = if room == Room::Page { &["floor"] } else { &[] };
    titles.extend(floors.iter().map(|floor| format!(">resident {floor}")));
    if has_device(table) {
        for name in [">device in use", ">device reserved"] {
            titles.push(name.to_owned());
            titles.extend(floors.iter().map(|floor| format!("{name}, {floor}")));
        }
    }
    titles.extend([">growth a step", "verdict"].map(str::to_owned));
    titles.extend(table.metric.iter().map(|metric| format!(">{}", printable::line(metric, CELL_CHARACTERS_MAX))));
    titles.extend(["front", "outcome"].map(str::to_owned));
    titles
}

pub fn has_device(table: &Table) -> bool {
    table.rows.iter().any(|row| row.device_reserved_peak.is_some())
}

/// `5.12`, or `5.12 (4.98 to 5.2)` of several repeats.
fn speed(spread: Spread) -> String {
    match spread.count {
        1 => number(spread.median),
        _ => format!("{} ({} to {})", number(spread.median), number(spread.low), number(spread.high)),
    }
}

/// `34.1 MiB`, or `34.1 MiB (33.9 to 34.6)` of several repeats, all in one unit.
fn sizes(spread: Spread) -> String {
    let as_written = |size: f64| bytes_as(size, spread.median);
    match (as_written(spread.low), as_written(spread.high)) {
        (low, high) if low == high => bytes(spread.median),
        (low, high) => format!("{} ({low} to {high})", bytes(spread.median)),
    }
}

fn signed(size: f64) -> String {
    if size < 0.0 { format!("-{}", bytes(-size)) } else { bytes(size) }
}

/// What is compared with the reference, for the points that finished: titles and rows.
pub fn changes(table: &Table) -> (Vec<String>, Vec<Vec<String>>) {
    let shown: Vec<&str> =
        COMPARED.into_iter().filter(|name| table.rows.iter().any(|row| row.change.contains_key(name))).collect();
    let mut titles = vec![">point".to_owned()];
    titles.extend(short(&table.keys).into_iter().map(|key| format!(">{}", printable::line(key, CELL_CHARACTERS_MAX))));
    titles.extend(shown.iter().map(|name| compared(name).to_owned()));
    let rows = table.rows.iter().filter(|row| !row.change.is_empty()).map(|row| {
        let mut cells = vec![row.point.to_string()];
        cells.extend(row.values.iter().map(|value| printable::line(&written(value), CELL_CHARACTERS_MAX)));
        cells.extend(shown.iter().map(|name| row.change.get(name).map_or_else(|| "-".into(), Change::words)));
        cells
    });
    (titles, rows.collect())
}

/// The point that the others are compared with, in words.
pub fn reference(table: &Table) -> Option<String> {
    let row = table.rows.iter().find(|row| Some(row.point) == table.reference)?;
    let values = words(table.keys.iter().map(String::as_str), row.values.iter());
    Some(format!("point {} ({})", row.point, printable::line(&values, 200)))
}

/// How far the comparison can be trusted.
pub fn noise(table: &Table) -> String {
    match table.noise.get("steps_per_second") {
        Some(noise) => format!(
            "intervals of 95 %; speeds of one point differ by {:.1} % (standard deviation) from repeat to repeat",
            100.0 * noise.deviation
        ),
        None => {
            "each point was measured once, so the noise of the machine is not known; --repeats 3 measures it".into()
        }
    }
}

/// The whole table. Ends with a line break.
pub fn text(table: &Table) -> String {
    let as_table = |titles: &[String], rows: Vec<Vec<String>>| {
        let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
        let left = rows.len().saturating_sub(ROWS_MAX);
        let shown = columns(&titles, &rows[..rows.len() - left]);
        if left > 0 { format!("{shown}… and {left} more points in table.csv\n") } else { shown }
    };
    let device = has_device(table);
    let rows = table.rows.iter().map(|row| cells(table, row, device, Room::Terminal)).collect();
    let mut text = as_table(&titles(table, Room::Terminal), rows);
    let (titles, rows) = changes(table);
    if let (Some(reference), false) = (reference(table), rows.is_empty()) {
        text.push_str(&format!("\nagainst {reference}; {}\n", noise(table)));
        text.push_str(&as_table(&titles, rows));
    }
    printable::lines(&text)
}
