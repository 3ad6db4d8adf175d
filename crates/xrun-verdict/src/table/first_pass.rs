//! First pass over a trace: its series and their units, its range, and its processes.

use super::columns::Columns;
use super::names::{Role, is_resident, words};
use super::rows::COLUMNS_MAX;
use super::{POSITIONS, SERIES_MAX, Sample, SeriesInfo, TableOptions, TraceError, Value};
use crate::axis::Axis;
use crate::context::Context;
use crate::findings::{UnitSource, UnjudgedColumn};
use crate::judge::{BYTES, Thresholds};

/// Cap on the processes of a trace; a table with more restarts is not sorted.
const PROCESSES_MAX: usize = 1000;
/// Smallest memory of a training in bytes: smaller numbers are in another unit.
const BYTES_MIN: f64 = 1024.0 * 1024.0;
/// Smallest unused memory of a machine that trains, in bytes.
const UNUSED_MIN: f64 = 128.0 * 1024.0 * 1024.0;
/// Numbers from here on are bytes: they would be a TiB and more in KiB.
const SURELY_BYTES: f64 = 1024.0 * 1024.0 * 1024.0;
/// Memory of the largest machines in bytes, 64 TiB.
const MACHINE_MAX: f64 = 64.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0;
/// Fraction of its own level by which a series of unknown unit must grow.
const GROWTH_OF_LEVEL: f64 = 0.02;
/// Reason why a column of zeros without a unit is not judged.
const ONLY_ZERO: &str = "holds only 0";
/// Smallest number of different values from which a unit can be inferred, or a counter recognised.
const MOVES_MIN: u64 = 8;

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
        Self {
            axis,
            tolerance,
            processes: Vec::new(),
            newest: Vec::new(),
            samples: 0,
            descents: 0,
            first_descent: None,
        }
    }

    /// Returns the index of a sample's process, and its position within the process.
    pub fn locate(&mut self, sample: &Sample) -> Result<(usize, u64), TraceError> {
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
                return Err(TraceError::at(
                    line,
                    format!("more than {PROCESSES_MAX} restarts; sort the table by {}", self.sort_key()),
                ));
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
    fn finish(self) -> Result<Vec<ProcessSpan>, TraceError> {
        match self.first_descent {
            Some((line, message)) if self.descents * 10 > self.samples => Err(TraceError::at(line, message)),
            _ => Ok(self.processes),
        }
    }
}

/// Range of the values of a series, and what they say about their unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ValueRange {
    count: u64,
    /// Numbers without a unit in their cells, and percentages.
    bare: u64,
    percent: u64,
    /// Highest of the numbers without a unit.
    bare_peak: f64,
    first: f64,
    last: f64,
    peak: f64,
    /// Largest power of two that divides all numbers; 0 before the first, and where one is no whole number.
    divisor: u64,
    is_whole: bool,
    /// Number of differences between neighbours, the smallest and the largest of them.
    moves: u64,
    move_min: f64,
    move_max: f64,
    /// True if a number is lower than the one before.
    falls: bool,
}

impl ValueRange {
    fn add(&mut self, value: &Value) {
        let number = value.number * value.unit.unwrap_or(1.0);
        if self.count == 0 {
            (self.first, self.is_whole, self.move_min) = (number, true, f64::INFINITY);
        } else {
            let change = number - self.last;
            self.falls |= change < 0.0;
            self.moves += u64::from(change != 0.0);
            (self.move_min, self.move_max) = (self.move_min.min(change), self.move_max.max(change));
        }
        (self.last, self.peak) = (number, self.peak.max(number));
        self.count += 1;
        if value.unit.is_none() {
            self.bare += 1;
            self.percent += u64::from(value.percent);
            self.bare_peak = self.bare_peak.max(value.number);
            self.is_whole &= value.number.fract() == 0.0 && value.number < 9e15;
            let whole = value.number as u64;
            if self.is_whole && whole > 0 {
                let power = 1 << whole.trailing_zeros();
                self.divisor = if self.divisor == 0 { power } else { self.divisor.min(power) };
            }
        }
    }

    /// Returns whether the values are those of a counter: they rise from 0 in equal moves.
    fn is_counter(&self) -> bool {
        let is_even = self.move_max - self.move_min <= 1e-3 * self.move_max;
        !self.falls
            && self.moves >= MOVES_MIN
            && self.moves + 1 == self.count
            && is_even
            && self.first <= 1.01 * self.move_max
    }
}

/// Facts about a trace after it was read once.
pub struct FirstPass {
    pub axis: Axis,
    pub processes: Vec<ProcessSpan>,
    /// Largest step back within a process.
    pub tolerance: i64,
    series: Vec<SeriesInfo>,
    ranges: Vec<ValueRange>,
    /// Ranges of all series of a column, of several GPUs or processes.
    columns: Vec<ValueRange>,
    is_log: bool,
    notes: Vec<String>,
}

/// Scale, unit and thresholds of a series that is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub name: String,
    /// Memory of which its values are the unused part.
    pub whole: Option<f64>,
    /// Factor of its values.
    pub scale: f64,
    pub unit: &'static str,
    pub source: UnitSource,
    pub thresholds: Thresholds,
}

/// Series that are judged, and those that are not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Series that are judged, by their index; `None` where one is not.
    judged: Vec<Option<Judged>>,
    pub not_judged: Vec<UnjudgedColumn>,
    /// Beginning of the message: units that are assumed or unknown.
    pub caveat: String,
}

impl Selection {
    /// Scale, unit and thresholds of a series; `None` where it is not judged.
    pub fn get(&self, series: usize) -> Option<&Judged> {
        self.judged.get(series)?.as_ref()
    }

    /// Series that are judged.
    pub fn series(&self) -> impl Iterator<Item = &Judged> {
        self.judged.iter().flatten()
    }
}

/// Unit of a column, or the reason why it is not judged.
enum Unit {
    Bytes(f64, UnitSource),
    Percent,
    Unknown,
    /// It may be anything, and is judged where nothing else can be.
    Anything,
    None(String),
}

impl FirstPass {
    pub fn read(trace: &mut Columns) -> Result<Self, TraceError> {
        let (axis, tolerance) = (trace.axis(), trace.tolerance);
        let mut splitter = ProcessSplitter::new(axis, tolerance);
        let (mut ranges, mut columns) = (Vec::<ValueRange>::new(), Vec::<ValueRange>::new());
        let mut sample = Sample::default();
        while trace.next_sample(&mut sample)? {
            splitter.locate(&sample)?;
            for value in sample.values.iter().filter(|value| value.series < SERIES_MAX) {
                for (ranges, at) in [(&mut ranges, value.series), (&mut columns, value.column)] {
                    ranges.resize(ranges.len().max(at + 1), ValueRange::default());
                    ranges[at].add(value);
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
        columns.resize(COLUMNS_MAX, ValueRange::default());
        Ok(Self { axis, processes, tolerance, series, ranges, columns, is_log: trace.is_log(), notes })
    }

    /// Splitter of the second pass.
    pub fn splitter(&self) -> ProcessSplitter {
        ProcessSplitter::new(self.axis, self.tolerance)
    }

    /// Context of a process: its length.
    pub fn context(&self, process: usize) -> Context {
        let length = |span: &ProcessSpan| u64::try_from(span.last - span.first).unwrap_or_default();
        let steps = self.processes.get(process).map(length).unwrap_or_default();
        Context { steps, axis: self.axis, columns: true, ..Context::default() }
    }

    /// Unit of a series.
    fn unit(
        &self,
        info: &SeriesInfo,
        range: &ValueRange,
        options: &TableOptions,
        requested: bool,
    ) -> Result<Unit, TraceError> {
        let all = self.columns[info.at];
        if range.count == 0 {
            return Ok(Unit::None("holds no number".into()));
        }
        let is_percent = matches!(info.role, Role::Percent) || (all.bare > 0 && all.percent == all.bare);
        if is_percent {
            return Ok(match options.whole_bytes()? {
                Some(whole) => Unit::Bytes(whole / 100.0, UnitSource::Option),
                None if matches!(info.role, Role::Percent | Role::Memory) || requested => Unit::Percent,
                None => Unit::None("a percentage".into()),
            });
        }
        let option = options.unit_bytes()?.map(|unit| (unit, UnitSource::Option));
        let by_header = info.unit.filter(|(_, source)| *source == UnitSource::Header);
        let by_cells = (all.bare == 0).then_some((1.0, UnitSource::Cells));
        let unit = by_header.or(by_cells).or(option).or(info.unit);
        // psutil and `ru_maxrss` of macOS have bytes, a multiple of a page, where others have KiB.
        let is_pages =
            all.is_whole && all.divisor >= 4096 && all.moves >= MOVES_MIN && all.bare_peak >= SURELY_BYTES / 4.0;
        let unit = match unit {
            Some((unit, UnitSource::Tool)) if unit == 1024.0 && is_pages => Some((1.0, UnitSource::Assumed)),
            Some((unit, UnitSource::Tool)) if unit == 1.0 && all.bare_peak < BYTES_MIN => None,
            // `vmstat -S M`
            Some((unit, UnitSource::Tool)) if info.role == Role::Unused && all.bare_peak * unit < UNUSED_MIN => None,
            unit => unit,
        };
        let is_memory = info.role == Role::Memory || requested;
        let unit = unit.or_else(|| is_memory.then(|| assumed_unit(&info.column, &all)).flatten());
        Ok(match unit {
            Some((unit, source)) => {
                let peak = range.peak.max(range.bare_peak * unit);
                match peak > MACHINE_MAX {
                    true => Unit::None("is beyond the memory of any machine (64 TiB)".into()),
                    false => Unit::Bytes(unit, source),
                }
            }
            None if all.bare_peak == 0.0 && !requested => Unit::None(ONLY_ZERO.into()),
            None if range.is_counter() && info.role != Role::Memory && !requested => {
                Unit::None("rises from 0 in equal moves, as a counter of work".into())
            }
            None if is_memory || info.role == Role::Unused => Unit::Unknown,
            None => Unit::Anything,
        })
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
        let mut selection = Selection { judged: vec![None; self.series.len()], ..Selection::default() };
        let (mut anything, mut unused) = (Vec::new(), Vec::new());
        for (at, (info, range)) in self.series.iter().zip(&self.ranges).enumerate() {
            let requested = options.columns.iter().any(|column| is(info, column));
            let excluded = match &info.role {
                Role::Excluded(reason) if !requested => Some(reason.clone()),
                _ if !requested && !options.columns.is_empty() => Some("not selected by `--column`".into()),
                _ => None,
            };
            let unit = match info.invalid.clone().or(excluded) {
                Some(reason) => Unit::None(reason),
                None => self.unit(info, range, options, requested)?,
            };
            match unit {
                Unit::None(reason) if requested => {
                    return Err(TraceError::content(format!("column `{}` cannot be judged: {reason}", info.name)));
                }
                Unit::None(reason) => selection.leave_out(info, range, reason, options),
                Unit::Anything => anything.push(at),
                unit if info.role == Role::Unused && !requested => unused.push((at, unit)),
                unit => selection.judge(at, info, unit, range),
            }
        }
        // Unused memory is judged where no other is, and where it is not what the file cache leaves.
        let has =
            |info: &SeriesInfo, list: &[&str]| words(&info.column).iter().any(|word| list.contains(&word.as_str()));
        let judged = |(at, _): &(usize, &SeriesInfo)| selection.get(*at).is_some();
        let is_swap_only = self.series.iter().enumerate().filter(judged).all(|(_, info)| has(info, &["swap", "swpd"]));
        for (at, unit) in unused {
            let info = &self.series[at];
            let says_all =
                has(info, &["avail", "available", "kbavail", "gpu", "vram", "cuda", "cache"]) && !has(info, &["swap"]);
            if is_swap_only && says_all {
                let named = SeriesInfo { name: format!("fall of {}", info.name), ..info.clone() };
                selection.judge(at, &named, unit, &self.ranges[at]);
                if let Some(judged) = &mut selection.judged[at] {
                    judged.whole = Some(self.ranges[at].peak.max(self.ranges[at].bare_peak * judged.scale));
                }
            } else {
                selection.leave_out(info, &self.ranges[at], "unused memory".into(), options);
            }
        }
        let is_one_column = anything.windows(2).all(|pair| self.series[pair[0]].column == self.series[pair[1]].column);
        let is_only = selection.series().next().is_none() && is_one_column && !self.is_log;
        for at in anything {
            match is_only {
                true => selection.judge(at, &self.series[at], Unit::Unknown, &self.ranges[at]),
                false => {
                    let reason = "neither its name nor a unit says that it is memory; select it with `--column`";
                    selection.leave_out(&self.series[at], &self.ranges[at], reason.into(), options);
                }
            }
        }
        selection.caveat = caveat(&selection);
        let any = selection.series().next().is_some();
        if any { Ok(selection) } else { Err(TraceError::content(no_column(&selection))) }
    }

    /// Notes on how the file was interpreted.
    pub fn notes(&self) -> Vec<String> {
        let restarts = self.processes.get(1).map(|second| {
            let (count, line) = (self.processes.len(), second.first_line);
            format!("{count} processes, each judged separately; the second begins at line {line}")
        });
        self.notes.iter().cloned().chain(restarts).collect()
    }
}

impl Selection {
    fn judge(&mut self, at: usize, info: &SeriesInfo, unit: Unit, range: &ValueRange) {
        let growth_min = (GROWTH_OF_LEVEL * range.peak).max(f64::MIN_POSITIVE);
        let relative = Thresholds::of_growth(growth_min);
        let (unit, source, scale, thresholds) = match unit {
            Unit::Bytes(scale, source) => ("bytes", source, scale, BYTES),
            Unit::Percent => ("percent", UnitSource::Unknown, 1.0, relative),
            _ => ("unknown", UnitSource::Unknown, 1.0, relative),
        };
        self.judged[at] = Some(Judged { name: info.name.clone(), whole: None, scale, unit, source, thresholds });
    }

    fn leave_out(&mut self, info: &SeriesInfo, range: &ValueRange, reason: String, options: &TableOptions) {
        if self.not_judged.iter().any(|one| one.column == info.column) {
            return;
        }
        let is_memory = matches!(info.role, Role::Memory | Role::Percent) || info.unit.is_some();
        // A column of zeros is read, and has no leak; `memory_format` is text.
        let is_text = range.count == 0 && info.invalid.is_some() && info.unit.is_none();
        let is_unreadable = is_memory && !is_text && reason != ONLY_ZERO && reason != POSITIONS;
        let unreadable_memory =
            is_unreadable && !matches!(info.role, Role::Excluded(_) | Role::Unused) && options.columns.is_empty();
        self.not_judged.push(UnjudgedColumn { column: info.column.clone(), reason, unreadable_memory });
    }
}

/// Unit that the numbers of a column of memory are likely in.
fn assumed_unit(column: &str, all: &ValueRange) -> Option<(f64, UnitSource)> {
    let bytes = Some((1.0, UnitSource::Assumed));
    match () {
        () if all.bare_peak >= SURELY_BYTES => bytes,
        // Memory of tensors and pages is a multiple of 512 bytes, and RSS in KiB one of 4.
        () if all.bare_peak >= BYTES_MIN
            && all.is_whole
            && (all.divisor >= 4096 || (all.divisor >= 512 && all.moves > 0)) =>
        {
            bytes
        }
        () if all.bare_peak >= BYTES_MIN / 16.0
            && is_resident(column)
            && all.is_whole
            && (4..512).contains(&all.divisor)
            && all.moves >= MOVES_MIN =>
        {
            Some((1024.0, UnitSource::Assumed))
        }
        () => None,
    }
}

/// Beginning of a message on series whose unit is assumed or unknown.
fn caveat(selection: &Selection) -> String {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for one in selection.series() {
        let text = match (one.unit, one.source, one.scale) {
            ("unknown", ..) => "judged relative to its level, because the unit is unknown (`--unit`)".to_owned(),
            ("percent", ..) => "judged relative to its level (`--of 16GiB` sets 100 %)".to_owned(),
            (_, UnitSource::Assumed, scale) => format!("assumed to be in {} (`--unit`)", unit_name(scale)),
            _ => continue,
        };
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(&one.name),
            None => groups.push((text, vec![&one.name])),
        }
    }
    let part = |(text, names): &(String, Vec<&str>)| match names[..] {
        [one] => format!("`{one}` is {text}"),
        [one, ..] => format!("`{one}` and {} more are {text}", names.len() - 1),
        [] => String::new(),
    };
    let parts: Vec<String> = groups.iter().map(part).collect();
    if parts.is_empty() { String::new() } else { format!("{}: ", parts.join(", ")) }
}

/// Name of a unit that may be assumed.
fn unit_name(scale: f64) -> &'static str {
    match scale {
        1.0 => "bytes",
        1024.0 => "KiB",
        BYTES_MIN => "MiB",
        _ => "GiB",
    }
}

/// Message for a trace without a column that can be judged.
fn no_column(selection: &Selection) -> String {
    let listed = selection.not_judged.iter().filter(|one| one.reason != POSITIONS);
    let all: Vec<String> = listed.map(|one| format!("`{}` ({})", one.column, one.reason)).collect();
    match all.is_empty() {
        true => "no column can be judged: the only one holds the steps or times".into(),
        false => format!("no column can be judged: {}; select one with `--column NAME`", all.join(", ")),
    }
}
