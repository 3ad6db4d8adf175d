//! The verdict on a table that another tool wrote: which columns are memory, and in which unit?

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek};
use std::path::Path;
use std::rc::Rc;

use csv::ByteRecord;

use super::judge::{BYTES, Series};
use super::of_file::VerdictError;
use super::watch::{Context, Watch};
use crate::results::file;
use crate::results::read::ReadError;
use crate::results::verdict::Verdict;

/// Longer rows than this are of no table that we could judge; a quotation mark that is never closed makes one.
const ROW_BYTES_MAX: u64 = 256 * 1024;
/// More columns than this are not looked at.
const COLUMNS_MAX: usize = 256;

/// A verdict, and what of the table it is not on, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub verdict: Verdict,
    pub left_out: Vec<String>,
}

/// A column, and why it is not judged if it is not.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    /// Bytes in its unit.
    unit: f64,
    left_out: Option<String>,
    /// Whether it was asked for.
    asked: bool,
    numbers: u64,
}

/// Judges a table with a header, separated by commas, semicolons or tabs: one column named `step`, and one or more of
/// sizes. The unit is the last word of a column's name (`rss_mb`, `used [MiB]`), and bytes where it is none. `only` names
/// the columns to judge; without it those are left out whose names or values say that they are no sizes.
///
/// # Errors
/// No `step` column, no column of sizes, one of `only` that is not there or holds no sizes, or steps that fall.
pub fn of_table(path: &Path, only: &[String]) -> Result<Judged, VerdictError> {
    let wrong = |message: String| VerdictError::Table { path: path.to_path_buf(), message };
    let mut rows = Rows::open(path)?;
    let Some(header) = rows.next_row()?.cloned() else {
        return Err(wrong("is empty; a table with a header was expected".into()));
    };
    let names: Vec<String> = header.iter().take(COLUMNS_MAX).map(text).collect();
    let found = || names.join(", ");
    let Some(step_at) = names.iter().position(|name| name.eq_ignore_ascii_case("step")) else {
        return Err(wrong(format!("no column is named `step` (found: {})", found())));
    };
    if let Some(missing) = only.iter().find(|wanted| !names.contains(wanted)) {
        return Err(wrong(format!("no column is named `{missing}` (found: {})", found())));
    }
    let mut columns: Vec<Column> = names.iter().map(|name| Column::of(name, only)).collect();
    columns[step_at].left_out = Some("the steps".into());
    for at in 1..columns.len() {
        if names[..at].contains(&names[at]) {
            columns[at].left_out = Some("a column before it has the same name".into());
        }
    }
    // Twice through the file: what a column holds, and how long a window is, depends on all of it.
    let steps = look(&mut rows, step_at, &mut columns).map_err(|error| error.at(path))?;
    let judged = |name: &str| columns.iter().any(|column| column.name == name && column.left_out.is_none());
    if let Some(column) = columns.iter().find(|column| column.asked && !judged(&column.name)) {
        let why = column.left_out.as_deref().unwrap_or_default();
        return Err(wrong(format!("column `{}` cannot be judged: {why}", column.name)));
    }
    let mut left_out: Vec<String> = (columns.iter().enumerate())
        .filter(|(at, column)| *at != step_at && (only.is_empty() || column.asked))
        .filter_map(|(_, column)| Some(format!("`{}` ({})", column.name, column.left_out.as_ref()?)))
        .collect();
    if header.len() > COLUMNS_MAX {
        left_out.push(format!("all columns after the first {COLUMNS_MAX}"));
    }
    if columns.iter().all(|column| column.left_out.is_some()) {
        let why = if left_out.is_empty() { "there is none but `step`".into() } else { left_out.join(", ") };
        return Err(wrong(format!("no column can be judged: {why}; `--column NAME` chooses one")));
    }
    let mut watch = Watch::new(Context { steps, ..Context::default() });
    let mut rows = Rows::open(path)?;
    let delimiter = rows.delimiter;
    rows.next_row()?;
    while let Some(row) = rows.next_row()? {
        let Some(step) = row.get(step_at).and_then(|cell| whole(&text(cell))) else { continue };
        for (column, cell) in columns.iter().zip(row).filter(|(column, _)| column.left_out.is_none()) {
            if let Ok(Some(size)) = column.bytes(&text(cell), delimiter) {
                watch.value(step, &column.name, size, Series::InUse, BYTES);
            }
        }
    }
    Ok(Judged { verdict: watch.verdict(), left_out })
}

/// Finds the last step, and columns that hold no sizes.
fn look(rows: &mut Rows, step_at: usize, columns: &mut [Column]) -> Result<u64, TableError> {
    let (mut last, delimiter) = (0, rows.delimiter);
    while let Some(row) = rows.next_row()? {
        let line = row.position().map_or(0, csv::Position::line);
        let cell = row.get(step_at).map(text).unwrap_or_default();
        if cell.is_empty() {
            continue;
        }
        let Some(step) = whole(&cell) else {
            return Err(TableError::Wrong(format!("line {line}: column `step`: \"{cell}\" is no whole number")));
        };
        if step < last {
            return Err(TableError::Wrong(format!(
                "line {line}: step {step} after step {last}; sort the table by step"
            )));
        }
        last = step;
        for (column, cell) in columns.iter_mut().zip(row).filter(|(column, _)| column.left_out.is_none()) {
            match column.bytes(&text(cell), delimiter) {
                Ok(size) => column.numbers += u64::from(size.is_some()),
                Err(why) => column.left_out = Some(format!("line {line}: \"{}\" {why}", text(cell))),
            }
        }
    }
    for column in columns.iter_mut().filter(|column| column.left_out.is_none() && column.numbers == 0) {
        column.left_out = Some("holds no number".into());
    }
    Ok(last)
}

impl Column {
    fn of(name: &str, only: &[String]) -> Self {
        let asked = only.iter().any(|wanted| wanted == name);
        let unit = unit(name);
        let left_out = match (only.is_empty(), asked, unit, no_size(name)) {
            (false, false, ..) => Some("not asked for".into()),
            (true, _, None, Some(word)) => Some(format!("`{word}` is no size")),
            _ => None,
        };
        Self { name: name.to_owned(), unit: unit.unwrap_or(1.0), left_out, asked, numbers: 0 }
    }

    /// The size that a cell says; `None` of one that was not measured.
    fn bytes(&self, cell: &str, delimiter: u8) -> Result<Option<u64>, &'static str> {
        if ["", "-", "na", "n/a", "nan", "null", "none"].contains(&cell.to_lowercase().as_str()) {
            return Ok(None);
        }
        // Where semicolons separate, a comma is a decimal point.
        let cell = if delimiter == b';' { cell.replace(',', ".") } else { cell.to_owned() };
        match cell.parse::<f64>() {
            Ok(size) if size < 0.0 => Err("is negative"),
            Ok(size) if size.is_finite() => Ok(Some((size * self.unit) as u64)),
            Ok(_) => Err("is not finite"),
            // With its own unit: `512 MiB`.
            Err(_) => cell.parse::<crate::units::Bytes>().map(|size| Some(size.0)).map_err(|_| "is no number"),
        }
    }
}

/// The words of a name: `rss_mb`, `memory.used [MiB]`, `gpuMemoryBytes`.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut before = ' ';
    for letter in name.chars() {
        if !letter.is_alphanumeric() || (letter.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    // `MiB` and `KiB` have a capital in the middle.
    if let [.., unit, rest] = &mut words[..]
        && rest == "b"
        && ["ki", "mi", "gi", "ti"].contains(&unit.as_str())
    {
        unit.push('b');
        words.pop();
    }
    words
}

/// The bytes of the unit that a name ends with.
fn unit(name: &str) -> Option<f64> {
    let exact = match words(name).last()?.as_str() {
        "b" | "byte" | "bytes" => 1u64,
        "kb" => 1_000,
        "mb" | "megabytes" => 1_000_000,
        "gb" | "gigabytes" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    Some(exact as f64)
}

/// Words of names that are no sizes.
const NO_SIZES: &[&str] = &[
    "time",
    "timestamp",
    "date",
    "datetime",
    "duration",
    "elapsed",
    "wall",
    "clock",
    "ns",
    "us",
    "ms",
    "s",
    "sec",
    "secs",
    "second",
    "seconds",
    "minute",
    "minutes",
    "hour",
    "hours",
    "epoch",
    "epochs",
    "step",
    "steps",
    "iteration",
    "iterations",
    "round",
    "rounds",
    "segment",
    "index",
    "id",
    "pid",
    "rank",
    "count",
    "counts",
    "num",
    "allocations",
    "samples",
    "items",
    "rate",
    "ratio",
    "percent",
    "pct",
    "percentage",
    "util",
    "utilization",
    "temperature",
    "power",
    "watts",
    "loss",
    "lr",
    "norm",
    "accuracy",
];

/// The word of a name that says that it is no size.
fn no_size(name: &str) -> Option<String> {
    words(name).into_iter().find(|word| NO_SIZES.contains(&word.as_str()))
}

fn whole(cell: &str) -> Option<u64> {
    let float = || cell.parse::<f64>().ok().filter(|step| step.fract() == 0.0 && (0.0..9e15).contains(step));
    cell.parse().ok().or_else(|| float().map(|step| step as u64))
}

fn text(cell: &[u8]) -> String {
    String::from_utf8_lossy(cell).trim().to_owned()
}

/// What went wrong within the rows.
enum TableError {
    Wrong(String),
    Read(VerdictError),
}

impl TableError {
    fn at(self, path: &Path) -> VerdictError {
        match self {
            Self::Wrong(message) => VerdictError::Table { path: path.to_path_buf(), message },
            Self::Read(error) => error,
        }
    }
}

impl From<VerdictError> for TableError {
    fn from(error: VerdictError) -> Self {
        Self::Read(error)
    }
}

/// The rows of a file, one at a time.
struct Rows {
    path: std::path::PathBuf,
    reader: csv::Reader<Capped>,
    left: Rc<Cell<u64>>,
    row: ByteRecord,
    delimiter: u8,
}

/// Fails where a row has more bytes than it may.
struct Capped {
    file: File,
    left: Rc<Cell<u64>>,
}

impl Read for Capped {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let Some(left) = self.left.get().checked_sub(into.len() as u64) else {
            let message = "a row is too long; is a quotation mark left open?";
            return Err(std::io::Error::new(ErrorKind::InvalidData, message));
        };
        self.left.set(left);
        self.file.read(into)
    }
}

impl Rows {
    fn open(path: &Path) -> Result<Self, VerdictError> {
        let file_error = |source| VerdictError::Read(ReadError::File { path: path.to_path_buf(), source });
        let mut file = file::open(path).map_err(file_error)?;
        let mut first = Vec::new();
        BufReader::new(&file).take(ROW_BYTES_MAX).read_until(b'\n', &mut first).map_err(file_error)?;
        file.rewind().map_err(file_error)?;
        let count = |delimiter: u8| first.iter().filter(|byte| **byte == delimiter).count();
        let delimiter = [b'\t', b';', b','].into_iter().max_by_key(|delimiter| count(*delimiter)).unwrap_or(b',');
        let left = Rc::new(Cell::new(ROW_BYTES_MAX));
        let capped = Capped { file, left: left.clone() };
        let mut builder = csv::ReaderBuilder::new();
        let reader = builder.has_headers(false).flexible(true).delimiter(delimiter).from_reader(capped);
        Ok(Self { path: path.to_path_buf(), reader, left, row: ByteRecord::new(), delimiter })
    }

    fn next_row(&mut self) -> Result<Option<&ByteRecord>, VerdictError> {
        self.left.set(ROW_BYTES_MAX);
        match self.reader.read_byte_record(&mut self.row) {
            Ok(more) => Ok(more.then_some(&self.row)),
            Err(error) => Err(VerdictError::Table { path: self.path.clone(), message: error.to_string() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_the_unit_or_that_it_is_no_size() {
        for (name, expected) in [
            ("rss_mb", Some(1e6)),
            ("rssMiB", Some(1_048_576.0)),
            ("memory.used [MiB]", Some(1_048_576.0)),
            ("Allocated (GB)", Some(1e9)),
            ("gpu_bytes", Some(1.0)),
            ("gpuMemoryBytes", Some(1.0)),
            ("rss", None),
            ("number", None),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
        for name in ["time_ms", "epoch", "step_us", "Wall Time", "wallTime", "heap_allocations", "gpu_util"] {
            assert!(no_size(name).is_some() && unit(name).is_none(), "{name}");
        }
        for name in ["rss", "heap", "device_in_use", "other"] {
            assert_eq!(no_size(name), None, "{name}");
        }
    }

    #[test]
    fn a_cell_is_a_number_in_the_columns_unit_or_not_measured() {
        let column = Column::of("rss_mb", &[]);
        assert_eq!(column.bytes("1.5", b','), Ok(Some(1_500_000)));
        assert_eq!(column.bytes("1,5", b';'), Ok(Some(1_500_000)));
        assert_eq!(column.bytes("2e3", b','), Ok(Some(2_000_000_000)));
        assert_eq!(column.bytes("512 MiB", b','), Ok(Some(512 << 20)));
        assert_eq!(column.bytes("NaN", b','), Ok(None));
        assert_eq!(column.bytes("-1", b','), Err("is negative"));
        assert_eq!(column.bytes("many", b','), Err("is no number"));
    }
}
