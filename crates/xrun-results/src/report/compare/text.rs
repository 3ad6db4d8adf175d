//! Comparison as text: one column per run or setting, wrapped to the width of the terminal.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::rows::{Cell, View, tables};
use super::{ComparedRun, RunComparison};
use crate::report::formatting::utc_time;
use crate::report::width;
use xrun_core::printable;

const DAMAGE_CHARACTERS_MAX: usize = 400;
/// Maximum width of a label that stands above its column; longer ones are replaced by numbers.
const HEAD_WIDTH_MAX: usize = 18;
/// Maximum number of rows of a section; the page has all.
const ROWS_MAX: usize = 40;

/// Legend of the runs, and what differs between them. No line is longer than `width`, unless a single column is. Ends
/// with a line break.
pub fn text(compared: &RunComparison, view: &View, width: usize) -> String {
    let tables = tables(compared, view);
    let mut text = legend(&compared.runs, width);
    let line = |text: &mut String, line: &str| {
        let _ = writeln!(text, "{}", width::fold(line, Some(width), 2));
    };
    tables.notes.iter().for_each(|note| line(&mut text, note));
    let all_short = tables.columns.iter().all(|column| column.label.width() <= HEAD_WIDTH_MAX);
    let head = |at: usize| if all_short { tables.columns[at].label.clone() } else { (at + 1).to_string() };
    // One table, so that the columns of all sections align; titles are rows of their own.
    let mut rows: Vec<Vec<String>> = Vec::new();
    for section in &tables.sections {
        let left_out = section.rows.len().saturating_sub(ROWS_MAX);
        let more = if left_out > 0 { format!(" ({left_out} more in --html)") } else { String::new() };
        let empty = vec![String::new(); tables.columns.len()];
        rows.push([vec![format!("{}{more}:", section.title)], empty].concat());
        rows.extend(
            section
                .rows
                .iter()
                .take(ROWS_MAX)
                .map(|row| std::iter::once(format!("  {}", row.label)).chain(row.cells.iter().map(value)).collect()),
        );
    }
    if !rows.is_empty() {
        let header: Vec<String> = std::iter::once(String::new())
            .chain((0..tables.columns.len()).map(|at| format!(">{}", head(at))))
            .collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let _ = write!(text, "\n{}", width::table(&header, &rows, Some(width)));
    }
    let cells = || tables.sections.iter().flat_map(|section| &section.rows).flat_map(|row| &row.cells);
    let best = cells().any(|cell| cell.best).then(|| "*: best".to_owned());
    let change = cells().any(|cell| !cell.change.is_empty()).then(|| format!("changes are against {}", head(0)));
    let explained: Vec<String> = best.into_iter().chain(change).collect();
    if !explained.is_empty() {
        text.push('\n');
        line(&mut text, &explained.join("; "));
    }
    if !tables.same.is_empty() {
        let same: Vec<String> = tables.same.iter().map(|(label, value)| format!("{label} {value}")).collect();
        text.push('\n');
        line(&mut text, &format!("the same in all: {}", same.join("; ")));
    }
    printable::lines(&text)
}

fn legend(runs: &[ComparedRun], width: usize) -> String {
    let row = |(at, run): (usize, &ComparedRun)| {
        let started = run.view.started().map_or("-".into(), |time| printable::line(&utc_time(time), 40));
        let (name, state) = (printable::line(&run.view.name(), 120), run.view.state().label().to_owned());
        vec![(at + 1).to_string(), name, state, started, run.label.clone()]
    };
    let rows: Vec<Vec<String>> = runs.iter().enumerate().map(row).collect();
    let header = ["", "run", "state", "started", "name"];
    let mut text = width::columns_within(&header, &rows, Some(width), &["started", "state"]);
    for (at, run) in runs.iter().enumerate() {
        for damage in run.view.damage() {
            let _ = writeln!(text, "{} damaged: {}", at + 1, printable::line(damage, DAMAGE_CHARACTERS_MAX));
        }
    }
    text
}

fn value(cell: &Cell) -> String {
    let mark = if cell.best { "*" } else { "" };
    let deviation = if cell.deviation.is_empty() { String::new() } else { format!(" ±{}", cell.deviation) };
    let change = if cell.change.is_empty() { String::new() } else { format!(" ({})", cell.change) };
    format!("{mark}{}{deviation}{change}", cell.text)
}
