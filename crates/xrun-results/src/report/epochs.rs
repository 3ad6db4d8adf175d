//! Memory by epoch: the file `memory_epochs.csv`, and a table for the terminal.
//!
//! One row per epoch and process (segment). Sizes are bytes; values that were not measured are empty, never 0.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::formatting::{bytes, number, percent};
use super::width;
use crate::format::{MemoryLine, MetricsLine};
use crate::view::RunView;
use xrun_core::bounded::ledger::OWNERS_MAX;
use xrun_core::files::write::WriteError;
use xrun_core::files::{layout, write};

/// Maximum number of rows (some 60 MB).
const ROWS_MAX: usize = 100_000;

/// Key of the limit of the process's memory.
const HOST_MEMORY: &str = "limits.host_memory";

/// Maximum number of epochs in the table for the terminal.
const TABLE_ROWS_MAX: usize = 24;

/// Memory of one epoch in one process.
#[derive(Clone, Debug, Default)]
struct EpochRow {
    segment: u32,
    epoch: u64,
    /// Step of the first sample.
    step: u64,
    samples: u64,
    heap: Extent,
    rss: Extent,
    in_use: Extent,
    reserved: Extent,
    /// Total memory of the device, or the memory limit of the container.
    total: Option<u64>,
    /// Peak of each owner, in the order of [`EpochRows::owners`].
    owners: Vec<Option<u64>>,
}

/// First, last, lowest and highest value of a quantity.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    start: Option<u64>,
    end: Option<u64>,
    min: Option<u64>,
    peak: Option<u64>,
}

impl Extent {
    fn add(&mut self, bytes: Option<u64>) {
        let Some(bytes) = bytes else { return };
        self.start.get_or_insert(bytes);
        self.end = Some(bytes);
        self.min = Some(self.min.map_or(bytes, |min| min.min(bytes)));
        self.peak = self.peak.max(Some(bytes));
    }
}

/// Columns before those of the owners.
const COLUMNS: [&str; 20] = [
    "segment",
    "epoch",
    "samples",
    "heap_start",
    "heap_end",
    "heap_floor",
    "heap_peak",
    "resident_start",
    "resident_end",
    "rss_peak",
    "device_in_use_floor",
    "device_in_use_peak",
    "device_reserved_end",
    "device_reserved_peak",
    "heap_since_start",
    "resident_since_start",
    "device_in_use_since_start",
    "device_reserved_since_start",
    "loss_mean",
    "fraction_of_limit",
];

/// Losses of each epoch by kind of step, at most [`ROWS_MAX`].
#[derive(Clone, Debug, Default)]
pub struct EpochLosses {
    /// Sum and number of steps by epoch and kind.
    sums: BTreeMap<(u64, String), (f64, u64)>,
}

impl EpochLosses {
    pub(super) fn add(&mut self, line: &MetricsLine) {
        let MetricsLine::Train { epoch, batch, loss, .. } = line else { return };
        let key = (*epoch, batch.clone());
        if loss.is_finite() && (self.sums.len() < ROWS_MAX || self.sums.contains_key(&key)) {
            let (sum, count) = self.sums.entry(key).or_default();
            (*sum, *count) = (*sum + loss, *count + 1);
        }
    }

    /// Mean loss of each epoch, of the most frequent kind of step.
    fn means(&self) -> BTreeMap<u64, f64> {
        let mut steps: BTreeMap<&str, u64> = BTreeMap::new();
        for ((_, kind), (_, count)) in &self.sums {
            *steps.entry(kind).or_default() += count;
        }
        let Some((dominant, _)) = steps.into_iter().max_by_key(|(_, steps)| *steps) else { return BTreeMap::new() };
        let means = self.sums.iter().filter(|((_, kind), _)| kind == dominant);
        means.map(|((epoch, _), (sum, count))| (*epoch, sum / *count as f64)).collect()
    }
}

/// Memory of all epochs and processes: at most [`ROWS_MAX`] rows of 400 bytes and 16 for each owner.
#[derive(Clone, Debug, Default)]
pub struct EpochRows {
    rows: Vec<EpochRow>,
    /// First and newest sample of the newest process.
    process: Option<(EpochRow, EpochRow)>,
    /// Names of the owners, at most `OWNERS_MAX`.
    owners: Vec<String>,
    /// [`ROWS_MAX`] was reached: further epochs are left out.
    is_full: bool,
}

impl EpochRows {
    pub(super) fn add(&mut self, line: &MemoryLine) {
        for name in line.owners.keys() {
            if self.owners.len() < OWNERS_MAX && !self.owners.contains(name) {
                self.owners.push(name.clone());
            }
        }
        let sample = EpochRow::from_sample(line, &self.owners);
        match &mut self.process {
            Some((start, end)) if start.segment == line.segment => *end = sample.clone(),
            process => *process = Some((sample.clone(), sample.clone())),
        }
        let rows = self.rows.len();
        match self.rows.last_mut().filter(|row| (row.segment, row.epoch) == (line.segment, line.epoch)) {
            Some(row) if !self.is_full => row.add(line, &self.owners),
            Some(_) => {}
            None if rows < ROWS_MAX => self.rows.push(sample),
            None => self.is_full = true,
        }
    }
}

/// Writes `memory_epochs.csv`; a run without samples gets the header alone.
///
/// # Errors
/// The file cannot be written.
pub fn write(run: &RunView) -> Result<(), WriteError> {
    let epochs = &run.trace().epochs;
    let mut owners: Vec<(usize, &String)> = epochs.owners.iter().enumerate().collect();
    owners.sort_by_key(|(_, name)| *name);
    let (losses, limit) = (run.curves().epoch_losses.means(), run.limit(HOST_MEMORY));
    write::replace_with(&run.path.join(layout::MEMORY_EPOCHS), |file| {
        let titles = owners.iter().map(|(_, name)| format!("owner_{name}_peak"));
        file.write_all(csv_line(COLUMNS.iter().map(ToString::to_string).chain(titles)).as_bytes())?;
        let mut start: Option<&EpochRow> = None;
        for row in &epochs.rows {
            let start = match start {
                Some(start) if start.segment == row.segment => start,
                _ => start.insert(row),
            };
            let loss = losses.get(&row.epoch).copied();
            file.write_all(csv_row(row, start.first_levels(), &owners, loss, limit).as_bytes())?;
        }
        Ok(())
    })
}

/// Table of memory at the start, by epoch and at the end, with the change since the start, as in docs/origins.md: the
/// minimum of memory in use, and the last value of RSS and reserved memory. Below it the total and the largest
/// growth. Only the first and last epochs of many are listed, and only the newest process of a resumed run. Empty for a run
/// without epochs, such as a watched command; in a terminal narrower than the table, `width`, it is split.
pub fn table(run: &RunView, width: Option<usize>) -> String {
    let epochs = &run.trace().epochs;
    let Some((start, end)) = &epochs.process else { return String::new() };
    // Samples before the first epoch belong to the start.
    let mut rows: Vec<&EpochRow> =
        epochs.rows.iter().filter(|row| row.segment == start.segment && row.epoch > 0).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut largest = LargestGrowth { before: start.levels(), ..LargestGrowth::default() };
    rows.iter().for_each(|row| largest.add(row));
    let left_out = rows.len().saturating_sub(TABLE_ROWS_MAX);
    if left_out > 0 {
        rows.drain(TABLE_ROWS_MAX / 2..TABLE_ROWS_MAX / 2 + left_out);
    }
    let names = ["heap", "RSS", "device in use", "device reserved"];
    let shown: Vec<usize> = (0..names.len()).filter(|at| start.levels()[*at].is_some()).collect();
    // The values of `levels`, named in the header.
    let suffixes = [" (min)", " (end)", " (min)", " (end)"];
    let titles: Vec<String> = shown.iter().map(|at| format!(">{}{}", names[*at], suffixes[*at])).collect();
    let header = std::iter::once("epoch").chain(titles.iter().flat_map(|title| [title.as_str(), ">since start"]));
    let (losses, limit) = (run.curves().epoch_losses.means(), run.limit(HOST_MEMORY));
    let has_limit = rows.iter().any(|row| row.fraction_of_limit(limit).is_some());
    let header: Vec<&str> =
        header.chain(has_limit.then_some(">of limit")).chain((!losses.is_empty()).then_some(">mean loss")).collect();
    let cells = |name: String, row: &EpochRow, loss: Option<f64>| {
        let level_and_change = |at: &usize| {
            let (now, before) = (row.levels()[*at], start.levels()[*at]);
            [now.map_or("-".into(), |now| bytes(now as f64)), signed_change(now, before)]
        };
        let of_limit = || row.fraction_of_limit(limit).map_or("-".into(), percent);
        std::iter::once(name)
            .chain(shown.iter().flat_map(level_and_change))
            .chain(has_limit.then(of_limit))
            .chain((!losses.is_empty()).then(|| loss.map_or("-".into(), number)))
            .collect::<Vec<String>>()
    };
    let by_epoch = rows.iter().map(|row| cells(row.epoch.to_string(), row, losses.get(&row.epoch).copied()));
    let all: Vec<Vec<String>> = std::iter::once(cells("start".into(), start, None))
        .chain(by_epoch)
        .chain(std::iter::once(cells("end".into(), end, None)))
        .collect();
    let mut text = width::table(&header, &all, width);
    if start.segment > 0 {
        let _ = writeln!(
            text,
            "(process {} only, resumed after step {}; {} has all processes)",
            start.segment + 1,
            start.step,
            layout::MEMORY_EPOCHS
        );
    }
    if left_out > 0 {
        let _ = writeln!(text, "({left_out} epochs in the middle are not shown)");
    }
    let total = |at: &usize| format!("{} {}", names[*at], signed_change(end.levels()[*at], start.levels()[*at]));
    let totals: Vec<String> = shown.iter().map(total).collect();
    let _ = writeln!(text, "total growth: {}", totals.join(", "));
    let grew = |at: &usize| {
        let (most, epoch) = largest.growth[*at]?;
        Some(format!("{} +{} in epoch {epoch}", names[*at], bytes(most as f64)))
    };
    let largest: Vec<String> = shown.iter().filter_map(grew).collect();
    if !largest.is_empty() {
        let _ = writeln!(text, "largest growth: {}", largest.join(", "));
    }
    text
}

/// Largest growth from one epoch to the next, including epochs that are not listed.
#[derive(Default)]
struct LargestGrowth {
    before: [Option<u64>; 4],
    /// Bytes and number of the epoch.
    growth: [Option<(u64, u64)>; 4],
}

impl LargestGrowth {
    fn add(&mut self, row: &EpochRow) {
        let levels = row.levels();
        for (at, level) in levels.into_iter().enumerate() {
            let grown = level.zip(self.before[at]).map_or(0, |(now, before)| now.saturating_sub(before));
            if grown > self.growth[at].map_or(0, |(most, _)| most) {
                self.growth[at] = Some((grown, row.epoch));
            }
        }
        self.before = levels;
    }
}

pub(super) fn signed_change(now: Option<u64>, before: Option<u64>) -> String {
    match now.zip(before) {
        Some((now, before)) if now >= before => format!("+{}", bytes((now - before) as f64)),
        Some((now, before)) => format!("-{}", bytes((before - now) as f64)),
        None => "-".into(),
    }
}

impl EpochRow {
    /// Row of a single sample.
    fn from_sample(line: &MemoryLine, owners: &[String]) -> Self {
        let mut row = Self { segment: line.segment, epoch: line.epoch, step: line.step, ..Self::default() };
        row.add(line, owners);
        row
    }

    /// Levels of the first sample.
    fn first_levels(&self) -> [Option<u64>; 4] {
        [self.heap.start, self.rss.start, self.in_use.start, self.reserved.start]
    }

    /// Level of heap, RSS, device memory in use and reserved: minimum of memory in use, last value of the others.
    fn levels(&self) -> [Option<u64>; 4] {
        [self.heap.min, self.rss.end, self.in_use.min, self.reserved.end]
    }

    /// Fraction of the device's memory that its pool reserves at the end of the epoch; without a pool, RSS as a fraction of the
    /// limit of the experiment or the container.
    fn fraction_of_limit(&self, host_limit: Option<u64>) -> Option<f64> {
        let (level, limit) = match self.reserved.end {
            Some(reserved) => (reserved, self.total?),
            None => (self.rss.end?, host_limit.into_iter().chain(self.total).min()?),
        };
        (limit > 0).then(|| level as f64 / limit as f64)
    }

    fn add(&mut self, line: &MemoryLine, owners: &[String]) {
        self.samples += 1;
        let total = match line.device {
            Some(_) => line.driver.and_then(|driver| driver.total),
            None => line.container.and_then(|container| container.limit),
        };
        self.total = total.or(self.total);
        self.heap.add(Some(line.host.heap));
        self.rss.add(line.host.rss);
        self.in_use.add(line.device.map(|pool| pool.in_use));
        self.reserved.add(line.device.map(|pool| pool.reserved));
        self.owners.resize(owners.len(), None);
        for (name, peak) in owners.iter().zip(&mut self.owners) {
            *peak = (*peak).max(line.owners.get(name).copied());
        }
    }
}

/// Formats a row as a line of the file, with the owners in this order of columns.
fn csv_row(
    row: &EpochRow,
    start: [Option<u64>; 4],
    owners: &[(usize, &String)],
    loss: Option<f64>,
    limit: Option<u64>,
) -> String {
    let mut text = format!("{},{},{}", row.segment, row.epoch, row.samples);
    let (heap, rss, in_use, reserved) = (row.heap, row.rss, row.in_use, row.reserved);
    let host = [heap.start, heap.end, heap.min, heap.peak, rss.start, rss.end, rss.peak];
    let device = [in_use.min, in_use.peak, reserved.end, reserved.peak];
    let since_start = row.levels().into_iter().zip(start);
    let changes = since_start.map(|(now, before)| Some(i128::from(now?) - i128::from(before?)));
    let owners: Vec<Option<u64>> = owners.iter().map(|(at, _)| row.owners.get(*at).copied().flatten()).collect();
    let sizes = |sizes: &[Option<u64>]| sizes.iter().map(|size| size.map(i128::from)).collect::<Vec<_>>();
    push_sizes(&mut text, sizes(&host).into_iter().chain(sizes(&device)).chain(changes));
    let optional = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let _ = write!(text, ",{},{}", optional(loss), optional(row.fraction_of_limit(limit)));
    push_sizes(&mut text, sizes(&owners).into_iter());
    text.push('\n');
    text
}

/// Adds a cell for each size, empty if it is unknown.
fn push_sizes(text: &mut String, sizes: impl Iterator<Item = Option<i128>>) {
    for size in sizes {
        text.push(',');
        if let Some(size) = size {
            let _ = write!(text, "{size}");
        }
    }
}

/// Formats a line of CSV (RFC 4180) without formulas.
pub fn csv_line(cells: impl IntoIterator<Item = String>) -> String {
    let mut line = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail, and text stays valid UTF-8.
    let _ = line.write_record(cells.into_iter().map(|cell| without_formula(cell).into_bytes()));
    String::from_utf8(line.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// Marks a text that a spreadsheet would execute as a text, by an apostrophe. Numbers stay.
pub fn without_formula(cell: String) -> String {
    match cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err() {
        true => format!("'{cell}"),
        false => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::{PLAIN, finished, write_lines};

    #[test]
    fn no_cell_is_a_formula() {
        let cells = ["=HYPERLINK(\"x\")", "-1.5", "-rf", "a=b", "@x", "+1e3"].map(str::to_owned);
        assert_eq!(csv_line(cells), "\"'=HYPERLINK(\"\"x\"\")\",-1.5,'-rf,a=b,'@x,+1e3\n");
    }

    #[test]
    fn the_largest_growth_includes_epochs_that_are_not_shown() {
        let results = tempfile::tempdir().unwrap();
        let run = finished(results.path(), PLAIN);
        let first = crate::read::memory(&run).unwrap().next().unwrap().unwrap();
        // 10 MiB per epoch for 60 epochs, except 12 MiB in epoch 30.
        let line = |epoch: u64| {
            let mut line = MemoryLine { epoch, step: epoch, ..first.clone() };
            line.host.heap = ((epoch * 10 + if epoch >= 30 { 2 } else { 0 }) << 20) + (100 << 20);
            line
        };
        write_lines(&run.join(layout::MEMORY), &(0..=60).map(line).collect::<Vec<_>>());
        let table = table(&RunView::open(&run), None);
        assert!(!table.lines().any(|line| line.starts_with("30 ")), "that row is not shown: {table}");
        insta::assert_snapshot!(table);
    }
}
