//! Rows that all readers of tables and logs produce: cells with the index of their column, and the line they are from.

use super::TraceError;

/// Cap on the bytes of the first rows, from which the form of all is recognised.
pub const FIRST_ROWS_BYTES_MAX: usize = 1024 * 1024;

/// Row of a table or a log. Its buffers are reused.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Line of the file, from 1.
    pub line: u64,
    text: String,
    /// Column and end in `text` of each cell.
    cells: Vec<(usize, usize)>,
}

impl Row {
    /// Removes all cells.
    pub fn clear(&mut self) {
        self.text.clear();
        self.cells.clear();
    }

    /// Adds a cell.
    pub fn push(&mut self, column: usize, cell: &str) {
        self.text.push_str(cell);
        self.cells.push((column, self.text.len()));
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Bytes of all cells.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Returns whether there is a cell of this column.
    pub fn has(&self, column: usize) -> bool {
        self.cells.iter().any(|(at, _)| *at == column)
    }

    /// Column and text of the cell at this index, in the order of the row.
    pub fn cell(&self, at: usize) -> Option<(usize, &str)> {
        let (column, end) = *self.cells.get(at)?;
        let begin = at.checked_sub(1).map_or(0, |before| self.cells[before].1);
        Some((column, &self.text[begin..end]))
    }

    /// Text of the cell of a column; empty where the row has none.
    pub fn get(&self, column: usize) -> &str {
        // The cells of a table lie at the index of their column.
        let at = match self.cells.get(column) {
            Some((found, _)) if *found == column => Some(column),
            _ => self.cells.iter().position(|(found, _)| *found == column),
        };
        at.and_then(|at| self.cell(at)).map_or("", |(_, text)| text)
    }

    /// Texts of all cells.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|at| self.cell(at)).map(|(_, text)| text)
    }
}

/// Reader of rows.
pub trait Rows {
    /// Reads the next row into `row`; `false` at the end.
    fn next_row(&mut self, row: &mut Row) -> Result<bool, TraceError>;

    /// Names of the columns found so far; more may follow in a log.
    fn names(&self) -> &[String];

    /// Column of the times that are printed between the rows.
    fn clock(&self) -> Option<usize> {
        None
    }

    /// Returns whether semicolons separate cells, as where decimals have commas.
    fn semicolons(&self) -> bool {
        false
    }

    /// Returns whether its names are words of a text, few of them of memory.
    fn is_log(&self) -> bool {
        false
    }

    /// Notes on how the text was read, complete at the end.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
