//! Output of `vmstat`, with `-t` or without.
//!
//! There is no column of what is used: that is what is in none of `free`, `buff` and `cache`, so it rises as their sum
//! falls.

use std::path::Path;

use super::text::{Head, Lines, quoted};
use super::time::Times;
use super::{Known, Sample, Source, Value, Wrong};
use crate::axis::Axis;

const KIB: f64 = 1024.0;
/// The least memory of a machine that trains, in KiB (128 MiB): smaller numbers are MiB, of `-S M`.
const KIB_MIN: f64 = 131_072.0;
const FREE: &[&str] = &["free", "buff", "cache"];

/// Returns whether a file begins as `vmstat` prints.
pub fn is(head: &Head) -> bool {
    head.lines().take(2).any(is_header)
}

fn is_header(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.starts_with(&["r", "b"]) && words.contains(&"swpd") && words.contains(&"free")
}

/// A line of numbers.
struct Row {
    line: u64,
    swapped: f64,
    /// Memory that nothing uses; `None` where vmstat was asked for other columns.
    unused: Option<f64>,
    time: Option<i64>,
}

struct Rows {
    lines: Lines,
    header: Vec<String>,
    times: Times,
}

impl Rows {
    fn open(path: &Path, head: &Head) -> Result<Self, Wrong> {
        Ok(Self { lines: Lines::open(path, head)?, header: Vec::new(), times: Times::of("") })
    }

    fn next_row(&mut self) -> Result<Option<Row>, Wrong> {
        loop {
            let Some(line) = self.lines.next_line()?.map(str::to_owned) else { return Ok(None) };
            if line.contains("--memory--") {
                continue;
            }
            if is_header(&line) {
                self.header = line.split_whitespace().map(str::to_owned).collect();
                continue;
            }
            let wrong = |lines: &Lines| lines.wrong(format!("{} is no line of vmstat", quoted(&line)));
            let cells: Vec<&str> = line.split_whitespace().collect();
            let number = |column: &str| {
                let at = self.header.iter().position(|name| name == column)?;
                cells.get(at)?.parse::<u64>().ok().map(|number| number as f64)
            };
            let has = |column: &str| self.header.iter().any(|name| name == column);
            let swapped = number("swpd").ok_or_else(|| wrong(&self.lines))?;
            let unused = match FREE.iter().all(|column| has(column)) {
                false => None,
                true => {
                    let sum = FREE.iter().map(|column| number(column)).sum::<Option<f64>>();
                    Some(sum.ok_or_else(|| wrong(&self.lines))?)
                }
            };
            // The name of the time zone is one word of the header; date and time of day are two.
            let time = match &cells[..] {
                [.., date, time] if cells.len() == self.header.len() + 1 => {
                    Some(self.times.read(&format!("{date} {time}")).map_err(|_| wrong(&self.lines))?)
                }
                _ => None,
            };
            return Ok(Some(Row { line: self.lines.number, swapped, unused, time }));
        }
    }
}

pub struct Vmstat {
    rows: Rows,
    timed: bool,
    count: i64,
    /// The most that nothing used, in the unit of the numbers; `None` where that was not asked for.
    most: Option<f64>,
    unit: Option<f64>,
}

impl Vmstat {
    pub fn open(path: &Path, head: &Head, unit: Option<f64>) -> Result<Self, Wrong> {
        let (mut timed, mut most) = (false, None);
        let mut rows = Rows::open(path, head)?;
        while let Some(row) = rows.next_row()? {
            timed |= row.time.is_some();
            most = row.unused.map(|unused| unused.max(most.unwrap_or_default())).or(most);
        }
        if unit.is_none() && most.is_some_and(|most| most < KIB_MIN) {
            let message = "the numbers are too small for KiB, which vmstat prints unless it is asked for others";
            return Err(Wrong::whole(format!("{message}; `--unit MiB` says that they are of `-S M`")));
        }
        Ok(Self { rows: Rows::open(path, head)?, timed, count: 0, most, unit })
    }
}

impl Source for Vmstat {
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, Wrong> {
        let Some(row) = self.rows.next_row()? else { return Ok(false) };
        let place = match (self.timed, row.time) {
            (false, _) => self.count,
            (true, Some(time)) => time,
            (true, None) => return Err(Wrong::at(row.line, "there is no time, as there is in other lines")),
        };
        self.count += 1;
        (sample.line, sample.place, sample.restart) = (row.line, place, false);
        sample.values.clear();
        sample.values.push(Value { series: 0, number: row.swapped, unit: None });
        let used = self.most.zip(row.unused).map(|(most, unused)| most - unused);
        sample.values.extend(used.map(|number| Value { series: 1, number, unit: None }));
        Ok(true)
    }

    fn known(&mut self) -> Vec<Known> {
        let unit = Some(self.unit.unwrap_or(KIB));
        let names = ["swpd", "used"].into_iter().take(if self.most.is_some() { 2 } else { 1 });
        names.map(|name| Known::new(name, unit)).collect()
    }

    fn axis(&self) -> Axis {
        if self.timed { Axis::Clock } else { Axis::Samples }
    }

    fn notes(&self) -> Vec<String> {
        let taken = if self.unit.is_some() { "" } else { ", in KiB; `--unit MiB` says that it is of `-S M`" };
        let used = match self.most {
            Some(_) => "`used` is what is in none of free, buff and cache, less the least that it was",
            None => "without the columns buff and cache nothing says what is used: swap alone is judged",
        };
        let mut notes = vec![format!("the output of vmstat{taken}"), used.to_owned()];
        if !self.timed {
            notes.push("samples are counted; `vmstat -t` prints times".into());
        }
        notes
    }
}
