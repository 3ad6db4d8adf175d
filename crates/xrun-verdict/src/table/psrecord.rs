//! Traces of psrecord (`--log FILE`), as text or CSV (`--log-format csv`).
//!
//! Its sizes are labelled MB but are MiB: psrecord divides by 1024².

use std::path::Path;

use super::text::{FileHead, Lines, quoted};
use super::{Sample, SeriesInfo, Trace, TraceError, Value};
use crate::axis::Axis;

const MIB: f64 = 1024.0 * 1024.0;
const HEADER: &str = "# Elapsed time";

/// Returns whether a file with this first line is a text log of psrecord.
pub fn recognizes(first: &str) -> bool {
    first.starts_with(HEADER)
}

/// Returns whether these are the columns of a CSV log of psrecord.
pub fn is_csv(header: &[String]) -> bool {
    ["elapsed_time", "nproc", "cpu", "mem_real", "mem_virtual"].iter().zip(header).all(|(ours, found)| ours == found)
        && header.len() >= 5
}

/// Returns the bytes of the unit of a column of psrecord, and the reason why it is judged on request only.
pub fn unit_and_exclusion(name: &str) -> (Option<f64>, Option<String>) {
    let (is_memory, reason) = match name {
        "mem_real" | "Real (MB)" => (true, None),
        "mem_virtual" | "Virtual (MB)" => (true, Some("address space, not memory")),
        _ => (false, Some("no size")),
    };
    (is_memory.then_some(MIB), reason.map(Into::into))
}

/// Reader of a text log of psrecord.
pub struct Psrecord {
    lines: Lines,
    columns: Vec<String>,
    begun: bool,
}

impl Psrecord {
    pub fn open(path: &Path, head: &FileHead) -> Result<Self, TraceError> {
        let first = head.lines().next().unwrap_or_default();
        let columns = first.trim_start_matches('#').split("  ").map(str::trim).filter(|name| !name.is_empty());
        Ok(Self { lines: Lines::open(path, head)?, columns: columns.map(str::to_owned).collect(), begun: false })
    }
}

impl Trace for Psrecord {
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, TraceError> {
        sample.values.clear();
        sample.restart = false;
        loop {
            let Some(line) = self.lines.next_line()? else { return Ok(false) };
            if line.starts_with(HEADER) {
                sample.restart = self.begun;
                continue;
            }
            let numbers: Vec<Option<f64>> = line.split_whitespace().map(|cell| cell.parse().ok()).collect();
            let is_complete = numbers.len() == self.columns.len();
            let Some(numbers) = numbers.into_iter().collect::<Option<Vec<f64>>>().filter(|_| is_complete) else {
                let message = format!("expected {} numbers of psrecord, found {}", self.columns.len(), quoted(line));
                return Err(self.lines.error(message));
            };
            let time = numbers.first().copied().filter(|time| (0.0..9e12).contains(time));
            let Some(time) = time else {
                let message = format!("expected a time that is not negative, found {}", quoted(line));
                return Err(self.lines.error(message));
            };
            (sample.line, sample.position) = (self.lines.number, (time * 1e3).round() as i64);
            let sizes =
                numbers.into_iter().enumerate().skip(1).filter(|(_, number)| *number >= 0.0 && number.is_finite());
            sample.values.extend(sizes.map(|(at, number)| Value { series: at - 1, number, unit: None }));
            self.begun = true;
            return Ok(true);
        }
    }

    fn series(&mut self) -> Vec<SeriesInfo> {
        let describe = |name: &String| {
            let (unit, excluded) = unit_and_exclusion(name);
            SeriesInfo { excluded, ..SeriesInfo::new(name.clone(), unit) }
        };
        self.columns.iter().skip(1).map(describe).collect()
    }

    fn axis(&self) -> Axis {
        Axis::Clock
    }

    fn notes(&self) -> Vec<String> {
        vec!["log of psrecord, whose MB are MiB".into()]
    }
}
