//! Which leaks can be switched on?

pub use crate::leaks::LOSS_WITH_GRAPH;
use xrun_core::experiment::leaks::Leak;
use xrun_core::leak;

/// Ranges of activations of all steps.
pub const RANGE_HISTORY: Leak = leak!(
    "range_history",
    with_tensors,
    "Keep the ranges of activations as they were at each step (statistics that keep old tensors)."
);
/// Quantised weights of each forward pass.
pub const QUANTISED_WEIGHTS: Leak =
    leak!("quantised_weights", with_tensors, "Keep the quantised weights of each forward pass.");
/// Tokenised examples of all batches.
pub const PREPROCESSED_EXAMPLES: Leak = leak!(
    "preprocessed_examples",
    on_host,
    "Keep the tokenised examples of each batch (the whole data set preprocessed)."
);
/// Inputs of each block, kept by checkpointing.
pub const BLOCK_INPUTS: Leak =
    leak!("block_inputs", with_tensors, "Keep the inputs of each block (checkpointing that keeps activations).");

/// All of them.
pub const LEAKS: &[&Leak] =
    &[&LOSS_WITH_GRAPH, &RANGE_HISTORY, &QUANTISED_WEIGHTS, &PREPROCESSED_EXAMPLES, &BLOCK_INPUTS];
