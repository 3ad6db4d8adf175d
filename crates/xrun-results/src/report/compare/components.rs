//! Memory of runs side by side, by component: what they hold before the first step, the parts of a step, validation, each buffer.

use std::fmt::Write;
use std::path::PathBuf;

use crate::format::Summary;
use crate::read;
use crate::report::ReportError;
use crate::report::formatting::signed_bytes;
use crate::report::width;
use crate::run_name;
use xrun_core::printable;

/// Components of the plan that belong to the model.
const MODEL: [&str; 3] = ["weights", "gradients", "optimizer"];

/// Table of the peak of each component, a column for each run, with its change against the first run. Components that no run has
/// more than 0 bytes of are left out. Ends with a line break.
///
/// # Errors
/// The summary of a run cannot be read.
pub fn components(runs: &[PathBuf], width: usize) -> Result<String, ReportError> {
    let mut text = String::new();
    let mut columns: Vec<Vec<(String, i128)>> = Vec::with_capacity(runs.len());
    for (number, run) in (1..).zip(runs) {
        let summary = read::summary(run)?;
        let name = printable::line(&run_name::run(run, ""), 120);
        let state = if summary.is_some() { "" } else { " (has not ended)" };
        let _ = writeln!(text, "{number}  {name}{state}");
        columns.push(summary.as_ref().map(rows).unwrap_or_default());
    }
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in columns.iter().flatten() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let size = |column: &[(String, i128)], name: &str| column.iter().find(|(known, _)| known == name).map(|one| one.1);
    let cells = |name: &&str| {
        let first = columns.first().and_then(|column| size(column, name));
        let mut row = vec![(*name).to_owned()];
        for (at, column) in columns.iter().enumerate() {
            let bytes = size(column, name);
            row.push(bytes.map_or("-".into(), |bytes| signed_bytes(bytes as f64)));
            if at > 0 {
                row.push(change(bytes, first));
            }
        }
        row
    };
    let is_used = |name: &&str| columns.iter().any(|column| size(column, name).is_some_and(|bytes| bytes != 0));
    let rows: Vec<Vec<String>> = names.iter().copied().filter(is_used).map(|name| cells(&name)).collect();
    let mut header = vec!["component".to_owned()];
    for number in 1..=columns.len() {
        header.push(format!(">{number}"));
        header.extend((number > 1).then(|| ">change".to_owned()));
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let _ = write!(text, "\n{}", width::table(&header, &rows, Some(width)));
    Ok(text)
}

/// Peak of each component of a run in bytes, with the kinds of its steps.
fn rows(summary: &Summary) -> Vec<(String, i128)> {
    let demand = &summary.demand;
    let mut rows: Vec<(String, i128)> = Vec::new();
    let mut add = |name: &str, bytes: i128| rows.push((name.to_owned(), bytes));
    add("before the first step", demand.heap_at_start.into());
    for part in summary.plan_and_actual.iter().filter(|part| MODEL.contains(&part.name.as_str())) {
        add(&part.name, part.actual.into());
    }
    for (kind, bytes) in &demand.step_kinds {
        add(&format!("{kind} step"), (*bytes).into());
    }
    add("validation", demand.validation.into());
    if let Some(left) = demand.validation_left {
        add("left by a validation", left.into());
    }
    add("checkpoint", demand.checkpoint.into());
    for owner in &summary.owners {
        add(&owner.name, owner.peak_bytes.into());
    }
    add("heap, peak", summary.memory.heap_peak.into());
    add("RSS, peak", summary.memory.rss_peak.unwrap_or_default().into());
    add("device, peak", summary.memory.device_reserved_peak.unwrap_or_default().into());
    rows
}

fn change(bytes: Option<i128>, first: Option<i128>) -> String {
    match bytes.zip(first) {
        Some((now, before)) if now == before => "=".into(),
        Some((now, before)) if before > 0 => format!("{:+.0} %", 100.0 * (now as f64 / before as f64 - 1.0)),
        _ => "-".into(),
    }
}
