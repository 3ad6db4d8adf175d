//! Planning, forecasting, training, stopping, saving and resuming one experiment.

#![warn(missing_docs)]

mod allocation_window;
pub mod checkpoint;
pub mod child;
pub mod clock;
pub mod demand;
pub mod directory;
pub mod early_stopping;
pub mod evaluate;
pub mod exit;
pub mod fingerprint;
pub mod fork;
pub mod gradient_norms;
pub mod growth;
pub mod host;
pub mod images;
pub mod initial_weights;
pub mod killed;
pub mod ladder;
pub mod launch;
pub mod learning_rate;
pub mod limits;
pub mod manifest;
pub mod memory;
pub mod new_run;
pub mod observer;
pub mod plan;
pub mod post_mortem;
pub mod predict;
pub mod prepare;
pub mod probe;
pub mod recorded_training;
pub mod recorder;
pub mod remove;
pub mod reproduce;
pub mod resume;
pub mod session;
pub mod stop;
pub mod timer;
pub mod trace;
pub mod train;
pub mod weights;

use xrun_core::files::write::WriteError;
use xrun_core::panics::Panic;
use xrun_core::task::TaskError;

/// Reason why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The device's own thread panicked in an asynchronous call.
    #[error("{0}")]
    Device(Panic),
    /// The task failed in a step, a validation, or while it was loaded.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The task or the disk failed while a checkpoint was written.
    #[error(
        "cannot write the checkpoint of step {step}: {source}; if the disk is full, free some space and resume the run"
    )]
    Checkpoint {
        /// Optimiser steps done.
        step: u64,
        /// Error of the task or the disk.
        source: TaskError,
    },
    /// Another file of the run cannot be written.
    #[error("{}", .0.message_for_run())]
    Write(#[from] WriteError),
}

/// Registers the kinds of `xrun-core` for unit tests.
#[cfg(test)]
#[ctor::ctor(unsafe)]
fn register() {
    xrun_core::pipelines::register_kinds();
}

#[cfg(test)]
xrun_core::count_heap!();
