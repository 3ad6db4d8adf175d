//! Verdict on a memory trace of another tool.
//!
//! Each tool has a [`Trace`], which reads the file sample by sample. The file is read twice, because the units of the
//! columns, the length of a window and the spans of the processes depend on all of it.

mod column_names;
mod delimited;
mod first_pass;
mod free;
mod groups;
mod memray;
mod mprof;
mod psrecord;
mod rows;
mod text;
mod times;
mod vmstat;

/// Names of columns of steps, in order of preference.
pub use delimited::STEPS as STEP_COLUMNS;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::axis::Axis;
use crate::context::Context;
use crate::findings::{Judgement, Verdict};
use crate::judge::{BYTES, SeriesKind};
use crate::watch::Watch;
use first_pass::{FirstPass, ProcessSpan, ProcessSplitter};
use text::FileHead;

/// Reason why a trace cannot be judged.
#[derive(Debug)]
pub enum TableError {
    /// The file is missing or cannot be read.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The file is no trace, or nothing in it can be judged.
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Reason, for people.
        message: String,
    },
    /// An option does not fit the file.
    Options(String),
}

impl fmt::Display for TableError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, source } => write!(formatter, "cannot read {}: {source}", path.display()),
            Self::Content { path, message } => write!(formatter, "{}: {message}", path.display()),
            Self::Options(message) => formatter.write_str(message),
        }
    }
}

impl std::error::Error for TableError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } => Some(source),
            Self::Content { .. } | Self::Options(_) => None,
        }
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
}

impl TableOptions {
    /// Returns whether no option is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Bytes of [`Self::unit`].
    fn unit_bytes(&self) -> Result<Option<f64>, TraceError> {
        let Some(unit) = &self.unit else { return Ok(None) };
        let units = "use B, KB, MB, GB, TB, KiB, MiB, GiB or TiB";
        let bytes = column_names::bytes_of(&unit.to_lowercase());
        bytes.map(Some).ok_or_else(|| TraceError::Options(format!("unknown unit `{unit}`; {units}")))
    }
}

/// Verdict on a table, with the columns that it leaves out.
#[derive(Clone, Debug, PartialEq)]
pub struct TableVerdict {
    /// Verdict on all judged columns.
    pub verdict: Verdict,
    /// Columns that are not memory, each with the reason.
    pub left_out: Vec<String>,
    /// Columns that may be memory, but without a known unit.
    pub unknown: Vec<UnitlessColumn>,
    /// Notes on how the file was interpreted.
    pub notes: Vec<String>,
}

impl From<Verdict> for TableVerdict {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, left_out: Vec::new(), unknown: Vec::new(), notes: Vec::new() }
    }
}

/// Column of numbers without a unit, too small for bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitlessColumn {
    /// Name of the column.
    pub name: String,
    /// First value.
    pub first: f64,
    /// Last value.
    pub last: f64,
    /// Highest value.
    pub peak: f64,
}

/// Error in a trace or in the options; the path is added by [`TraceError::into_table_error`].
#[derive(Debug)]
enum TraceError {
    /// Error in a line.
    AtLine(u64, String),
    /// Error in the file as a whole.
    Content(String),
    Options(String),
    File(std::io::Error),
}

impl TraceError {
    fn at(line: u64, message: impl Into<String>) -> Self {
        Self::AtLine(line, message.into())
    }

    fn content(message: impl Into<String>) -> Self {
        Self::Content(message.into())
    }

    fn into_table_error(self, path: &Path) -> TableError {
        let path = path.to_path_buf();
        match self {
            Self::File(source) => TableError::File { path, source },
            Self::Options(_) => TableError::Options(format!("{}: {self}", path.display())),
            Self::AtLine(..) | Self::Content(_) => TableError::Content { path, message: self.to_string() },
        }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLine(line, message) => write!(formatter, "line {line}: {message}"),
            Self::Content(message) | Self::Options(message) => formatter.write_str(message),
            Self::File(error) => error.fmt(formatter),
        }
    }
}

impl From<std::io::Error> for TraceError {
    fn from(error: std::io::Error) -> Self {
        Self::File(error)
    }
}

/// Description of a series of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
struct SeriesInfo {
    /// Name: that of the column, and of the GPU or process where a column has those of several.
    name: String,
    column: String,
    /// Bytes of its unit.
    unit: Option<f64>,
    /// Reason why it is judged on request only.
    excluded: Option<String>,
    /// Reason why it cannot be judged.
    invalid: Option<String>,
}

impl SeriesInfo {
    fn new(name: impl Into<String>, unit: Option<f64>) -> Self {
        let name = name.into();
        Self { column: name.clone(), name, unit, ..Self::default() }
    }
}

/// Number of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Value {
    /// Index of its series.
    series: usize,
    number: f64,
    /// Bytes of the unit that follows the number in its cell.
    unit: Option<f64>,
}

/// Values that were measured at one position.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sample {
    line: u64,
    /// Position in the unit of the trace's axis.
    position: i64,
    /// True if it is the first of another process.
    restart: bool,
    values: Vec<Value>,
}

/// Reader of a trace.
trait Trace {
    /// Reads the next sample into `sample`; `false` at the end.
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, TraceError>;

    /// Series read so far; their names are final at the end.
    fn series(&mut self) -> Vec<SeriesInfo>;

    /// Unit of the positions.
    fn axis(&self) -> Axis;

    /// Notes on how the file was interpreted, complete at the end.
    fn notes(&self) -> Vec<String>;
}

/// Reason why the column of steps or times is not judged; not reported.
const POSITIONS: &str = "holds the steps or times";
/// Cap on the series of a trace.
const SERIES_MAX: usize = 256;

/// Judges a trace of another tool, recognised by its content: mprof, psrecord, HTML pages of memray, nvidia-smi, free,
/// vmstat, and tables with a header, separated by commas, semicolons, tabs or spaces.
///
/// # Errors
/// The file cannot be read, is no trace, has nothing that can be judged, or an option does not fit it.
pub fn judge_table(path: &Path, options: &TableOptions) -> Result<TableVerdict, TableError> {
    judge(path, options).map_err(|error| error.into_table_error(path))
}

fn judge(path: &Path, options: &TableOptions) -> Result<TableVerdict, TraceError> {
    options.unit_bytes()?;
    let head = FileHead::read(path)?;
    let mut source = open(path, &head, options)?;
    let first_pass = FirstPass::read(source.as_mut())?;
    let selection = first_pass.select(options)?;
    let (mut splitter, mut sample) = (ProcessSplitter::new(first_pass.axis), Sample::default());
    let mut verdicts: Vec<(usize, Verdict)> = Vec::new();
    let mut watch: Option<(usize, Watch)> = None;
    let mut source = open(path, &head, options)?;
    while source.next_sample(&mut sample)? {
        let (process, position) = splitter.locate(&sample)?;
        let (_, open) = match &mut watch {
            Some(open) if open.0 == process => open,
            _ => {
                let ended = watch.take();
                verdicts.extend(ended.map(|(process, ended)| (process, ended.verdict())));
                keep_worst_and_newest(&mut verdicts);
                watch.insert((process, Watch::new(first_pass.context(process))))
            }
        };
        for value in &sample.values {
            if let Some((series, unit)) = selection.get(value.series) {
                let bytes = (value.number * value.unit.unwrap_or(unit)) as u64;
                open.add_value(position, &series.name, bytes, SeriesKind::InUse, BYTES);
            }
        }
    }
    verdicts.extend(watch.map(|(process, open)| (process, open.verdict())));
    keep_worst_and_newest(&mut verdicts);
    let verdict = combined(verdicts, &first_pass.processes)
        .unwrap_or_else(|| Watch::new(Context { axis: first_pass.axis, ..Context::default() }).verdict());
    let notes = first_pass.notes(selection.notes);
    Ok(TableVerdict { verdict, left_out: selection.left_out, unknown: selection.unknown, notes })
}

/// Opens a trace with the reader of its tool, recognised by the beginning of the file.
fn open(path: &Path, head: &FileHead, options: &TableOptions) -> Result<Box<dyn Trace>, TraceError> {
    let Some(first) = head.lines().next() else {
        return Err(TraceError::content("the file is empty; expected a trace, or a table with a header"));
    };
    let trace: Box<dyn Trace> = if mprof::recognizes(first) {
        Box::new(mprof::Mprof::open(path, head)?)
    } else if psrecord::recognizes(first) {
        Box::new(psrecord::Psrecord::open(path, head)?)
    } else if free::recognizes(head) {
        Box::new(free::Free::open(path, head, options.unit_bytes()?)?)
    } else if vmstat::recognizes(head) {
        Box::new(vmstat::Vmstat::open(path, head, options.unit_bytes()?)?)
    } else if first.starts_with('<') {
        Box::new(memray::Memray::open(path, head)?)
    } else if first == "[" || ["{", "[{", "[[", "[\""].iter().any(|start| first.starts_with(start)) {
        return Err(TraceError::content(format!("the file is JSON, not a table; {}", memray::EXPECTED)));
    } else if first.starts_with("allocator,num_allocations") {
        return Err(TraceError::content(format!(
            "the file lists allocations, not memory over time; {}",
            memray::EXPECTED
        )));
    } else {
        return Ok(Box::new(delimited::Delimited::open(path, head, options)?));
    };
    match options.step_column {
        Some(_) => {
            Err(TraceError::Options("`--step-column` applies to tables only; this trace has its own times".into()))
        }
        None => Ok(trace),
    }
}

/// Removes all verdicts but the worst on an ended process and the newest.
fn keep_worst_and_newest(verdicts: &mut Vec<(usize, Verdict)>) {
    while verdicts.len() > 2 {
        let worse = verdicts[1].1.verdict > verdicts[0].1.verdict;
        verdicts.remove(usize::from(!worse));
    }
}

/// Verdict on the newest process, or on an earlier one that grew where the newest did not.
fn combined(mut verdicts: Vec<(usize, Verdict)>, processes: &[ProcessSpan]) -> Option<Verdict> {
    let (newest_at, newest) = verdicts.pop()?;
    let count = processes.len();
    let labelled = |at: usize, message: &str| match processes.get(at).filter(|_| count > 1) {
        Some(ProcessSpan { first_line, last_line, .. }) => {
            format!("process {} of {count} (lines {first_line} to {last_line}): {message}", at + 1)
        }
        None => message.to_owned(),
    };
    let newest = Verdict { message: labelled(newest_at, &newest.message), ..newest };
    match verdicts.pop() {
        Some((at, worst)) if worst.verdict > Judgement::Suspect && worst.verdict > newest.verdict => {
            Some(Verdict { message: format!("{}; {}", labelled(at, &worst.message), newest.message), ..worst })
        }
        _ => Some(newest),
    }
}

#[cfg(test)]
#[cfg(feature = "serde")]
mod tests;
