//! Rows that all readers of text produce: cells with the index of their column, and the line they are from.

use super::options::TableError;
use crate::findings::UnitSource;

/// Cap on the columns of a trace; further ones are ignored.
pub const COLUMNS_MAX: usize = 256;

/// Row of a table, a log or JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Line of the file, from 1.
    pub line: u64,
    /// True if it is the first of another process.
    pub restart: bool,
    /// Column and text of each cell.
    pub cells: Vec<(usize, String)>,
}

impl Row {
    /// Text of the cell of a column; empty where the row has none.
    pub fn get(&self, column: usize) -> &str {
        self.cells.iter().find(|(at, _)| *at == column).map_or("", |(_, text)| text)
    }

    /// Returns whether there is a cell of this column.
    pub fn has(&self, column: usize) -> bool {
        self.cells.iter().any(|(at, _)| *at == column)
    }
}

/// Facts about the rows of a table, of whatever form.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Names of the columns found so far; more may follow in a log.
    pub names: Vec<String>,
    /// Name of the form.
    pub form: &'static str,
    /// Column of the times that are printed between the rows.
    pub clock: Option<usize>,
    /// True if semicolons separate cells, as where decimals have commas.
    pub semicolons: bool,
    /// True if a table has no header.
    pub is_headless: bool,
    /// True if its names are words of a text, few of them of memory.
    pub is_log: bool,
    /// Bytes of the unit of numbers without one.
    pub unit: Option<(f64, UnitSource)>,
    pub misfits: Misfits,
}

impl Facts {
    /// Index of the column of this name; `None` beyond [`COLUMNS_MAX`].
    pub fn column(&mut self, name: &str) -> Option<usize> {
        let next = self.names.len();
        self.names.iter().position(|one| one == name).or_else(|| {
            (next < COLUMNS_MAX).then(|| self.names.push(name.to_owned()))?;
            Some(next)
        })
    }
}

/// Reader of rows.
pub trait Rows {
    /// Reads the next row into `row`; `false` at the end.
    fn next_row(&mut self, row: &mut Row) -> Result<bool, TableError>;

    fn facts(&self) -> &Facts;
}

/// Rows that were left out, and the number of all others.
#[derive(Clone, Debug, Default)]
pub struct Misfits {
    pub rows: u64,
    count: u64,
    first: Option<(u64, String)>,
}

impl Misfits {
    pub fn add(&mut self, line: u64, message: impl FnOnce() -> String) {
        self.count += 1;
        self.first.get_or_insert_with(|| (line, message()));
    }

    /// Error where more than one row of twenty does not fit.
    pub fn check(&self) -> Result<(), TableError> {
        match &self.first {
            Some((line, message)) if self.count * 20 > self.rows => Err(TableError::at(*line, message)),
            _ => Ok(()),
        }
    }

    pub fn note(&self) -> Option<String> {
        let (line, message) = self.first.as_ref()?;
        let rows = if self.count == 1 { "row is" } else { "rows are" };
        Some(format!("{} {rows} left out; the first is line {line}: {message}", self.count))
    }
}
