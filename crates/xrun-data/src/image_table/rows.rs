//! Rows of a table in CSV, TSV or JSON lines.

use std::path::Path;

use csv::{ReaderBuilder, StringRecord, Trim};
use serde_json::{Map, Value};

use crate::reading::invalid::InvalidCollector;
use xrun_core::dataset::error::DataError;
use xrun_core::printable;

/// Maximum number of rows.
const ROWS_MAX: usize = 10_000_000;
/// Maximum number of columns.
const COLUMNS_MAX: usize = 4096;

/// Table in memory.
#[derive(Debug, Default)]
pub struct Table {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows with their lines, from 1.
    pub rows: Vec<(u64, Vec<String>)>,
}

impl Table {
    /// Reads the bytes of a table, whose ending says what it is; `path` is for messages.
    ///
    /// # Errors
    /// There is no header, or there are too many rows or columns.
    pub fn read(bytes: &[u8], path: &Path, invalid: &mut InvalidCollector) -> Result<Self, DataError> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let table = match ending {
            "jsonl" => Self::of_json_lines(bytes, path, invalid),
            _ => Self::of_separated(bytes, ending, path, invalid),
        }?;
        let failed = |message| Err(DataError::file(path, message));
        match (table.columns.len(), table.rows.len()) {
            (0 | 1, _) => failed("is no table of labels: it has no two columns".to_owned()),
            (columns, _) if columns > COLUMNS_MAX => failed(format!("has {columns} columns, at most {COLUMNS_MAX}")),
            (_, 0) => failed("has no rows".to_owned()),
            _ => Ok(table),
        }
    }

    fn of_separated(
        bytes: &[u8],
        ending: &str,
        path: &Path,
        invalid: &mut InvalidCollector,
    ) -> Result<Self, DataError> {
        let header = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let count = |separator: u8| header.iter().filter(|byte| **byte == separator).count();
        let separator = match ending {
            "tsv" => b'\t',
            _ => [b';', b'\t', b','].into_iter().max_by_key(|separator| count(*separator)).unwrap_or(b','),
        };
        let mut reader = ReaderBuilder::new().delimiter(separator).flexible(true).trim(Trim::All).from_reader(bytes);
        let failed = |error: csv::Error| DataError::file(path, format!("cannot be read: {error}"));
        let columns: Vec<String> = reader.headers().map_err(failed)?.iter().map(str::to_owned).collect();
        let (mut table, mut record) = (Self { columns, rows: Vec::new() }, StringRecord::new());
        while reader.read_record(&mut record).map_err(failed)? {
            let line = record.position().map_or(0, csv::Position::line);
            match record.len() == table.columns.len() {
                true => table.add(line, record.iter().map(str::to_owned).collect(), path)?,
                false => {
                    let message = format!("has {} columns, the header has {}", record.len(), table.columns.len());
                    invalid.add("wrong_columns", path, format!("line {line}: {message}"));
                }
            }
        }
        Ok(table)
    }

    /// Columns are the keys of the first line.
    fn of_json_lines(bytes: &[u8], path: &Path, invalid: &mut InvalidCollector) -> Result<Self, DataError> {
        let mut table = Self::default();
        for (line, text) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            if text.trim_ascii().is_empty() {
                continue;
            }
            let object: Map<String, Value> = match serde_json::from_slice(text) {
                Ok(object) => object,
                Err(error) => {
                    invalid.add("not_json", path, format!("line {line}: is no JSON object: {error}"));
                    continue;
                }
            };
            if table.columns.is_empty() {
                table.columns = object.keys().cloned().collect();
            }
            let cell = |name: &String| match object.get(name) {
                Some(Value::String(text)) => text.clone(),
                None | Some(Value::Null) => String::new(),
                Some(other) => other.to_string(),
            };
            let cells = table.columns.iter().map(cell).collect();
            table.add(line, cells, path)?;
        }
        Ok(table)
    }

    fn add(&mut self, line: u64, cells: Vec<String>, path: &Path) -> Result<(), DataError> {
        if self.rows.len() >= ROWS_MAX {
            return Err(DataError::file(path, format!("line {line}: more than {ROWS_MAX} rows are not read")));
        }
        self.rows.push((line, cells));
        Ok(())
    }

    /// Names of the columns for a message.
    pub fn named(&self) -> String {
        let names: Vec<String> = self.columns.iter().take(20).map(|name| printable::line(name, 40)).collect();
        names.join(", ")
    }
}
