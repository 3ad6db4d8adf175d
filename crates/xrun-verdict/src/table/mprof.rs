//! Traces of `mprof run` of memory_profiler (`.dat`).
//!
//! `MEM <MiB> <unix time>` is a sample of the process, `CHLD <pid> <MiB> <unix time>` one of a child, `CMDLINE …`
//! begins another run, and `FUNC …` marks the calls of a function.

use std::path::Path;

use super::text::{Head, Lines, quoted};
use super::{Known, SERIES_MAX, Sample, Source, Value, Wrong};
use crate::axis::Axis;

const MIB: f64 = 1024.0 * 1024.0;

/// Returns whether a file with this first line is mprof's.
pub fn is(first: &str) -> bool {
    let mut words = first.split(' ');
    match words.next() {
        Some("CMDLINE") => true,
        Some("MEM" | "CHLD") => words.all(|word| word.parse::<f64>().is_ok()),
        _ => false,
    }
}

pub struct Mprof {
    lines: Lines,
    /// The pids of the children, in the order in which they came.
    children: Vec<String>,
    begun: bool,
    marks: u64,
}

impl Mprof {
    pub fn open(path: &Path, head: &Head) -> Result<Self, Wrong> {
        Ok(Self { lines: Lines::open(path, head)?, children: Vec::new(), begun: false, marks: 0 })
    }
}

impl Source for Mprof {
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, Wrong> {
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
                    let said = format!("{} is no line of mprof: MEM, CHLD, FUNC or CMDLINE was expected", quoted(line));
                    return Err(self.lines.wrong(said));
                }
            };
            let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
            let time = number(time).filter(|time| (0.0..9e12).contains(time));
            let (Some(size), Some(time)) = (number(size), time) else {
                let said = format!("{}: a size in MiB and a time in seconds were expected", quoted(line));
                return Err(self.lines.wrong(said));
            };
            let series = match pid {
                None => 0,
                Some(pid) => match self.children.iter().position(|known| known == pid) {
                    Some(at) => at + 1,
                    None if self.children.len() + 1 < SERIES_MAX => {
                        self.children.push(pid.to_owned());
                        self.children.len()
                    }
                    None => continue,
                },
            };
            (sample.line, sample.place) = (self.lines.number, (time * 1e3).round() as i64);
            // It writes -1 where a process could not be asked.
            if size >= 0.0 {
                sample.values.push(Value { series, number: size, unit: None });
            }
            self.begun = true;
            return Ok(true);
        }
    }

    fn known(&mut self) -> Vec<Known> {
        let children = self.children.iter().map(|pid| Known::new(format!("child {pid}"), Some(MIB)));
        std::iter::once(Known::new("memory", Some(MIB))).chain(children).collect()
    }

    fn axis(&self) -> Axis {
        Axis::Clock
    }

    fn notes(&self) -> Vec<String> {
        let marks = (self.marks > 0).then(|| format!("{} marks of functions are left out", self.marks));
        std::iter::once("a trace of mprof, in MiB".to_owned()).chain(marks).collect()
    }
}
