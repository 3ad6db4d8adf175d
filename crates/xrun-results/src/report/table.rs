//! Tables for a terminal and for a page, from the same cells.

use maud::{Markup, html};

use super::page::document::code;
use super::width;

/// Table. A column whose title begins with `>` is right-aligned.
#[derive(Clone, Debug)]
pub struct Table {
    /// Titles of the columns.
    pub header: Vec<String>,
    /// Cells of each row.
    pub rows: Vec<Vec<String>>,
}

/// Values by key, in the order in which the keys occur.
pub fn grouped<K: PartialEq, T>(all: impl Iterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for (key, value) in all {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// Each value once, in the order in which they occur.
pub fn distinct<K: PartialEq>(all: impl Iterator<Item = K>) -> Vec<K> {
    grouped(all.map(|key| (key, ()))).into_iter().map(|(key, _)| key).collect()
}

impl Table {
    /// Table without the columns that are empty in all rows.
    pub fn new(header: &[&str], rows: Vec<Vec<String>>) -> Self {
        let used: Vec<usize> = (0..header.len()).filter(|&at| rows.iter().any(|row| !row[at].is_empty())).collect();
        let kept = |row: Vec<String>| used.iter().map(|&at| row[at].clone()).collect();
        Self {
            header: used.iter().map(|&at| header[at].to_owned()).collect(),
            rows: rows.into_iter().map(kept).collect(),
        }
    }

    fn titles(&self) -> Vec<&str> {
        self.header.iter().map(String::as_str).collect()
    }

    /// Text with all columns, as [`width::table`].
    pub fn text(&self, width: Option<usize>) -> String {
        width::table(&self.titles(), &self.rows, width)
    }

    /// Text without some columns of `optional` where it would be too wide, as [`width::columns_within`].
    pub fn text_within(&self, width: Option<usize>, optional: &[&str]) -> String {
        width::columns_within(&self.titles(), &self.rows, width, optional)
    }

    /// HTML. Backticks mark code.
    pub fn html(&self) -> Markup {
        let right = |at: usize| self.header[at].starts_with('>');
        html! {
            @if !self.rows.is_empty() {
                div.wide { table {
                    thead { tr { @for (at, title) in self.header.iter().enumerate() {
                        th.r[right(at)] { (title.trim_start_matches('>')) }
                    } } }
                    tbody { @for row in &self.rows { tr { @for (at, cell) in row.iter().enumerate() {
                        td.r[right(at)] { (code(cell)) }
                    } } } }
                } }
            }
        }
    }
}
