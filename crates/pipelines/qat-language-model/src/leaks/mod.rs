//! Leaks that `[leaks]` can switch on, which run as a callback of the training, and the growth that the forecast expects.

#[cfg(feature = "train")]
pub mod callbacks;

use super::precision::draw;
use super::settings::QatLanguageModel;
use xrun_core::bounded::leak_growth::{GrowthEvent, LeakGrowth};
use xrun_core::experiment::Experiment;
use xrun_core::experiment::leaks::Leak;
use xrun_core::leaks;
use xrun_core::task::TaskFacts;
pub use xrun_training::leaks::{LOSS_NEVER_BACKPROPAGATED, LOSS_WITH_GRAPH};

leaks! {
    /// Ranges of activations of all steps.
    RANGE_HISTORY = "range_history", with_tensors,
        "Keep the ranges of activations as they were at each step (statistics that keep old tensors).";
    /// Quantised weights of each forward pass.
    QUANTISED_WEIGHTS = "quantised_weights", with_tensors, "Keep the quantised weights of each forward pass.";
    /// Tokenised examples of all batches.
    PREPROCESSED_EXAMPLES = "preprocessed_examples", on_host,
        "Keep the tokenised examples of each batch (the whole data set preprocessed).";
    /// Inputs of each block, kept by checkpointing.
    BLOCK_INPUTS = "block_inputs", with_tensors, "Keep the inputs of each block (checkpointing that keeps activations).";
}

/// All leaks of the pipeline.
pub const LEAKS: &[&Leak] = &[
    &LOSS_WITH_GRAPH,
    &LOSS_NEVER_BACKPROPAGATED,
    &RANGE_HISTORY,
    &QUANTISED_WEIGHTS,
    &PREPROCESSED_EXAMPLES,
    &BLOCK_INPUTS,
];

/// Adds the buffers of the leaks that are switched on to the plan. Each keeps something after each micro-batch at each precision.
pub fn plan(facts: &mut TaskFacts, settings: &QatLanguageModel, experiment: &Experiment) {
    let (training, seed) = (&experiment.training, experiment.experiment.seed);
    let micro_batches = training.gradient_accumulation * experiment.batch_size().div_ceil(experiment.limits.batch_size);
    facts.owners.extend(experiment.leaks.planned_buffers(LEAKS, |_| {
        let precisions = draw(settings.policy, settings.weight_bits.len(), seed, 1).len();
        LeakGrowth::with(GrowthEvent::Step, (precisions * micro_batches) as f64)
    }));
}
