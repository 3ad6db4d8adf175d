//! Rows of a table, one by one.

use std::cell::Cell;
use std::fs::File;
use std::io::{ErrorKind, Read, Take};
use std::path::Path;
use std::rc::Rc;

use csv::ByteRecord;

use super::TraceError;
use super::text::{FileHead, LINE_BYTES_MAX, Lines, open};

/// Reader of the rows of a table.
pub struct Rows {
    reader: Reader,
    /// Line of the newest row.
    pub line: u64,
    /// True if numbers have a decimal comma, because semicolons separate cells.
    decimal_comma: bool,
}

/// Reader of delimited or of space-separated cells.
enum Reader {
    Separated { reader: Box<csv::Reader<CappedFile>>, left: Rc<Cell<u64>>, record: ByteRecord },
    Spaces(Lines),
}

/// Reader of a file that fails where a row has more bytes than its cap.
struct CappedFile {
    file: Take<File>,
    left: Rc<Cell<u64>>,
}

impl Read for CappedFile {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let Some(left) = self.left.get().checked_sub(into.len() as u64) else {
            let message = "the row is longer than 256 KiB; check for an unclosed quotation mark";
            return Err(std::io::Error::new(ErrorKind::InvalidData, message));
        };
        self.left.set(left);
        self.file.read(into)
    }
}

impl Rows {
    /// Opens a table; its first line decides what separates the cells: tabs, semicolons, commas, or else spaces.
    pub fn open(path: &Path, head: &FileHead) -> Result<Self, TraceError> {
        let first = head.lines().next().unwrap_or_default();
        let count = |delimiter: char| first.matches(delimiter).count();
        let delimiter = ['\t', ';', ','].into_iter().max_by_key(|delimiter| count(*delimiter)).unwrap_or(',');
        // `memory.used [MiB]` is one name.
        let words = || first.split_whitespace();
        if count(delimiter) == 0 && words().count() > 1 && !words().any(|word| word.starts_with(['[', '('])) {
            return Ok(Self { reader: Reader::Spaces(Lines::open(path, head)?), line: 0, decimal_comma: false });
        }
        let left = Rc::new(Cell::new(LINE_BYTES_MAX));
        let capped = CappedFile { file: open(path)?.take(head.length), left: left.clone() };
        let mut builder = csv::ReaderBuilder::new();
        let reader = builder.has_headers(false).flexible(true).delimiter(delimiter as u8).from_reader(capped);
        let reader = Reader::Separated { reader: Box::new(reader), left, record: ByteRecord::new() };
        Ok(Self { reader, line: 0, decimal_comma: delimiter == ';' })
    }

    /// Reads the next row into `cells`; `false` at the end.
    pub fn next_row(&mut self, cells: &mut Vec<String>) -> Result<bool, TraceError> {
        cells.clear();
        match &mut self.reader {
            Reader::Separated { reader, left, record } => {
                left.set(LINE_BYTES_MAX);
                match reader.read_byte_record(record) {
                    Ok(false) => return Ok(false),
                    Ok(true) => cells.extend(record.iter().map(|cell| String::from_utf8_lossy(cell).trim().to_owned())),
                    Err(error) => return Err(TraceError::at(self.line + 1, message(error))),
                }
                self.line = record.position().map_or(0, csv::Position::line);
            }
            Reader::Spaces(lines) => {
                let Some(line) = lines.next_line()? else { return Ok(false) };
                cells.extend(line.split_whitespace().map(str::to_owned));
                self.line = lines.number;
            }
        }
        Ok(true)
    }

    /// Parses a number; `None` for a cell with anything else.
    pub fn number(&self, cell: &str) -> Option<f64> {
        match cell.parse() {
            Err(_) if self.decimal_comma => cell.replace(',', ".").parse().ok(),
            parsed => parsed.ok(),
        }
    }

    /// Cell with its decimal comma replaced by a decimal point.
    pub fn with_decimal_point(&self, cell: &str) -> String {
        let comma = self.decimal_comma && !cell.contains(':');
        if comma { cell.replace(',', ".") } else { cell.to_owned() }
    }
}

fn message(error: csv::Error) -> String {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error.to_string(),
        other => format!("{other:?}"),
    }
}
