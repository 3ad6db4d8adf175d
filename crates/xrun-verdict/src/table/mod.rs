//! The verdict on a trace that another tool wrote.
//!
//! Each tool has a `Source`, which gives the trace sample by sample. The file is read twice: what a column holds, how
//! long a window is, and where a process ends and the next begins depend on all of it.

mod delimited;
mod free;
mod groups;
mod memray;
mod mprof;
mod names;
mod psrecord;
mod rows;
mod survey;
mod text;
mod time;
mod vmstat;

/// Names of columns of steps.
pub use delimited::STEPS as STEP_NAMES;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::axis::Axis;
use crate::context::Context;
use crate::findings::{Judgement, Verdict};
use crate::judge::{BYTES, Series};
use crate::watch::Watch;
use survey::{Part, Parts, Survey};
use text::Head;

/// A trace that cannot be judged.
#[derive(Debug)]
pub enum TableError {
    /// The file is missing or cannot be read.
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Nothing in it can be judged.
    Content {
        /// The file.
        path: PathBuf,
        /// The reason, for people.
        message: String,
    },
    /// Something was asked for that is not there.
    Asked(String),
}

impl fmt::Display for TableError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, source } => write!(formatter, "cannot read {}: {source}", path.display()),
            Self::Content { path, message } => write!(formatter, "{}: {message}", path.display()),
            Self::Asked(message) => formatter.write_str(message),
        }
    }
}

impl std::error::Error for TableError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } => Some(source),
            Self::Content { .. } | Self::Asked(_) => None,
        }
    }
}

/// Columns and units that a person asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// The columns to judge; all that look like memory when there are none.
    pub columns: Vec<String>,
    /// The column of steps or times.
    pub step_column: Option<String>,
    /// The unit of columns that have none.
    pub unit: Option<String>,
}

impl Asked {
    /// Returns whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The bytes of its unit.
    fn bytes(&self) -> Result<Option<f64>, Wrong> {
        let Some(unit) = &self.unit else { return Ok(None) };
        let known = "known are B, KB, MB, GB, TB, KiB, MiB, GiB and TiB";
        let bytes = names::bytes_of(&unit.to_lowercase());
        bytes.map(Some).ok_or_else(|| Wrong::Asked(format!("there is no unit `{unit}` ({known})")))
    }
}

/// A verdict, and what a person should know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The verdict on all columns that are memory.
    pub verdict: Verdict,
    /// Columns that are no memory.
    pub left_out: Vec<String>,
    /// Columns that may be memory, in a unit that nobody knows.
    pub unknown: Vec<Unknown>,
    /// Notes on what the trace was taken for.
    pub notes: Vec<String>,
}

impl From<Verdict> for Judged {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, left_out: Vec::new(), unknown: Vec::new(), notes: Vec::new() }
    }
}

/// A column of numbers without a unit: too small for bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Unknown {
    /// The column's name.
    pub name: String,
    /// Its first value.
    pub first: f64,
    /// Its last value.
    pub last: f64,
    /// Its highest value.
    pub peak: f64,
}

/// A fault of a trace, or of what was asked of it.
#[derive(Debug)]
enum Wrong {
    At(u64, String),
    Whole(String),
    Asked(String),
    File(std::io::Error),
}

impl Wrong {
    fn at(line: u64, message: impl Into<String>) -> Self {
        Self::At(line, message.into())
    }

    fn whole(message: impl Into<String>) -> Self {
        Self::Whole(message.into())
    }

    fn of(self, path: &Path) -> TableError {
        let path = path.to_path_buf();
        match self {
            Self::File(source) => TableError::File { path, source },
            Self::Asked(_) => TableError::Asked(format!("{}: {self}", path.display())),
            Self::At(..) | Self::Whole(_) => TableError::Content { path, message: self.to_string() },
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(line, message) => write!(formatter, "line {line}: {message}"),
            Self::Whole(message) | Self::Asked(message) => formatter.write_str(message),
            Self::File(error) => error.fmt(formatter),
        }
    }
}

impl From<std::io::Error> for Wrong {
    fn from(error: std::io::Error) -> Self {
        Self::File(error)
    }
}

/// A series of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    /// Its name: the column, and whose it is where a column holds the rows of several.
    name: String,
    column: String,
    /// Bytes in its unit.
    unit: Option<f64>,
    /// The reason why it is left out unless it is asked for.
    hint: Option<String>,
    /// The reason why it cannot be judged.
    broken: Option<String>,
}

impl Known {
    fn new(name: impl Into<String>, unit: Option<f64>) -> Self {
        let name = name.into();
        Self { column: name.clone(), name, unit, ..Self::default() }
    }
}

/// One number of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Value {
    /// The number of its series among those that are known.
    series: usize,
    number: f64,
    /// Bytes in a unit that stands beside the number.
    unit: Option<f64>,
}

/// Values that were measured at one place.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sample {
    line: u64,
    /// Its step, its milliseconds or its number, as the axis says.
    place: i64,
    /// Another process begins with it.
    restart: bool,
    values: Vec<Value>,
}

/// A trace, sample by sample: the same each time it is opened.
trait Source {
    /// Puts the next sample in place of the one before; `false` at the end.
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, Wrong>;

    /// The series met so far; names are final at the end.
    fn known(&mut self) -> Vec<Known>;

    fn axis(&self) -> Axis;

    /// Notes on what it was taken for, at the end.
    fn notes(&self) -> Vec<String>;
}

/// The reason why the column of steps or times is not judged; it need not be said.
const PLACE: &str = "holds the steps or times";
/// The most series that are followed.
const SERIES_MAX: usize = 256;

/// Judges a trace of another tool, by what the file holds and not by its name: mprof, psrecord, memray's pages,
/// nvidia-smi, free, vmstat, and tables with a header, separated by commas, semicolons, tabs or spaces.
///
/// # Errors
/// A file that is no trace, nothing in it that can be judged, or something asked for that is not there.
pub fn of_table(path: &Path, asked: &Asked) -> Result<Judged, TableError> {
    judge(path, asked).map_err(|wrong| wrong.of(path))
}

fn judge(path: &Path, asked: &Asked) -> Result<Judged, Wrong> {
    asked.bytes()?;
    let head = Head::read(path)?;
    let mut source = open(path, &head, asked)?;
    let survey = Survey::of(source.as_mut())?;
    let chosen = survey.choose(asked)?;
    let (mut parts, mut sample) = (Parts::new(survey.axis), Sample::default());
    let mut verdicts: Vec<(usize, Verdict)> = Vec::new();
    let mut watch: Option<(usize, Watch)> = None;
    let mut source = open(path, &head, asked)?;
    while source.next_sample(&mut sample)? {
        let (at, place) = parts.place(&sample)?;
        let (number, mut watched) = match watch.take() {
            Some((number, watched)) if number == at => (number, watched),
            before => {
                verdicts.extend(before.map(|(number, watched)| (number, watched.verdict())));
                keep_what_counts(&mut verdicts);
                (at, Watch::new(survey.context(at)))
            }
        };
        for value in &sample.values {
            if let Some((series, unit)) = chosen.unit(value.series) {
                let bytes = (value.number * value.unit.unwrap_or(unit)) as u64;
                watched.value(place, &series.name, bytes, Series::InUse, BYTES);
            }
        }
        watch = Some((number, watched));
    }
    verdicts.extend(watch.map(|(number, watched)| (number, watched.verdict())));
    keep_what_counts(&mut verdicts);
    let verdict = joined(verdicts, &survey.parts.list)
        .unwrap_or_else(|| Watch::new(Context { axis: survey.axis, ..Context::default() }).verdict());
    Ok(Judged { verdict, left_out: chosen.left_out, unknown: chosen.unknown, notes: survey.notes(chosen.notes) })
}

fn open(path: &Path, head: &Head, asked: &Asked) -> Result<Box<dyn Source>, Wrong> {
    let Some(first) = head.lines().next() else {
        return Err(Wrong::whole("is empty; a trace, or a table with a header, was expected"));
    };
    let has_columns = || match &asked.step_column {
        None => Ok(()),
        Some(_) => Err(Wrong::Asked("`--step-column` is for tables; this trace has its times".into())),
    };
    if mprof::is(first) {
        has_columns()?;
        return Ok(Box::new(mprof::Mprof::open(path, head)?));
    }
    if psrecord::is(first) {
        has_columns()?;
        return Ok(Box::new(psrecord::Psrecord::open(path, head)?));
    }
    if free::is(head) {
        has_columns()?;
        return Ok(Box::new(free::Free::open(path, head, asked.bytes()?)?));
    }
    if vmstat::is(head) {
        has_columns()?;
        return Ok(Box::new(vmstat::Vmstat::open(path, head, asked.bytes()?)?));
    }
    if first.starts_with('<') {
        has_columns()?;
        return Ok(Box::new(memray::Memray::open(path, head)?));
    }
    if first.starts_with('{') || first == "[" || ["[{", "[[", "[\""].iter().any(|start| first.starts_with(start)) {
        return Err(Wrong::whole(format!("is JSON, and no table; {}", memray::WHAT_CAN_BE_JUDGED)));
    }
    if first.starts_with("allocator,num_allocations") {
        return Err(Wrong::whole(format!(
            "lists allocations, and no series over time; {}",
            memray::WHAT_CAN_BE_JUDGED
        )));
    }
    Ok(Box::new(delimited::Delimited::open(path, head, asked)?))
}

/// Forgets processes that have ended, but for the worst that grew.
fn keep_what_counts(verdicts: &mut Vec<(usize, Verdict)>) {
    while verdicts.len() > 2 {
        let worse = verdicts[1].1.verdict > verdicts[0].1.verdict;
        verdicts.remove(usize::from(!worse));
    }
}

/// The verdict on the newest process, or on one before that grew where the newest did not.
fn joined(mut verdicts: Vec<(usize, Verdict)>, parts: &[Part]) -> Option<Verdict> {
    let (number, newest) = verdicts.pop()?;
    let named = |number: usize, message: &str| match parts.get(number).filter(|_| parts.len() > 1) {
        Some(part) => format!(
            "process {} of {} (lines {} to {}): {message}",
            number + 1,
            parts.len(),
            part.first_line,
            part.last_line
        ),
        None => message.to_owned(),
    };
    let newest = Verdict { message: named(number, &newest.message), ..newest };
    match verdicts.pop() {
        Some((number, kept)) if kept.verdict > Judgement::Suspect && kept.verdict > newest.verdict => {
            Some(Verdict { message: format!("{}; {}", named(number, &kept.message), newest.message), ..kept })
        }
        _ => Some(newest),
    }
}

#[cfg(test)]
#[cfg(feature = "serde")]
mod tests;
