//! Options and errors of the reader of tables.

use std::fmt;

use super::names::bytes_of;
use super::numbers::{Amount, Numbers};

/// Names of columns of steps, in order of preference; they may have the prefix `train/` or `trainer/`.
pub const STEP_COLUMNS: &[&str] = &["step", "global_step", "step_num", "iteration", "iterations", "iter", "iter_num"];

/// Reason why a trace cannot be judged.
#[derive(Debug)]
pub enum TableError {
    /// The file is missing or cannot be read.
    File(std::io::Error),
    /// The file is no trace, or nothing in it can be judged; with the reason, for people.
    Content(String),
    /// An option does not fit the file.
    Options(String),
}

impl TableError {
    pub(super) fn at(line: u64, message: impl fmt::Display) -> Self {
        Self::Content(format!("line {line}: {message}"))
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(source) => write!(formatter, "cannot be read: {source}"),
            Self::Content(message) | Self::Options(message) => formatter.write_str(message),
        }
    }
}

impl std::error::Error for TableError {}

impl From<std::io::Error> for TableError {
    fn from(error: std::io::Error) -> Self {
        Self::File(error)
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
    /// Memory that is 100 % of columns in percent.
    pub of: Option<String>,
    /// Growth in bytes from which on a column counts as growing; that of [`BYTES`](crate::BYTES) when absent.
    pub growth_min: Option<u64>,
}

impl TableOptions {
    /// Returns whether no option is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Bytes of [`Self::unit`].
    pub(super) fn unit_bytes(&self) -> Result<Option<f64>, TableError> {
        let Some(unit) = &self.unit else { return Ok(None) };
        let units = "use B, KB, MB, GB, TB, KiB, MiB, GiB or TiB";
        let bytes = bytes_of(&unit.to_lowercase());
        bytes.map(Some).ok_or_else(|| TableError::Options(format!("unknown unit `{unit}`; {units}")))
    }

    /// Bytes of [`Self::of`].
    pub(super) fn whole_bytes(&self) -> Result<Option<f64>, TableError> {
        let Some(of) = &self.of else { return Ok(None) };
        match Numbers::default().amount(of, false) {
            Ok(Amount::Bytes(bytes)) if bytes > 0.0 => Ok(Some(bytes)),
            _ => Err(TableError::Options(format!("`--of {of}` is no size; write one with its unit, such as 16GiB"))),
        }
    }
}
