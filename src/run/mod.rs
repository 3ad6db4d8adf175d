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
pub mod predict;
pub mod prepare;
pub mod recorder;
pub(crate) mod remove;
pub mod reproduce;
pub mod resume;
pub mod schedule;
pub mod session;
pub mod stop;
pub mod train;
pub mod trust;

use crate::files::write::WriteError;
use crate::panics::Panic;
use crate::task::TaskError;

/// Why a run could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The device's own thread failed in a call that nobody waited for.
    #[error("{0}")]
    Device(Panic),
    /// The task failed in a step, a validation, or while it was loaded.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The task or the disk failed while a checkpoint was written.
    #[error(
        "the checkpoint of step {step} cannot be written: {source}; if the disk is full, free some space, then resume the run"
    )]
    Checkpoint {
        /// The optimiser steps done.
        step: u64,
        /// What failed.
        source: TaskError,
    },
    /// Another file of the run cannot be written.
    #[error("{}", .0.of_run())]
    Write(#[from] WriteError),
}
