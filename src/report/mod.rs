//! A run directory -> text, JSON, and a page for people.
//!
//! Needs only the directory: also that of a run that goes on, was killed, or came from another machine. Files are
//! streamed; what is kept of them has a cap in [`series`], whatever the length of the run.

pub mod axes;
pub mod base64;
pub mod curves;
pub mod epochs;
pub mod listing;
pub mod material;
pub mod page;
pub mod perfetto;
pub mod plots;
pub mod series;
pub mod summary;
pub mod trace;
pub mod verdict;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::results::layout;
use crate::results::read::ReadError;
use crate::results::write::{self, WriteError};

/// A run could not be shown.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(
        "{} is not the directory of a run: it has neither manifest.json nor summary.json",
        crate::results::printable::line(path, 400)
    )]
    NotARun { path: String },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes `report.html`, `memory_epochs.csv` and `memory.perfetto.json` into the run's directory, each replaced as a whole.
pub fn write(run: &Path) -> Result<(), ReportError> {
    let material = material::gather(run)?;
    write::replace(&run.join(layout::REPORT), page::html(&material).as_bytes())?;
    epochs::write(run)?;
    perfetto::write(run)
}
