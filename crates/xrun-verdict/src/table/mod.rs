//! Verdict on a memory trace of another tool, a table, or a log.
//!
//! A reader normalises any text into rows: `grid` tables, `log` lines of `name: value`, `json` records. `columns` makes samples of
//! them, with the position of each row, its process, and its sizes; `names` says what is memory in use, and `selection` what is
//! judged. The file is read twice, because the units of the columns, the length of a window and the spans of the processes depend
//! on all of it.

mod columns;
mod grid;
mod groups;
mod json;
mod log;
mod names;
mod numbers;
mod processes;
mod rows;
mod selection;
mod text;
mod times;

/// Names of columns of steps, in order of preference; they may have the prefix `train/` or `trainer/`.
pub const STEP_COLUMNS: &[&str] = &["step", "global_step", "step_num", "iteration", "iterations", "iter", "iter_num"];

use std::fmt;
use std::path::Path;

use crate::context::Context;
use crate::findings::{Verdict, VerdictWord};
use crate::judge::{SeriesKind, Thresholds};
use crate::watch::Watch;
use columns::Columns;
use numbers::Amount;
use processes::{ProcessSpan, ProcessSplitter};
use rows::Rows;
use text::FileHead;

/// Reason why a trace cannot be judged.
#[derive(Debug)]
pub enum TableError {
    /// The file is missing or cannot be read.
    File(std::io::Error),
    /// The file is no trace, or nothing in it can be judged; with the reason, for people.
    Content(String),
    /// An option does not fit the file.
    Options(String),
}

impl TableError {
    fn at(line: u64, message: impl fmt::Display) -> Self {
        Self::Content(format!("line {line}: {message}"))
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(source) => write!(formatter, "cannot be read: {source}"),
            Self::Content(message) | Self::Options(message) => formatter.write_str(message),
        }
    }
}

impl std::error::Error for TableError {}

impl From<std::io::Error> for TableError {
    fn from(error: std::io::Error) -> Self {
        Self::File(error)
    }
}

/// Options of [`judge_table`]: the columns to judge and their units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableOptions {
    /// Columns to judge; all that look like memory when empty.
    pub columns: Vec<String>,
    /// Column of steps or times; found by its name when absent.
    pub step_column: Option<String>,
    /// Unit of columns without one.
    pub unit: Option<String>,
    /// Memory that is 100 % of columns in percent.
    pub of: Option<String>,
    /// Growth in bytes from which on a column counts as growing; that of [`BYTES`](crate::BYTES) when absent.
    pub growth_min: Option<u64>,
}

impl TableOptions {
    /// Returns whether no option is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Thresholds of [`Self::growth_min`].
    fn thresholds(&self) -> Option<Thresholds> {
        self.growth_min.map(|bytes| Thresholds::of_growth(bytes as f64))
    }

    /// Bytes of [`Self::unit`].
    fn unit_bytes(&self) -> Result<Option<f64>, TableError> {
        let Some(unit) = &self.unit else { return Ok(None) };
        let units = "use B, KB, MB, GB, TB, KiB, MiB, GiB or TiB";
        let bytes = names::bytes_of(&unit.to_lowercase());
        bytes.map(Some).ok_or_else(|| TableError::Options(format!("unknown unit `{unit}`; {units}")))
    }

    /// Bytes of [`Self::of`].
    fn whole_bytes(&self) -> Result<Option<f64>, TableError> {
        let Some(of) = &self.of else { return Ok(None) };
        match numbers::Numbers::default().amount(of, false) {
            Ok(numbers::Amount::Bytes(bytes)) if bytes > 0.0 => Ok(Some(bytes)),
            _ => Err(TableError::Options(format!("`--of {of}` is no size; write one with its unit, such as 16GiB"))),
        }
    }
}

/// Verdict on a table, with notes on how it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct TableVerdict {
    /// Verdict on all judged columns.
    pub verdict: Verdict,
    /// Notes on how the file was interpreted.
    pub notes: Vec<String>,
}

impl From<Verdict> for TableVerdict {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, notes: Vec::new() }
    }
}

/// Values that were measured at one position.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sample {
    line: u64,
    /// Position in the unit of the trace's axis.
    position: i64,
    /// True if it is the first of another process.
    restart: bool,
    /// Index of its GPU, rank or process, where rows of several are interleaved.
    group: usize,
    /// Index of the series of each amount.
    values: Vec<(usize, Amount)>,
}

/// Reason why the column of steps or times is not judged.
pub const POSITIONS: &str = "holds the steps or times";

/// Judges a trace of another tool, recognised by its content: mprof, psrecord, HTML pages of memray, nvidia-smi, free,
/// vmstat, top, ps, docker and kubectl, tables with a header, JSON, and lines of `name: value`.
///
/// # Errors
/// The file cannot be read, is no trace, has nothing that can be judged, or an option does not fit it.
pub fn judge_table(path: &Path, options: &TableOptions) -> Result<TableVerdict, TableError> {
    options.unit_bytes()?;
    options.whole_bytes()?;
    let head = FileHead::read(path)?;
    refuse(&head)?;
    // What is no table after all may be a log.
    match judge_rows(&|| open(path, &head), options) {
        Err(error @ TableError::Content(_)) if !json::recognizes(&head) => {
            judge_rows(&|| Ok(Box::new(log::Log::open(path, &head, false)?)), options).map_err(|_| error)
        }
        judged => judged,
    }
}

/// Opener of a reader of rows.
type Open<'a> = &'a dyn Fn() -> Result<Box<dyn Rows>, TableError>;

fn judge_rows(open: Open<'_>, options: &TableOptions) -> Result<TableVerdict, TableError> {
    let mut columns = Columns::of(open()?, open()?, options)?;
    let (axis, mut sample) = (columns.positions.axis, Sample::default());
    let mut splitter = ProcessSplitter::new(axis, columns.tolerance);
    while columns.next_sample(&mut sample)? {
        splitter.locate(&sample)?;
        columns.add_to_ranges(&sample);
    }
    let processes = splitter.finish()?;
    columns.add_empty_series();
    let selection = selection::select(&columns, options)?;
    let mut notes = columns.notes();
    if let [_, second, ..] = &processes[..] {
        let (count, line) = (processes.len(), second.first_line);
        notes.push(format!("{count} processes, each judged separately; the second begins at line {line}"));
    }
    columns.begin_anew(open()?);
    let mut splitter = ProcessSplitter::new(axis, columns.tolerance);
    let mut worst: Option<(usize, Verdict)> = None;
    let mut watch: Option<(usize, Watch)> = None;
    let context = |steps| Context { steps, axis, columns: true, ..Context::default() };
    while columns.next_sample(&mut sample)? {
        let (process, position) = splitter.locate(&sample)?;
        let (_, open) = match &mut watch {
            Some(open) if open.0 == process => open,
            _ => {
                let ended = watch.take().map(|(process, ended)| (process, ended.verdict()));
                let is_worse = |ended: &Verdict| worst.as_ref().is_none_or(|(_, worst)| ended.verdict > worst.verdict);
                worst = ended.filter(|(_, ended)| is_worse(ended)).or(worst);
                let length = processes.get(process).map_or(0, ProcessSpan::length);
                watch.insert((process, Watch::new(context(length))))
            }
        };
        for (series, amount) in &sample.values {
            let Some(Some(series)) = selection.judged.get(*series) else { continue };
            let number = match *amount {
                Amount::Bytes(bytes) => bytes,
                Amount::Number(number) | Amount::Percent(number) => number * series.scale,
                Amount::Missing => continue,
            };
            let number = series.whole.map_or(number, |whole| whole - number);
            let number = if series.unit == "bytes" { number.trunc() } else { number };
            let unit = Some((series.unit, series.source));
            let chosen = options.thresholds().filter(|_| series.unit == "bytes");
            let thresholds = chosen.unwrap_or(series.thresholds);
            open.add_number(position, &series.name, number, (SeriesKind::InUse, thresholds), unit);
        }
    }
    let (process, newest) = watch.unwrap_or_else(|| (0, Watch::new(context(0))));
    let verdict = combined(worst, (process, newest.verdict()), &processes);
    let message = format!("{}{}", selection.caveat, verdict.message);
    let verdict = Verdict { message, not_judged: selection.not_judged, ..verdict };
    Ok(TableVerdict { verdict, notes })
}

/// Refuses files that are of a tool and have no memory over time.
fn refuse(head: &FileHead) -> Result<(), TableError> {
    let first = head.lines().next().unwrap_or_default();
    let of_memray = |what: &str| {
        Err(TableError::Content(format!("the file {what}, not memory over time; {}", json::MEMRAY_EXPECTED)))
    };
    match first {
        "" => Err(TableError::Content("the file is empty; expected a trace, a table, or a log".into())),
        _ if first.starts_with("allocator,num_allocations") => of_memray("lists allocations"),
        _ if head.text.starts_with('{') && head.text.contains("\"total_num_allocations\"") => of_memray("has totals"),
        _ if first.starts_with("Filename:") && head.lines().any(|line| line.starts_with("Line #")) => {
            Err(TableError::Content(
                "the file lists memory by lines of code, not over time; record it with `mprof run` and judge that file"
                    .into(),
            ))
        }
        _ => Ok(()),
    }
}

/// Opens the reader of rows for a file.
fn open(path: &Path, head: &FileHead) -> Result<Box<dyn Rows>, TableError> {
    Ok(if json::recognizes(head) {
        Box::new(json::Json::open(path, head)?)
    } else if let Some(grid) = grid::Grid::open(path, head).filter(|_| !log::Log::is_of_tool(head)) {
        Box::new(grid?)
    } else {
        Box::new(log::Log::open(path, head, true)?)
    })
}

/// Verdict on the newest process, or on an earlier one that grew where the newest did not.
fn combined(worst: Option<(usize, Verdict)>, newest: (usize, Verdict), processes: &[ProcessSpan]) -> Verdict {
    let count = processes.len();
    let labelled = |(at, verdict): &(usize, Verdict)| match processes.get(*at).filter(|_| count > 1) {
        Some(ProcessSpan { first_line, last_line, .. }) => {
            format!("process {} of {count} (lines {first_line} to {last_line}): {}", at + 1, verdict.message)
        }
        None => verdict.message.clone(),
    };
    let is_worse = |worst: VerdictWord| worst > VerdictWord::Suspect && worst > newest.1.verdict;
    match worst.filter(|(_, worst)| is_worse(worst.verdict)) {
        Some(worst) => Verdict { message: format!("{}; {}", labelled(&worst), labelled(&newest)), ..worst.1 },
        None => Verdict { message: labelled(&newest), ..newest.1 },
    }
}

#[cfg(test)]
#[cfg(feature = "serde")]
mod tests;
