//! How is a planned task trained, stopped, saved and continued?

pub mod begin;
pub mod checkpoint;
pub mod cleanup;
pub mod clock;
pub mod directory;
pub mod early_stopping;
pub mod evaluate;
pub mod fingerprint;
mod git;
pub mod hooks;
pub mod initial_weights;
pub(crate) mod killed;
pub mod launch;
pub mod limits;
pub mod manifest;
pub mod norms;
pub mod observer;
pub mod pictures;
pub mod post_mortem;
pub mod prepare;
pub mod recorder;
pub(crate) mod remove;
pub mod reproduce;
pub mod resume;
pub mod schedule;
pub mod session;
pub mod start;
pub mod stop;
pub mod train;

use crate::panics::Panic;
use crate::results::write::WriteError;
use crate::task::TaskError;

/// Why a run could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The device's own thread failed in a call that nobody waited for.
    #[error("{0}")]
    Device(Panic),
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error(
        "the checkpoint of step {step} cannot be written: {source}; if the disk is full, free some space, then resume the run"
    )]
    Checkpoint { step: u64, source: TaskError },
    #[error(transparent)]
    Write(#[from] WriteError),
}
