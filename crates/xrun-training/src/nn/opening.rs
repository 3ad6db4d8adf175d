//! Steps of opening a task that all pipelines have: the device, the workers, and the threads of micro-batches.

use super::micro_batches::MicroBatchExecutor;
use crate::backend::dispatch::TensorDevice;
use crate::backend::threads;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::{DeepSize, graphs};
use xrun_core::experiment::pipeline::Opening;
use xrun_core::settings::sections::Waiting;
use xrun_core::task::TaskError;
use xrun_data::feed::{self, Feed, FeedSettings, Prepare};
use xrun_data::micro_batches;

/// Opens the device, with Burn's activation checkpointing or without, and starts the threads of micro-batches.
///
/// # Errors
/// The device fails, or a thread cannot be started.
pub fn device(opening: Opening<'_>, checkpointing: bool) -> Result<TensorDevice, TaskError> {
    // The threads of a GPU's process have hardly any work.
    let waiting = if opening.device.has_pool() { Waiting::Sleep } else { opening.experiment.device.waiting };
    threads::start(micro_batches::threads(&opening.experiment.limits), waiting)?;
    let Opening { experiment, ledger, .. } = opening;
    let mut device = TensorDevice::open(opening.device, checkpointing)?;
    device.graphs = (opening.device.has_pool() && graphs::are_wanted(experiment)).then(|| ledger.clone());
    Ok(device)
}

/// Starts the workers, which call `prepare`, at the batch of the first step.
///
/// # Errors
/// A thread cannot be started.
pub fn feed<B: DeepSize + Send + 'static>(
    opening: Opening<'_>,
    buffers: &feed::Buffers,
    prepare: Prepare<B>,
) -> Result<Feed<B>, TaskError> {
    let Opening { experiment, ledger, first_step, .. } = opening;
    let settings = FeedSettings::new(&experiment.limits, &experiment.training, first_step);
    Ok(Feed::new(ledger, buffers, settings, prepare)?)
}

/// Executor of micro-batches, whose gradients are in a buffer.
///
/// # Errors
/// As [`MicroBatchExecutor::new`].
pub fn executor(opening: Opening<'_>, gradients: &Buffer) -> Result<MicroBatchExecutor, TaskError> {
    MicroBatchExecutor::new(opening.device, &opening.experiment.limits, gradients, opening.ledger)
}
