//! Output of `vmstat`, with `-t` or without.
//!
//! vmstat has no column of used memory; it is what `free`, `buff` and `cache` leave, and rises as their sum falls.

use std::path::Path;

use super::text::{FileHead, Lines, quoted};
use super::times::TimeParser;
use super::{Sample, SeriesInfo, Trace, TraceError, Value};
use crate::axis::Axis;
use crate::findings::UnitSource;

const KIB: f64 = 1024.0;
/// Smallest memory of a machine that trains, in KiB (128 MiB): smaller numbers are MiB, of `-S M`.
const KIB_MIN: f64 = 131_072.0;
const UNUSED_COLUMNS: &[&str] = &["free", "buff", "cache"];

/// Returns whether a file begins like the output of `vmstat`.
pub fn recognizes(head: &FileHead) -> bool {
    head.lines().take(2).any(is_header)
}

fn is_header(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.starts_with(&["r", "b"]) && words.contains(&"swpd") && words.contains(&"free")
}

/// Line of numbers.
struct Row {
    line: u64,
    swapped: f64,
    /// Sum of `free`, `buff` and `cache`; `None` where the output lacks one of them.
    unused: Option<f64>,
    time: Option<i64>,
}

struct Rows {
    lines: Lines,
    header: Vec<String>,
    times: TimeParser,
}

impl Rows {
    fn open(path: &Path, head: &FileHead) -> Result<Self, TraceError> {
        Ok(Self { lines: Lines::open(path, head)?, header: Vec::new(), times: TimeParser::of("") })
    }

    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        loop {
            let Some(line) = self.lines.next_line()?.map(str::to_owned) else { return Ok(None) };
            if line.contains("--memory--") {
                continue;
            }
            if is_header(&line) {
                self.header = line.split_whitespace().map(str::to_owned).collect();
                continue;
            }
            let invalid = |lines: &Lines| lines.error(format!("expected a line of vmstat, found {}", quoted(&line)));
            let cells: Vec<&str> = line.split_whitespace().collect();
            let number = |column: &str| {
                let at = self.header.iter().position(|name| name == column)?;
                cells.get(at)?.parse::<u64>().ok().map(|number| number as f64)
            };
            let has = |column: &str| self.header.iter().any(|name| name == column);
            let swapped = number("swpd").ok_or_else(|| invalid(&self.lines))?;
            let unused = match UNUSED_COLUMNS.iter().all(|column| has(column)) {
                false => None,
                true => {
                    let sum = UNUSED_COLUMNS.iter().map(|column| number(column)).sum::<Option<f64>>();
                    Some(sum.ok_or_else(|| invalid(&self.lines))?)
                }
            };
            // In the header the time zone is one word; date and time of day are two.
            let time = match &cells[..] {
                [.., date, time] if cells.len() == self.header.len() + 1 => {
                    Some(self.times.read(&format!("{date} {time}")).map_err(|_| invalid(&self.lines))?)
                }
                _ => None,
            };
            return Ok(Some(Row { line: self.lines.number, swapped, unused, time }));
        }
    }
}

/// Reader of the output of vmstat.
pub struct Vmstat {
    rows: Rows,
    /// True if lines have times.
    has_times: bool,
    count: i64,
    /// Highest unused memory in the unit of the numbers; `None` where the output lacks its columns.
    unused_max: Option<f64>,
    unit: Option<f64>,
}

impl Vmstat {
    pub fn open(path: &Path, head: &FileHead, unit: Option<f64>) -> Result<Self, TraceError> {
        let (mut has_times, mut unused_max) = (false, None);
        let mut rows = Rows::open(path, head)?;
        while let Some(row) = rows.next_row()? {
            has_times |= row.time.is_some();
            unused_max = row.unused.map(|unused| unused.max(unused_max.unwrap_or_default())).or(unused_max);
        }
        if unit.is_none() && unused_max.is_some_and(|max| max < KIB_MIN) {
            let message =
                "the numbers are too small for KiB, the default unit of vmstat; use `--unit MiB` for `vmstat -S M`";
            return Err(TraceError::content(message));
        }
        Ok(Self { rows: Rows::open(path, head)?, has_times, count: 0, unused_max, unit })
    }
}

impl Trace for Vmstat {
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, TraceError> {
        let Some(row) = self.rows.next_row()? else { return Ok(false) };
        let position = match (self.has_times, row.time) {
            (false, _) => self.count,
            (true, Some(time)) => time,
            (true, None) => return Err(TraceError::at(row.line, "the time is missing; other lines have one")),
        };
        self.count += 1;
        (sample.line, sample.position, sample.restart) = (row.line, position, false);
        sample.values.clear();
        sample.values.push(Value { series: 0, number: row.swapped, unit: None, percent: false });
        let used = self.unused_max.zip(row.unused).map(|(max, unused)| max - unused);
        sample.values.extend(used.map(|number| Value { series: 1, number, unit: None, percent: false }));
        Ok(true)
    }

    fn series(&mut self) -> Vec<SeriesInfo> {
        let unit = self.unit.map_or((KIB, UnitSource::Assumed), |unit| (unit, UnitSource::Option));
        let names = ["swpd", "used"].into_iter().take(if self.unused_max.is_some() { 2 } else { 1 });
        names.map(|name| SeriesInfo::new(name, unit)).collect()
    }

    fn axis(&self) -> Axis {
        if self.has_times { Axis::Clock } else { Axis::Samples }
    }

    fn notes(&self) -> Vec<String> {
        let unit =
            if self.unit.is_some() { "" } else { ", assumed to be in KiB (change with `--unit MiB` for `-S M`)" };
        let used = match self.unused_max {
            Some(_) => "`used` is computed from the fall of free + buff + cache",
            None => "only swap is judged: the output lacks the columns free, buff or cache",
        };
        let mut notes = vec![format!("output of vmstat{unit}"), used.to_owned()];
        if !self.has_times {
            notes.push("samples are counted, because the output has no times; `vmstat -t` prints them".into());
        }
        notes
    }
}
