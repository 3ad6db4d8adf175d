//! How is a planned task trained, stopped, saved and continued?

pub mod begin;
pub mod checkpoint;
pub mod clock;
pub mod demand;
pub mod early_stopping;
pub mod evaluate;
pub mod fingerprint;
pub mod hooks;
pub mod initial_weights;
pub mod launch;
pub mod limits;
pub mod manifest;
pub mod norms;
pub mod observer;
pub mod pictures;
pub mod plan;
pub mod post_mortem;
pub mod predict;
pub mod prepare;
pub mod probe;
pub mod recorder;
pub mod remove;
pub mod reproduce;
pub mod resume;
pub mod schedule;
pub mod session;
pub mod trace;
pub mod train;

use xrun_core::files::write::WriteError;
use xrun_core::panics::Panic;
use xrun_core::task::TaskError;

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

/// Unit tests know the kinds of `xrun-core`.
#[cfg(test)]
#[ctor::ctor(unsafe)]
fn register() {
    xrun_core::pipelines::kinds().register();
}

#[cfg(test)]
xrun_core::count_heap!();
