//! Leak switches that several pipelines share.

use xrun_core::leaks;

leaks! {
    /// Sum of losses with their graphs.
    LOSS_WITH_GRAPH = "loss_with_graph", with_tensors,
        "Add up the losses with their graphs, after their backward passes (as for a progress line that shows their mean).";
    /// Losses that no backward pass reaches.
    LOSS_NEVER_BACKPROPAGATED = "loss_never_backpropagated", with_tensors,
        "Keep a loss whose graph no backward pass frees, with all activations that it saved.";
    /// Gradients of each step.
    GRADIENTS = "gradients", with_tensors, "Keep the gradients of each step (zeroed and not released).";
    /// Outputs of a forward pass with their graph.
    OUTPUTS_WITH_GRAPH = "outputs_with_graph", with_tensors,
        "Keep outputs of a forward pass with their graph (for example the outputs of an adapter, batch by batch).";
    /// Embeddings of a frozen encoder with their graph.
    EMBEDDINGS_WITH_GRAPH = "embeddings_with_graph", with_tensors,
        "Keep the embeddings of a frozen encoder with their graph (a cache of embeddings that were not detached).";
    /// Input tensors of each batch on the device.
    BATCHES_ON_DEVICE = "batches_on_device", with_tensors,
        "Keep the inputs of each batch as tensors on the device (as a data set that is moved there entirely).";
    /// Memory pools of threads that have ended; GPU only.
    THREAD_POOLS = "thread_pools", with_tensors,
        "Start a thread each epoch that moves a batch to the device and ends: its memory pool stays (burn #4792, in Burn's data loader). \
         No effect on the CPU, which has no pools.";
    /// Outputs of validations with their graph.
    VALIDATION_WITH_GRAPH = "validation_with_graph", with_tensors,
        "Run the validation with autodiff and keep its outputs (a validation that accumulates over the whole set).";
    /// Copies of the data in each worker.
    DATA_PER_WORKER = "data_per_worker", on_host, "Keep a copy of the data that a worker has read in each worker.";
    /// Lines of a log in memory.
    LOG_HISTORY = "log_history", on_host, "Keep a line of text for each step (a logger's history).";
}

/// Expected number of workers that hold a copy of an item after `reads` reads, each by a random worker: a worker holds one unless
/// every read fell to another.
pub fn copies(workers: f64, reads: f64) -> f64 {
    workers * (1.0 - (1.0 - 1.0 / workers).powf(reads))
}
