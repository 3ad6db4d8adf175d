//! Comparison as text: one column per run or setting, wrapped to the width of the terminal.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::RunComparison;
use super::rows::{Cell, Row, Section, Tables, View, name, tables};
use crate::comparison::ComparedRun;
use crate::report::formatting::utc_time;
use crate::report::listing::columns;
use crate::report::width;
use xrun_core::printable;

const DAMAGE_CHARACTERS_MAX: usize = 400;
/// Width of the gap between columns, as [`columns`] sets them.
const GAP: usize = 2;
/// Maximum width of a label that stands above its column; longer ones are replaced by numbers.
const HEAD_WIDTH_MAX: usize = 18;
/// Minimum width to which texts are cut.
const CELL_WIDTH_MIN: usize = 10;
/// Maximum number of rows of a section; the record and the page have all.
const ROWS_MAX: usize = 20;
/// Widths from which the legend has the start times and the states.
const STARTED_WIDTH_MIN: usize = 110;
const STATE_WIDTH_MIN: usize = 80;

/// Legend of the runs, and what differs between them. No line is longer than `width`, unless a single column is. Ends
/// with a line break.
pub fn text(compared: &RunComparison, view: &View, width: usize) -> String {
    let mut tables = tables(compared, view);
    let label = label_width(&tables.sections);
    shorten(&mut tables, width.saturating_sub(label));
    let mut text = legend(&compared.record.runs, width);
    for note in &tables.notes {
        let _ = writeln!(text, "{}", width::fold(note, Some(width), 2));
    }
    let mut from = 0;
    while from < tables.columns.len() && !tables.sections.is_empty() {
        let count = fitting_columns(&tables, from, width.saturating_sub(label));
        write_columns(&mut text, &tables, from..from + count);
        from += count;
    }
    let cells = || tables.sections.iter().flat_map(|section| &section.rows).flat_map(|row| &row.cells);
    let best = cells().any(|cell| cell.best).then_some("*: best");
    let first = head(&tables, 0);
    let change = cells().any(|cell| !cell.change.is_empty()).then(|| format!("changes are against {first}"));
    let explained: Vec<String> = best.map(str::to_owned).into_iter().chain(change).collect();
    if !explained.is_empty() {
        let _ = writeln!(text, "\n{}", width::fold(&explained.join("; "), Some(width), 2));
    }
    if !tables.same.is_empty() {
        let same: Vec<String> = tables.same.iter().map(|(label, value)| format!("{label} {value}")).collect();
        let line = format!("the same in all: {}", same.join("; "));
        let _ = writeln!(text, "\n{}", width::fold(&line, Some(width), 2));
    }
    printable::lines(&text)
}

fn legend(runs: &[ComparedRun], width: usize) -> String {
    let mut header = vec!["", "run", "state", "started", "name"];
    let hidden = |column: &str| match column {
        "started" => width < STARTED_WIDTH_MIN,
        "state" => width < STATE_WIDTH_MIN,
        _ => false,
    };
    let kept: Vec<usize> = (0..header.len()).filter(|&at| !hidden(header[at])).collect();
    let row = |(at, run): (usize, &ComparedRun)| {
        let started = run.started.as_deref().map_or("-".into(), |time| printable::line(&utc_time(time), 40));
        let row =
            [(at + 1).to_string(), printable::line(&name(run), 120), run.state.clone(), started, run.label.clone()];
        kept.iter().map(|&at| row[at].clone()).collect()
    };
    let rows: Vec<Vec<String>> = runs.iter().enumerate().map(row).collect();
    header.retain(|column| !hidden(column));
    let mut text = width::table(&header, &rows, Some(width));
    for (at, run) in runs.iter().enumerate() {
        for damage in &run.damage {
            let _ = writeln!(text, "{} damaged: {}", at + 1, printable::line(damage, DAMAGE_CHARACTERS_MAX));
        }
    }
    text
}

/// Cuts texts that would keep the first two columns from standing side by side within `room` characters.
fn shorten(tables: &mut Tables, room: usize) {
    let changes =
        tables.sections.iter().flat_map(rows).flat_map(|row| row.cells.get(1)).map(|cell| cell.change.width());
    let change = changes.max().map_or(0, |width| width + GAP);
    let longest = (room.saturating_sub(change) / 2).saturating_sub(GAP).max(CELL_WIDTH_MIN);
    for row in tables.sections.iter_mut().flat_map(|section| &mut section.rows).filter(|row| row.is_text) {
        row.cells.iter_mut().for_each(|cell| cell.text = shortened(&cell.text, longest));
    }
}

/// End of a command line that was cut before, otherwise the beginning of a text.
fn shortened(text: &str, longest: usize) -> String {
    match text.strip_prefix('…') {
        Some(end) => {
            let cut = (end.chars().count() + 1).saturating_sub(longest);
            format!("…{}", end.chars().skip(cut).collect::<String>())
        }
        None => printable::line(text, longest),
    }
}

fn label_width(sections: &[Section]) -> usize {
    let labels = sections.iter().flat_map(|section| &section.rows).map(|row| row.label.width() + GAP);
    labels.max().unwrap_or(0)
}

/// Title of a column: its label, or its number where labels are long.
fn head(tables: &Tables, column: usize) -> String {
    let all_short = tables.columns.iter().all(|column| column.label.width() <= HEAD_WIDTH_MAX);
    if all_short { tables.columns[column].label.clone() } else { (column + 1).to_string() }
}

fn value(cell: &Cell) -> String {
    let mark = if cell.best { "*" } else { "" };
    let deviation = if cell.deviation.is_empty() { String::new() } else { format!(" ±{}", cell.deviation) };
    format!("{mark}{}{deviation}", cell.text)
}

fn rows(section: &Section) -> impl Iterator<Item = &Row> {
    section.rows.iter().take(ROWS_MAX)
}

/// Number of columns, starting with `from`, that fit into `room` characters; at least one.
fn fitting_columns(tables: &Tables, from: usize, room: usize) -> usize {
    let width_of = |column: usize| {
        let cells = || tables.sections.iter().flat_map(rows).map(|row| &row.cells[column]);
        let value = cells().map(|cell| value(cell).width()).max().unwrap_or(0).max(head(tables, column).width());
        let change = cells().map(|cell| cell.change.width()).max().unwrap_or(0);
        GAP + value + if change > 0 { GAP + change } else { 0 }
    };
    let mut used = 0;
    let fits = (from..tables.columns.len()).take_while(|&column| {
        used += width_of(column);
        used <= room
    });
    fits.count().max(1)
}

fn write_columns(text: &mut String, tables: &Tables, range: std::ops::Range<usize>) {
    // One table, so that the columns of all sections align; titles are lines of their own.
    let has_change =
        |column: usize| tables.sections.iter().flat_map(rows).any(|row| !row.cells[column].change.is_empty());
    let mut header = vec![String::new()];
    for column in range.clone() {
        header.push(format!(">{}", head(tables, column)));
        header.extend(has_change(column).then(|| ">".to_owned()));
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut cells = Vec::new();
    let mut titles = Vec::new();
    for section in &tables.sections {
        titles.push((cells.len(), section));
        for row in rows(section) {
            let mut line = vec![format!("  {}", row.label)];
            for column in range.clone() {
                let cell = &row.cells[column];
                line.push(value(cell));
                line.extend(has_change(column).then(|| cell.change.clone()));
            }
            cells.push(line);
        }
    }
    let table = columns(&header, &cells);
    let mut lines = table.lines();
    let _ = writeln!(text, "\n{}", lines.next().unwrap_or_default());
    for (at, line) in lines.enumerate() {
        if let Some((_, section)) = titles.iter().find(|(first, _)| *first == at) {
            let left_out = section.rows.len().saturating_sub(ROWS_MAX);
            let more = if left_out > 0 { format!(" ({left_out} more in --json)") } else { String::new() };
            let _ = writeln!(text, "{}{more}:", section.title);
        }
        let _ = writeln!(text, "{line}");
    }
}
