//! Text of `xrun top` for a terminal of a given width.

use unicode_width::UnicodeWidthChar;

use super::row::Row;
use super::runs::Snapshot;
use crate::printable;
use crate::report::listing::columns_within;
use crate::report::width::fold;

/// Columns that are dropped on a narrow terminal, in this order.
const OPTIONAL_COLUMNS: [&str; 4] = ["experiment", "loss", "left", "verdict"];
/// Length of the date at the start of a run's name.
const DATE_LENGTH: usize = "2026-11-21T".len();
/// Smallest width at which names of runs have the date.
const DATE_WIDTH_MIN: usize = 110;
const INDENT: &str = "  ";
const DIRECTORIES_CHARACTERS_MAX: usize = 200;
const NONE_RUNNING: &str = "no run is running (-n 10 shows the newest that ended)";

/// Text for a pipe or a script.
pub fn text(snapshot: &Snapshot, width: Option<usize>) -> String {
    lines(snapshot, width).join("\n")
}

/// Title and table, with the owners of each run below its row. No line is wider than `width`.
pub fn lines(snapshot: &Snapshot, width: Option<usize>) -> Vec<String> {
    let directories: Vec<String> =
        snapshot.directories.iter().map(|directory| directory.display().to_string()).collect();
    let shown_active = snapshot.rows.len().min(snapshot.active);
    let ended = snapshot.rows.len() - shown_active + snapshot.omitted;
    let title = format!(
        "{} running, {ended} ended in {}",
        snapshot.active,
        printable::line(&directories.join(", "), DIRECTORIES_CHARACTERS_MAX)
    );
    let mut lines = vec![title];
    if snapshot.rows.is_empty() {
        lines.push(if ended > 0 { NONE_RUNNING } else { "no runs" }.into());
        return truncate(lines, width);
    }
    let narrow = width.is_some_and(|width| width < DATE_WIDTH_MIN);
    let cells: Vec<Vec<String>> = snapshot.rows.iter().map(|row| cells(row, narrow)).collect();
    let header = ["run", "experiment", "state", ">step", ">loss", ">memory", "verdict", ">left"];
    let table = columns_within(&header, &cells, width, &OPTIONAL_COLUMNS);
    let mut table = table.lines();
    let head = table.next().unwrap_or_default();
    let dropped = |column: &str| head.split_whitespace().all(|word| word != column);
    lines.push(String::new());
    lines.push(head.to_owned());
    for (row, line) in snapshot.rows.iter().zip(table) {
        lines.push(line.to_owned());
        let missing = [
            dropped("experiment").then(|| row.experiment.clone()),
            (dropped("loss") && row.loss != "-").then(|| format!("loss {}", row.loss)),
            dropped("verdict").then(|| row.verdict.clone()),
            (dropped("left") && row.left != "-" && !row.left.is_empty()).then(|| format!("left {}", row.left)),
        ];
        let missing = missing.into_iter().flatten().chain([row.owners.join(", "), row.host_and_age.clone()]);
        let more = missing.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ");
        for part in [more, row.message.clone()].into_iter().filter(|part| !part.is_empty()) {
            lines.extend(fold(&format!("{INDENT}{part}"), width, INDENT.len()).lines().map(str::to_owned));
        }
    }
    if snapshot.active > shown_active {
        lines.push(format!("and {} more running", snapshot.active - shown_active));
    }
    if snapshot.omitted > 0 {
        let more = if ended > snapshot.omitted { " more" } else { "" };
        lines.push(format!("and {}{more} ended (-n shows more)", snapshot.omitted));
    }
    truncate(lines, width)
}

fn cells(row: &Row, narrow: bool) -> Vec<String> {
    let or_none = |text: &String| if text.is_empty() { "-".to_owned() } else { text.clone() };
    let run = match row.run.get(DATE_LENGTH..) {
        Some(rest) if narrow && row.run.as_bytes()[DATE_LENGTH - 1] == b'T' => rest.to_owned(),
        _ => row.run.clone(),
    };
    let experiment = printable::line(&row.experiment, 20);
    let columns = [&row.state, &row.progress, &row.loss, &row.memory, &row.verdict, &row.left];
    [run, experiment].into_iter().chain(columns.map(or_none)).collect()
}

/// Truncates lines to the width. Wrapped lines would hide runs at the bottom of the screen.
fn truncate(lines: Vec<String>, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else { return lines };
    lines.into_iter().map(|line| truncate_line(&line, width)).collect()
}

fn truncate_line(line: &str, width: usize) -> String {
    let wide = |character: char| character.width().unwrap_or(0);
    if line.chars().map(wide).sum::<usize>() <= width {
        return line.to_owned();
    }
    let mut shown = String::new();
    let mut used = 0;
    for character in line.chars() {
        if used + wide(character) + 1 > width {
            break;
        }
        used += wide(character);
        shown.push(character);
    }
    if width > 0 {
        shown.push('…');
    }
    shown
}
