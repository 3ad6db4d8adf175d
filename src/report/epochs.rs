//! memory.jsonl -> memory_epochs.csv: how much memory did each epoch hold?
//!
//! A row for each epoch of each process (segment). Sizes are bytes; what was not measured is empty, never 0. The file
//! is read twice, the first time for the names of the owners, and written as it is read: nothing is kept but one row.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::path::Path;

use super::axes::bytes;
use super::listing::columns;
use super::{ReportError, each_sample};
use crate::memory::ledger::OWNERS_MAX;
use crate::results::format::MemoryLine;
use crate::results::{layout, write};

/// More rows than this (some 60 MB) are not written; an epoch is not a step.
const ROWS_MAX: usize = 100_000;

/// More epochs than this are not shown to a person.
const TABLE_ROWS_MAX: usize = 24;

/// One epoch of one process.
#[derive(Clone, Debug, Default)]
struct Row {
    segment: u32,
    epoch: u64,
    samples: u64,
    heap: Span,
    resident: Span,
    in_use: Span,
    reserved_peak: Option<u64>,
    owners: BTreeMap<String, u64>,
}

/// The first, last, lowest and highest of what was measured.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: Option<u64>,
    end: Option<u64>,
    floor: Option<u64>,
    peak: Option<u64>,
}

impl Span {
    fn add(&mut self, bytes: Option<u64>) {
        let Some(bytes) = bytes else { return };
        self.start.get_or_insert(bytes);
        self.end = Some(bytes);
        self.floor = Some(self.floor.map_or(bytes, |floor| floor.min(bytes)));
        self.peak = self.peak.max(Some(bytes));
    }
}

/// Writes `memory_epochs.csv`; a run without a trace gets the header alone.
pub fn write(run: &Path) -> Result<(), ReportError> {
    let path = run.join(layout::MEMORY_EPOCHS);
    let mut failed = None;
    let written = write::replace_with(&path, |file| {
        csv(run, file).map_err(|error| match error {
            ReportError::Write(error) => error.source,
            other => {
                failed = Some(other);
                io::ErrorKind::Other.into()
            }
        })
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(written?),
    }
}

/// Writes the rows to a file.
fn csv(run: &Path, file: &mut dyn io::Write) -> Result<(), ReportError> {
    let mut out = |text: &str| Ok(write::at(&run.join(layout::MEMORY_EPOCHS), file.write_all(text.as_bytes()))?);
    let mut names = BTreeSet::new();
    each_sample(run, |line| {
        for name in line.owners.keys() {
            if names.len() < OWNERS_MAX && !names.contains(name) {
                names.insert(name.clone());
            }
        }
        Ok(())
    })?;
    let mut text = String::from(
        "segment,epoch,samples,heap_start,heap_end,heap_floor,heap_peak,resident_start,resident_end,resident_peak,\
         device_in_use_floor,device_in_use_peak,device_reserved_peak",
    );
    for name in &names {
        let _ = write!(text, ",{}", field(&format!("owner_{name}_peak")));
    }
    text.push('\n');
    out(&text)?;
    let mut row: Option<Row> = None;
    let mut rows = 0;
    each_sample(run, |line| {
        if row.as_ref().is_none_or(|row| (row.segment, row.epoch) != (line.segment, line.epoch)) {
            out(&finish(row.take(), &names, &mut rows))?;
            row = Some(Row { segment: line.segment, epoch: line.epoch, ..Row::default() });
        }
        if let Some(row) = &mut row {
            row.add(&line);
        }
        Ok(())
    })?;
    out(&finish(row, &names, &mut rows))
}

/// Memory by epoch with the change since the start, as seed 001 prints it: the floor of what is in use, and what is
/// resident. Of many epochs the first and the last few; of a resumed run the newest process.
pub fn table(run: &Path) -> Result<String, ReportError> {
    let mut rows: Vec<Row> = Vec::new();
    let mut left_out = 0;
    each_sample(run, |line| {
        match rows.last() {
            Some(row) if row.segment != line.segment => (rows, left_out) = (Vec::new(), 0),
            _ => {}
        }
        if rows.last().is_none_or(|row| row.epoch != line.epoch) {
            if rows.len() == TABLE_ROWS_MAX {
                rows.remove(TABLE_ROWS_MAX / 2);
                left_out += 1;
            }
            rows.push(Row { segment: line.segment, epoch: line.epoch, ..Row::default() });
        }
        if let Some(row) = rows.last_mut() {
            row.add(&line);
        }
        Ok(())
    })?;
    let Some(start) = rows.first() else { return Ok(String::new()) };
    let has_device = rows.iter().any(|row| row.in_use.floor.is_some());
    let change = |now: Option<u64>, before: Option<u64>| match now.zip(before) {
        Some((now, before)) if now >= before => format!("+{}", bytes((now - before) as f64)),
        Some((now, before)) => format!("-{}", bytes((before - now) as f64)),
        None => "-".into(),
    };
    let size = |size: Option<u64>| size.map_or("-".into(), |size| bytes(size as f64));
    let mut header = vec!["epoch", ">heap", ">since start", ">resident", ">since start"];
    if has_device {
        header.extend([">device in use", ">since start"]);
    }
    let of_row = |row: &Row| {
        let epoch = if row.epoch == 0 { "start".to_owned() } else { row.epoch.to_string() };
        let mut cells = vec![
            epoch,
            size(row.heap.floor),
            change(row.heap.floor, start.heap.floor),
            size(row.resident.end),
            change(row.resident.end, start.resident.end),
        ];
        if has_device {
            cells.extend([size(row.in_use.floor), change(row.in_use.floor, start.in_use.floor)]);
        }
        cells
    };
    let cells: Vec<Vec<String>> = rows.iter().map(of_row).collect();
    let mut text = columns(&header, &cells);
    if left_out > 0 {
        let _ = writeln!(text, "({left_out} epochs in the middle are left out)");
    }
    let grown = |pair: &[Row]| Some((pair[1].heap.floor?.saturating_sub(pair[0].heap.floor?), pair[1].epoch));
    if let Some((most, epoch)) =
        rows.windows(2).filter_map(grown).max_by_key(|(most, _)| *most).filter(|(most, _)| *most > 0)
    {
        let _ = writeln!(text, "largest growth of the heap's floor: {} in epoch {epoch}", bytes(most as f64));
    }
    Ok(text)
}

impl Row {
    fn add(&mut self, line: &MemoryLine) {
        self.samples += 1;
        self.heap.add(Some(line.host.heap));
        self.resident.add(line.host.resident);
        self.in_use.add(line.device.map(|pool| pool.in_use));
        self.reserved_peak = self.reserved_peak.max(line.device.map(|pool| pool.reserved));
        for (name, &bytes) in &line.owners {
            if let Some(peak) = self.owners.get_mut(name) {
                *peak = bytes.max(*peak);
            } else if self.owners.len() < OWNERS_MAX {
                self.owners.insert(name.clone(), bytes);
            }
        }
    }
}

/// A line of the file; nothing beyond the cap.
fn finish(row: Option<Row>, names: &BTreeSet<String>, rows: &mut usize) -> String {
    let mut text = String::new();
    let Some(row) = row.filter(|_| *rows < ROWS_MAX) else { return text };
    *rows += 1;
    let _ = write!(text, "{},{},{}", row.segment, row.epoch, row.samples);
    let (heap, resident, in_use) = (row.heap, row.resident, row.in_use);
    let host = [heap.start, heap.end, heap.floor, heap.peak, resident.start, resident.end, resident.peak];
    let device = [in_use.floor, in_use.peak, row.reserved_peak];
    let owners = names.iter().map(|name| row.owners.get(name).copied());
    for bytes in host.into_iter().chain(device).chain(owners) {
        text.push(',');
        if let Some(bytes) = bytes {
            let _ = write!(text, "{bytes}");
        }
    }
    text.push('\n');
    text
}

/// A field of a table (RFC 4180). A beginning that a spreadsheet takes for a formula is for the caller to avoid.
pub fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
