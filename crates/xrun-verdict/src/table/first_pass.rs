//! First pass over a trace: its series and their units, its range, and its processes.

use super::{POSITIONS, SERIES_MAX, Sample, SeriesInfo, TableOptions, Trace, TraceError, UnitlessColumn};
use crate::axis::Axis;
use crate::context::Context;

/// Cap on the processes of a trace; a table with more restarts is not sorted.
const PROCESSES_MAX: usize = 1000;
/// Largest step back of a clock that is no restart.
const MILLISECONDS_BACK: i64 = 1000;
/// Smallest memory of a training in bytes: numbers from here on are bytes.
const BYTES_MIN: f64 = 1024.0 * 1024.0;

/// Range of the samples of one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessSpan {
    pub first: i64,
    pub last: i64,
    pub first_line: u64,
    pub last_line: u64,
}

/// Assigns samples to processes: where steps or times go back, another process begins.
#[derive(Clone, Debug)]
pub struct ProcessSplitter {
    axis: Axis,
    processes: Vec<ProcessSpan>,
    samples: u64,
    /// Number of samples whose step or time is lower than that of the sample before.
    descents: u64,
    /// Line of the first such sample, and the message about it.
    first_descent: Option<(u64, String)>,
}

impl ProcessSplitter {
    pub fn new(axis: Axis) -> Self {
        Self { axis, processes: Vec::new(), samples: 0, descents: 0, first_descent: None }
    }

    /// Returns the index of a sample's process, and its position within the process.
    pub fn locate(&mut self, sample: &Sample) -> Result<(usize, u64), TraceError> {
        // Samples are a thousand positions apart, for windows shorter than a sample.
        let scale = if self.axis == Axis::Samples { 1000 } else { 1 };
        let (line, mut position) = (sample.line, sample.position * scale);
        self.samples += 1;
        let begin = match self.processes.last() {
            None => true,
            Some(span)
                if self.axis == Axis::Clock && position < span.last && position >= span.last - MILLISECONDS_BACK =>
            {
                position = span.last;
                sample.restart
            }
            Some(span) if position < span.last && !sample.restart => {
                self.descents += 1;
                let text = |position: i64| self.axis.position(position as f64);
                let problem = match self.axis {
                    Axis::Clock => format!("the time is {} earlier than in the row before", text(span.last - position)),
                    _ => format!("{} follows {}", text(position), text(span.last)),
                };
                let message = format!("{problem}; sort the table by {}", self.sort_key());
                self.first_descent.get_or_insert((line, message));
                true
            }
            Some(_) => sample.restart,
        };
        if begin {
            if self.processes.len() == PROCESSES_MAX {
                return Err(TraceError::at(
                    line,
                    format!("more than {PROCESSES_MAX} restarts; sort the table by {}", self.sort_key()),
                ));
            }
            self.processes.push(ProcessSpan { first: position, last: position, first_line: line, last_line: line });
        }
        let process = self.processes.len() - 1;
        let span = &mut self.processes[process];
        (span.last, span.last_line) = (position, line);
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
    fn finish(self) -> Result<Vec<ProcessSpan>, TraceError> {
        match self.first_descent {
            Some((line, message)) if self.descents * 10 > self.samples => Err(TraceError::at(line, message)),
            _ => Ok(self.processes),
        }
    }
}

/// Range of the values of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ValueRange {
    count: u64,
    /// Highest of the numbers without a unit in their cells.
    bare_peak: Option<f64>,
    first: f64,
    last: f64,
    peak: f64,
}

/// Facts about a trace after it was read once.
pub struct FirstPass {
    pub axis: Axis,
    pub processes: Vec<ProcessSpan>,
    series: Vec<SeriesInfo>,
    ranges: Vec<ValueRange>,
    notes: Vec<String>,
}

/// Series that are judged, and those that are not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// For each series, its description and the bytes of its unit; `None` where it is not judged.
    judged: Vec<Option<(SeriesInfo, f64)>>,
    pub left_out: Vec<String>,
    pub unknown: Vec<UnitlessColumn>,
    pub notes: Vec<String>,
}

impl Selection {
    /// Series that is judged, and the bytes of its unit; `None` where it is not judged.
    pub fn get(&self, series: usize) -> Option<(&SeriesInfo, f64)> {
        self.judged.get(series)?.as_ref().map(|(info, unit)| (info, *unit))
    }
}

impl FirstPass {
    pub fn read(trace: &mut dyn Trace) -> Result<Self, TraceError> {
        let axis = trace.axis();
        let (mut splitter, mut ranges) = (ProcessSplitter::new(axis), Vec::<ValueRange>::new());
        let mut sample = Sample::default();
        while trace.next_sample(&mut sample)? {
            splitter.locate(&sample)?;
            for value in sample.values.iter().filter(|value| value.series < SERIES_MAX) {
                if ranges.len() <= value.series {
                    ranges.resize(value.series + 1, ValueRange::default());
                }
                let range = &mut ranges[value.series];
                let number = value.number * value.unit.unwrap_or(1.0);
                if range.count == 0 {
                    range.first = number;
                }
                (range.last, range.peak) = (number, range.peak.max(number));
                range.count += 1;
                if value.unit.is_none() {
                    range.bare_peak = Some(range.bare_peak.unwrap_or_default().max(value.number));
                }
            }
        }
        let processes = splitter.finish()?;
        let (mut series, mut notes) = (trace.series(), trace.notes());
        if series.len() >= SERIES_MAX {
            series.truncate(SERIES_MAX);
            notes.push(format!("only the first {SERIES_MAX} series are judged"));
        }
        ranges.resize(series.len(), ValueRange::default());
        Ok(Self { axis, processes, series, ranges, notes })
    }

    /// Context of a process: its length.
    pub fn context(&self, process: usize) -> Context {
        let length = |span: &ProcessSpan| u64::try_from(span.last - span.first).unwrap_or_default();
        let steps = self.processes.get(process).map(length).unwrap_or_default();
        Context { steps, axis: self.axis, ..Context::default() }
    }

    /// Selects the series to judge: the requested columns, or otherwise all that may be memory.
    pub fn select(&self, options: &TableOptions) -> Result<Selection, TraceError> {
        let found = || self.series.iter().map(|info| info.name.as_str()).collect::<Vec<_>>().join(", ");
        let is = |info: &SeriesInfo, column: &String| info.name == *column || info.column == *column;
        for column in &options.columns {
            if !self.series.iter().any(|info| is(info, column)) {
                return Err(TraceError::Options(format!("there is no column `{column}` (found: {})", found())));
            }
        }
        let default_unit = options.unit_bytes()?;
        let mut selection = Selection { judged: vec![None; self.series.len()], ..Selection::default() };
        for (at, (info, range)) in self.series.iter().zip(&self.ranges).enumerate() {
            let requested = options.columns.iter().any(|column| is(info, column));
            let holds_positions = info.invalid.as_deref() == Some(POSITIONS);
            if !requested && (holds_positions || !options.columns.is_empty()) {
                continue;
            }
            let empty = || match range.bare_peak {
                _ if range.count == 0 => Some("holds no number".to_owned()),
                // 0 in any unit; a verdict on it would hide that other columns are not judged.
                Some(0.0) if info.unit.or(default_unit).is_none() && range.peak == 0.0 => Some("holds only 0".into()),
                _ => None,
            };
            let excluded = info.excluded.clone().filter(|_| !requested);
            if let Some(reason) = excluded.or_else(|| info.invalid.clone()).or_else(empty) {
                if requested {
                    return Err(TraceError::content(format!("column `{}` cannot be judged: {reason}", info.name)));
                }
                let text = format!("`{}` ({reason})", info.column);
                if !selection.left_out.contains(&text) {
                    selection.left_out.push(text);
                }
                continue;
            }
            // Where each number has its own unit, the series needs none.
            let unit = info.unit.or(default_unit).or_else(|| range.bare_peak.is_none().then_some(1.0));
            match unit {
                Some(unit) => selection.judged[at] = Some((info.clone(), unit)),
                None if range.bare_peak.unwrap_or_default() >= BYTES_MIN => {
                    let name = &info.name;
                    selection.notes.push(format!("`{name}` has no unit; bytes are assumed (change with `--unit KiB`)"));
                    selection.judged[at] = Some((info.clone(), 1.0));
                }
                None => selection.unknown.push(UnitlessColumn {
                    name: info.name.clone(),
                    first: range.first,
                    last: range.last,
                    peak: range.peak,
                }),
            }
        }
        match selection.judged.iter().any(Option::is_some) {
            true => Ok(selection),
            false => Err(TraceError::content(no_column(&selection))),
        }
    }

    /// Notes on how the file was interpreted, followed by `more`.
    pub fn notes(&self, more: Vec<String>) -> Vec<String> {
        let restarts = self.processes.get(1).map(|second| {
            let (count, line) = (self.processes.len(), second.first_line);
            format!("{count} processes, each judged separately; the second begins at line {line}")
        });
        self.notes.iter().cloned().chain(restarts).chain(more).collect()
    }
}

/// Message for a trace without a column that can be judged.
fn no_column(selection: &Selection) -> String {
    let unknown = selection.unknown.iter().map(|column| {
        let reason = "no unit, and too small for bytes; set one with `--unit MiB`";
        format!("`{}` (up to {}: {reason})", column.name, column.peak)
    });
    let all: Vec<String> = unknown.chain(selection.left_out.iter().cloned()).collect();
    match all.is_empty() {
        true => "no column can be judged: the only one holds the steps or times".into(),
        false => format!("no column can be judged: {}; select one with `--column NAME`", all.join(", ")),
    }
}
