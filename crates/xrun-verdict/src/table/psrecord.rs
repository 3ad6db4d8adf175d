//! Traces of psrecord: `--log FILE`, as text or with `--log-format csv`.
//!
//! Its sizes are called MB and are MiB: it divides by 1024².

use std::path::Path;

use super::text::{Head, Lines, quoted};
use super::{Known, Sample, Source, Value, Wrong};
use crate::axis::Axis;

const MIB: f64 = 1024.0 * 1024.0;
const HEADER: &str = "# Elapsed time";

/// Returns whether a file with this first line is psrecord's text.
pub fn is(first: &str) -> bool {
    first.starts_with(HEADER)
}

/// Returns whether the columns are those of its CSV.
pub fn is_csv(header: &[String]) -> bool {
    ["elapsed_time", "nproc", "cpu", "mem_real", "mem_virtual"].iter().zip(header).all(|(ours, found)| ours == found)
        && header.len() >= 5
}

/// The series of one of its columns, by its name.
pub fn column(name: &str, unit: &mut Option<f64>, hint: &mut Option<String>) {
    let (of_memory, why) = match name {
        "mem_real" | "Real (MB)" => (true, None),
        "mem_virtual" | "Virtual (MB)" => (true, Some("is address space, and not memory")),
        _ => (false, Some("is no size")),
    };
    *unit = of_memory.then_some(MIB);
    *hint = why.map(Into::into);
}

pub struct Psrecord {
    lines: Lines,
    columns: Vec<String>,
    begun: bool,
}

impl Psrecord {
    pub fn open(path: &Path, head: &Head) -> Result<Self, Wrong> {
        let first = head.lines().next().unwrap_or_default();
        let columns = first.trim_start_matches('#').split("  ").map(str::trim).filter(|name| !name.is_empty());
        Ok(Self { lines: Lines::open(path, head)?, columns: columns.map(str::to_owned).collect(), begun: false })
    }
}

impl Source for Psrecord {
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, Wrong> {
        sample.values.clear();
        sample.restart = false;
        loop {
            let Some(line) = self.lines.next_line()? else { return Ok(false) };
            if line.starts_with(HEADER) {
                sample.restart = self.begun;
                continue;
            }
            let numbers: Vec<Option<f64>> = line.split_whitespace().map(|cell| cell.parse().ok()).collect();
            let whole = numbers.len() == self.columns.len();
            let Some(numbers) = numbers.into_iter().collect::<Option<Vec<f64>>>().filter(|_| whole) else {
                let said =
                    format!("{} is no line of psrecord: {} numbers were expected", quoted(line), self.columns.len());
                return Err(self.lines.wrong(said));
            };
            let time = numbers.first().copied().filter(|time| (0.0..9e12).contains(time));
            let Some(time) = time else {
                let said = format!("{}: the time is negative, or none", quoted(line));
                return Err(self.lines.wrong(said));
            };
            (sample.line, sample.place) = (self.lines.number, (time * 1e3).round() as i64);
            let sizes =
                numbers.into_iter().enumerate().skip(1).filter(|(_, number)| *number >= 0.0 && number.is_finite());
            sample.values.extend(sizes.map(|(at, number)| Value { series: at - 1, number, unit: None }));
            self.begun = true;
            return Ok(true);
        }
    }

    fn known(&mut self) -> Vec<Known> {
        let known = self.columns.iter().skip(1).map(|name| {
            let mut known = Known::new(name.clone(), None);
            column(name, &mut known.unit, &mut known.hint);
            known
        });
        known.collect()
    }

    fn axis(&self) -> Axis {
        Axis::Clock
    }

    fn notes(&self) -> Vec<String> {
        vec!["a log of psrecord, whose MB are MiB".into()]
    }
}
