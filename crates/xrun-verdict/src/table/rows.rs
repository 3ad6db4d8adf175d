//! Cells of a table, row by row.

use std::cell::Cell;
use std::fs::File;
use std::io::{ErrorKind, Read, Take};
use std::path::Path;
use std::rc::Rc;

use csv::ByteRecord;

use super::Wrong;
use super::text::{Head, LINE_BYTES_MAX, Lines, open};

/// The rows of a file, one at a time.
pub struct Rows {
    reader: Reader,
    /// The line of the newest row.
    pub line: u64,
    /// A comma is a decimal point: semicolons separate.
    decimal_comma: bool,
}

enum Reader {
    Separated { reader: Box<csv::Reader<Capped>>, left: Rc<Cell<u64>>, record: ByteRecord },
    Spaces(Lines),
}

/// Fails where a row has more bytes than it may.
struct Capped {
    file: Take<File>,
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
    /// The rows of a table whose first line tells what separates its cells: tabs, semicolons, commas, or else spaces.
    pub fn open(path: &Path, head: &Head) -> Result<Self, Wrong> {
        let first = head.lines().next().unwrap_or_default();
        let count = |delimiter: char| first.matches(delimiter).count();
        let delimiter = ['\t', ';', ','].into_iter().max_by_key(|delimiter| count(*delimiter)).unwrap_or(',');
        // `memory.used [MiB]` is one name.
        let words = || first.split_whitespace();
        if count(delimiter) == 0 && words().count() > 1 && !words().any(|word| word.starts_with(['[', '('])) {
            return Ok(Self { reader: Reader::Spaces(Lines::open(path, head)?), line: 0, decimal_comma: false });
        }
        let left = Rc::new(Cell::new(LINE_BYTES_MAX));
        let capped = Capped { file: open(path)?.take(head.length), left: left.clone() };
        let mut builder = csv::ReaderBuilder::new();
        let reader = builder.has_headers(false).flexible(true).delimiter(delimiter as u8).from_reader(capped);
        let reader = Reader::Separated { reader: Box::new(reader), left, record: ByteRecord::new() };
        Ok(Self { reader, line: 0, decimal_comma: delimiter == ';' })
    }

    /// Puts the next row in place of the one before; `false` at the end.
    pub fn next_row(&mut self, cells: &mut Vec<String>) -> Result<bool, Wrong> {
        cells.clear();
        match &mut self.reader {
            Reader::Separated { reader, left, record } => {
                left.set(LINE_BYTES_MAX);
                match reader.read_byte_record(record) {
                    Ok(false) => return Ok(false),
                    Ok(true) => cells.extend(record.iter().map(|cell| String::from_utf8_lossy(cell).trim().to_owned())),
                    Err(error) => return Err(Wrong::at(self.line + 1, said(error))),
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

    /// A number; `None` of a cell that holds something else.
    pub fn number(&self, cell: &str) -> Option<f64> {
        match cell.parse() {
            Err(_) if self.decimal_comma => cell.replace(',', ".").parse().ok(),
            parsed => parsed.ok(),
        }
    }

    /// A cell with a decimal point where it has a decimal comma.
    pub fn pointed(&self, cell: &str) -> String {
        let comma = self.decimal_comma && !cell.contains(':');
        if comma { cell.replace(',', ".") } else { cell.to_owned() }
    }
}

fn said(error: csv::Error) -> String {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error.to_string(),
        other => format!("{other:?}"),
    }
}
