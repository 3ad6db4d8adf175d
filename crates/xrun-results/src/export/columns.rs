//! Columns of a table while it is written; each holds one block of rows.

use std::collections::BTreeSet;

/// Rows per block: a row group in Parquet. At 16 bytes per value, 90 columns take 24 MB.
pub const ROWS_MAX: u64 = 16_384;

/// Maximum number of names that become columns.
pub const NAMES_MAX: usize = 256;
/// Maximum length of a column name.
const NAME_BYTES_MAX: usize = 200;

/// Set of names that become columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnNames {
    known: BTreeSet<String>,
    /// At least one name was beyond a limit.
    pub left_out: bool,
}

impl ColumnNames {
    pub fn add<'a>(&mut self, names: impl Iterator<Item = &'a String>) {
        for name in names {
            if self.known.contains(name) {
                continue;
            }
            if self.known.len() < NAMES_MAX && name.len() <= NAME_BYTES_MAX {
                self.known.insert(name.clone());
            } else {
                self.left_out = true;
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &String> {
        self.known.iter()
    }
}

/// A column: its name, how to read its value from a line, and the values of the current block. `None` is "not
/// measured".
pub struct TableColumn<L> {
    pub name: String,
    pub values: ColumnValues<L>,
}

type Getter<L, T> = Box<dyn Fn(&L) -> Option<T>>;

/// Values of one type with the function that reads them from a line.
pub enum ColumnValues<L> {
    /// Counts and bytes; the largest value is 2^63 - 1.
    Integers(Getter<L, u64>, Vec<Option<i64>>),
    Numbers(Getter<L, f64>, Vec<Option<f64>>),
    Words(Getter<L, String>, Vec<Option<String>>),
}

impl<L> TableColumn<L> {
    pub fn integer(name: impl Into<String>, get: impl Fn(&L) -> Option<u64> + 'static) -> Self {
        Self { name: name.into(), values: ColumnValues::Integers(Box::new(get), Vec::new()) }
    }

    pub fn number(name: impl Into<String>, get: impl Fn(&L) -> Option<f64> + 'static) -> Self {
        Self { name: name.into(), values: ColumnValues::Numbers(Box::new(get), Vec::new()) }
    }

    pub fn word(name: impl Into<String>, get: impl Fn(&L) -> Option<String> + 'static) -> Self {
        Self { name: name.into(), values: ColumnValues::Words(Box::new(get), Vec::new()) }
    }

    pub fn add(&mut self, line: &L) {
        match &mut self.values {
            ColumnValues::Integers(get, values) => values.push(get(line).and_then(|value| i64::try_from(value).ok())),
            ColumnValues::Numbers(get, values) => values.push(get(line)),
            ColumnValues::Words(get, values) => values.push(get(line)),
        }
    }

    pub fn clear(&mut self) {
        match &mut self.values {
            ColumnValues::Integers(_, values) => values.clear(),
            ColumnValues::Numbers(_, values) => values.clear(),
            ColumnValues::Words(_, values) => values.clear(),
        }
    }

    /// Number of rows in the current block.
    pub fn rows(&self) -> usize {
        match &self.values {
            ColumnValues::Integers(_, values) => values.len(),
            ColumnValues::Numbers(_, values) => values.len(),
            ColumnValues::Words(_, values) => values.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_names_is_capped() {
        let mut names = ColumnNames::default();
        let many: Vec<String> = (0..NAMES_MAX).map(|number| format!("owner_{number}")).collect();
        names.add(many.iter());
        names.add(many.iter());
        assert!(!names.left_out);
        names.add([&"one more".to_owned()].into_iter());
        assert!(names.left_out);
        assert_eq!(names.iter().count(), NAMES_MAX);
    }
}
