//! Traces of `mprof run` of memory_profiler (`.dat`).
//!
//! `MEM <MiB> <unix time>` is a sample of the process, `CHLD <pid> <MiB> <unix time>` one of a child, `CMDLINE …`
//! begins another run, and `FUNC …` marks the calls of a function.

use std::path::Path;

use super::text::{FileHead, Lines, quoted};
use super::{SERIES_MAX, Sample, SeriesInfo, Trace, TraceError, Value};
use crate::axis::Axis;
use crate::findings::UnitSource;

const MIB: f64 = 1024.0 * 1024.0;

/// Returns whether a file with this first line is a trace of mprof.
pub fn recognizes(first: &str) -> bool {
    let mut words = first.split(' ');
    match words.next() {
        Some("CMDLINE") => true,
        Some("MEM" | "CHLD") => words.all(|word| word.parse::<f64>().is_ok()),
        _ => false,
    }
}

/// Reader of a trace of mprof.
pub struct Mprof {
    lines: Lines,
    /// Process ids of the children, in order of appearance.
    children: Vec<String>,
    /// True if a sample was read.
    begun: bool,
    /// Number of lines that mark calls of functions.
    marks: u64,
}

impl Mprof {
    pub fn open(path: &Path, head: &FileHead) -> Result<Self, TraceError> {
        Ok(Self { lines: Lines::open(path, head)?, children: Vec::new(), begun: false, marks: 0 })
    }
}

impl Trace for Mprof {
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, TraceError> {
        sample.values.clear();
        sample.restart = false;
        loop {
            let Some(line) = self.lines.next_line()? else { return Ok(false) };
            let words: Vec<&str> = line.split_whitespace().collect();
            let (pid, size, time) = match words[..] {
                ["CMDLINE", ..] => {
                    sample.restart = self.begun;
                    continue;
                }
                ["FUNC", ..] => {
                    self.marks += 1;
                    continue;
                }
                ["MEM", size, time] => (None, size, time),
                ["CHLD", pid, size, time] => (Some(pid), size, time),
                _ => {
                    let message = format!("expected MEM, CHLD, FUNC or CMDLINE of mprof, found {}", quoted(line));
                    return Err(self.lines.error(message));
                }
            };
            let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
            let time = number(time).filter(|time| (0.0..9e12).contains(time));
            let (Some(size), Some(time)) = (number(size), time) else {
                let message = format!("expected a size in MiB and a time in seconds, found {}", quoted(line));
                return Err(self.lines.error(message));
            };
            let series = match pid {
                None => 0,
                Some(pid) => match self.children.iter().position(|child| child == pid) {
                    Some(at) => at + 1,
                    None if self.children.len() + 1 < SERIES_MAX => {
                        self.children.push(pid.to_owned());
                        self.children.len()
                    }
                    None => continue,
                },
            };
            (sample.line, sample.position) = (self.lines.number, (time * 1e3).round() as i64);
            // mprof writes -1 where a process could not be read.
            if size >= 0.0 {
                sample.values.push(Value { series, number: size, unit: None, percent: false });
            }
            self.begun = true;
            return Ok(true);
        }
    }

    fn series(&mut self) -> Vec<SeriesInfo> {
        let children = self.children.iter().map(|pid| SeriesInfo::new(format!("child {pid}"), (MIB, UnitSource::Tool)));
        std::iter::once(SeriesInfo::new("memory", (MIB, UnitSource::Tool))).chain(children).collect()
    }

    fn axis(&self) -> Axis {
        Axis::Clock
    }

    fn notes(&self) -> Vec<String> {
        let marks = (self.marks > 0).then(|| format!("function marks ignored: {}", self.marks));
        std::iter::once("trace of mprof, in MiB".to_owned()).chain(marks).collect()
    }
}
