//! Leaks that more than one pipeline can have.

use xrun_core::experiment::leaks::Leak;
use xrun_core::leak;

/// Losses that are added up with their graphs.
pub const LOSS_WITH_GRAPH: Leak = leak!(
    "loss_with_graph",
    with_tensors,
    "Add up the losses with their graphs (as a progress line that shows their mean does)."
);
/// Gradients of each step that are kept.
pub const GRADIENTS: Leak =
    leak!("gradients", with_tensors, "Keep the gradients of each step (zeroed and not released).");
/// Outputs of a forward pass that are kept with their graph.
pub const OUTPUTS_WITH_GRAPH: Leak = leak!(
    "outputs_with_graph",
    with_tensors,
    "Keep outputs of a forward pass with their graph (such as the outputs of an adapter, batch by batch)."
);
/// What a frozen encoder makes, kept with its graph.
pub const EMBEDDINGS_WITH_GRAPH: Leak = leak!(
    "embeddings_with_graph",
    with_tensors,
    "Keep what a frozen encoder makes with its graph (a cache of embeddings that were not detached)."
);
/// Batches that stay on the device.
pub const BATCHES_ON_DEVICE: Leak = leak!(
    "batches_on_device",
    with_tensors,
    "Keep what goes into each batch as tensors on the device (as a data set that moves there as a whole does)."
);
/// Memory pools of threads that have ended; only a GPU has them.
pub const THREAD_POOLS: Leak = leak!(
    "thread_pools",
    with_tensors,
    "Start a thread each epoch that puts a batch on the device and ends: its memory pool stays (burn #4792, in the loader \
     of Burn). Does nothing on the CPU, which has no pools."
);
/// Outputs of validations that are kept with their graph.
pub const VALIDATION_WITH_GRAPH: Leak = leak!(
    "validation_with_graph",
    with_tensors,
    "Run the validation with autodiff and keep its outputs (validation accumulates over the whole set)."
);
/// Copies of the data in each worker.
pub const DATA_PER_WORKER: Leak =
    leak!("data_per_worker", on_host, "Each worker keeps a copy of the data that it has seen.");
/// Lines of a log that are kept in memory.
pub const LOG_HISTORY: Leak = leak!("log_history", on_host, "Keep a line of text for each step (a logger's history).");

/// Copies that `workers` hold together of something that each keeps once it has met it, after so many looks at it: a worker has
/// met it unless each look fell to another.
pub fn copies(workers: f64, looks: f64) -> f64 {
    workers * (1.0 - (1.0 - 1.0 / workers).powf(looks))
}
