//! Files with the table of a sweep: `table.csv`, `table.json` and `report.html`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::journal::Histories;
use super::measure::Queued;
use super::page;
use super::table::{cells, row, table};
use super::trials::RunId;
use crate::records::sweep::{SweepRecord, Table};
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_results::report::formatting::csv_line;

/// Writes `table.csv`, `table.json` and `report.html`, and returns the table.
///
/// # Errors
/// A file cannot be written.
pub fn write(
    sweep: &Path,
    record: &SweepRecord,
    histories: &mut Histories,
    queued: &BTreeMap<RunId, Queued>,
) -> Result<Table, WriteError> {
    let table = table(sweep, record, histories, queued);
    write::replace(&sweep.join(layout::TABLE_CSV), csv(&table).as_bytes())?;
    write::replace_json(&sweep.join(layout::TABLE_JSON), &table)?;
    write::replace(&sweep.join(layout::REPORT), page::html(&table).as_bytes())?;
    Ok(table)
}

/// A row for each trial. Unknown cells are empty; sizes are bytes.
pub fn csv(table: &Table) -> String {
    // Without a trial, the titles are those of one that has nothing.
    let empty = row(0, vec![Value::from(""); table.keys.len()], Vec::new());
    let titles = cells(table, &empty).into_iter().map(|(title, _)| title);
    let rows = table.rows.iter().map(|row| csv_line(cells(table, row).into_iter().map(|(_, cell)| cell)));
    std::iter::once(csv_line(titles)).chain(rows).collect()
}
