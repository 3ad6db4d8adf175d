//! Processes of a trace: where steps or times go back, another one begins.

use super::numbers::Amount;
use super::options::TableError;
use crate::axis::Axis;

/// Cap on the processes of a trace; a table with more restarts is not sorted.
const PROCESSES_MAX: usize = 1000;

/// Values that were measured at one position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    pub line: u64,
    /// Position in the unit of the trace's axis.
    pub position: i64,
    /// True if it is the first of another process.
    pub restart: bool,
    /// Index of its GPU, rank or process, where rows of several are interleaved.
    pub group: usize,
    /// Index of the series of each amount.
    pub values: Vec<(usize, Amount)>,
}

/// Range of the samples of one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessSpan {
    first: i64,
    last: i64,
    pub first_line: u64,
    pub last_line: u64,
}

impl ProcessSpan {
    /// Length on the axis.
    pub fn length(&self) -> u64 {
        u64::try_from(self.last - self.first).unwrap_or_default()
    }
}

/// Assigns samples to processes.
#[derive(Clone, Debug)]
pub struct ProcessSplitter {
    axis: Axis,
    /// Largest step back that is no restart: of a clock, or of a rank that lags behind another one.
    tolerance: i64,
    processes: Vec<ProcessSpan>,
    /// Newest position of each group of rows in the newest process.
    newest: Vec<Option<i64>>,
    samples: u64,
    /// Number of samples whose step or time is lower than that of the sample before.
    descents: u64,
    /// Line of the first such sample, and the message about it.
    first_descent: Option<(u64, String)>,
}

impl ProcessSplitter {
    pub fn new(axis: Axis, tolerance: i64) -> Self {
        let (processes, newest) = (Vec::new(), Vec::new());
        Self { axis, tolerance, processes, newest, samples: 0, descents: 0, first_descent: None }
    }

    /// Returns the index of a sample's process, and its position within the process.
    pub fn locate(&mut self, sample: &Sample) -> Result<(usize, u64), TableError> {
        // Samples are a thousand positions apart, for windows shorter than a sample.
        let scale = if self.axis == Axis::Samples { 1000 } else { 1 };
        let (line, mut position) = (sample.line, sample.position * scale);
        self.samples += 1;
        if self.newest.len() <= sample.group {
            self.newest.resize(sample.group + 1, None);
        }
        let mut begin = self.processes.is_empty() || sample.restart;
        if let Some(newest) = self.newest[sample.group].filter(|newest| position < *newest) {
            if position >= newest - self.tolerance {
                position = newest;
            } else if !sample.restart {
                self.descents += 1;
                let text = |position: i64| self.axis.position(position as f64);
                let problem = match self.axis {
                    Axis::Clock => format!("the time is {} earlier than in the row before", text(newest - position)),
                    _ => format!("{} follows {}", text(position), text(newest)),
                };
                let message = format!("{problem}; sort the table by {}", self.sort_key());
                self.first_descent.get_or_insert((line, message));
                begin = true;
            }
        }
        if begin {
            if self.processes.len() == PROCESSES_MAX {
                let message = format!("more than {PROCESSES_MAX} restarts; sort the table by {}", self.sort_key());
                return Err(TableError::at(line, message));
            }
            self.newest.fill(None);
            self.processes.push(ProcessSpan { first: position, last: position, first_line: line, last_line: line });
        }
        self.newest[sample.group] = Some(position);
        let process = self.processes.len() - 1;
        let span = &mut self.processes[process];
        (span.last, span.last_line) = (span.last.max(position), line);
        let origin = match self.axis {
            Axis::Clock | Axis::Samples => span.first,
            Axis::Steps | Axis::Epochs => 0,
        };
        Ok((process, u64::try_from(position.saturating_sub(origin)).unwrap_or_default()))
    }

    fn sort_key(&self) -> &'static str {
        match self.axis {
            Axis::Steps => "step",
            Axis::Epochs => "epoch",
            Axis::Samples | Axis::Clock => "time",
        }
    }

    /// Spans of all processes.
    ///
    /// # Errors
    /// More than a tenth of the rows go back: they are not sorted, and no restarts.
    pub fn finish(self) -> Result<Vec<ProcessSpan>, TableError> {
        match self.first_descent {
            Some((line, message)) if self.descents * 10 > self.samples => Err(TableError::at(line, message)),
            _ => Ok(self.processes),
        }
    }
}
