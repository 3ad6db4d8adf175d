//! Copies of a run, and its export for other tools.

pub mod keep;
pub mod tensorboard;
pub mod trackers;

use crate::read::ReadError;
use xrun_core::files::write::WriteError;

/// Error of an export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A file of the run is missing or cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}
