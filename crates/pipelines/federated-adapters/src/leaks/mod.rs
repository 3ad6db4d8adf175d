//! Leaks that `[leaks]` can switch on, which run as a callback of the training, and the growth that the forecast expects.

#[cfg(feature = "train")]
pub mod callbacks;

use super::prepare::Prepared;
use super::rounds::Rounds;
use super::sizes;
use xrun_core::bounded::leak_growth::{GrowthEvent, LeakGrowth};
use xrun_core::experiment::Experiment;
use xrun_core::experiment::leaks::Leak;
use xrun_core::leaks;
use xrun_core::task::TaskFacts;
pub use xrun_training::leaks::{
    BATCHES_ON_DEVICE, EMBEDDINGS_WITH_GRAPH, GRADIENTS, LOSS_NEVER_BACKPROPAGATED, LOSS_WITH_GRAPH,
    OUTPUTS_WITH_GRAPH, THREAD_POOLS,
};

leaks! {
    /// Clips that are moved to the device when they are first used, and stay there.
    DATASET_ON_DEVICE = "dataset_on_device", with_tensors,
        "Move each clip to the device when it is first used and keep it there: samples, embedding and targets. Ends when all clips have \
         been used.";
    /// Targets of each batch that are kept as tracked tensors.
    TARGETS_WITH_GRAPH = "targets_with_graph", with_tensors,
        "Keep the targets of each batch as tracked tensors that no backward pass reaches.";
    /// Models of nodes and their optimiser's state that outlive the node's turn.
    NODE_MODELS = "node_models", with_tensors, "Keep the model of a node and its optimiser state after its turn.";
    /// Results of all nodes of all rounds on the server.
    ROUND_RESULTS = "round_results", on_host, "Keep the results of all nodes of all rounds on the server.";
    /// Outputs of validations that stay on the device.
    VALIDATION_OUTPUTS = "validation_outputs", with_tensors, "Keep the outputs for all held-out clips on the device, at each validation.";
}

/// All leaks of the pipeline.
pub const LEAKS: &[&Leak] = &[
    &DATASET_ON_DEVICE,
    &BATCHES_ON_DEVICE,
    &OUTPUTS_WITH_GRAPH,
    &EMBEDDINGS_WITH_GRAPH,
    &TARGETS_WITH_GRAPH,
    &GRADIENTS,
    &LOSS_WITH_GRAPH,
    &LOSS_NEVER_BACKPROPAGATED,
    &NODE_MODELS,
    &ROUND_RESULTS,
    &VALIDATION_OUTPUTS,
    &THREAD_POOLS,
];

/// Adds the buffers of the leaks that are switched on to the plan.
pub fn plan(facts: &mut TaskFacts, prepared: &Prepared, experiment: &Experiment) {
    let Prepared { model, rounds, nodes, clip_loader, .. } = prepared;
    let clips = nodes.iter().map(|clips| clips.len() as u64).sum();
    let clip_bytes = sizes::on_device(model, clip_loader.store.samples_of_clip);
    facts.owners.extend(experiment.leaks.planned_buffers(LEAKS, |leak| leak_growth(leak, rounds, clips, clip_bytes)));
}

/// Growth of `leak` over the run. `clips` is the number of training clips, `clip_bytes` the bytes of one on the device with its
/// embedding and targets.
fn leak_growth(leak: &Leak, rounds: &Rounds, clips: u64, clip_bytes: u64) -> LeakGrowth {
    match *leak {
        DATASET_ON_DEVICE => LeakGrowth::Filling { total: clips * clip_bytes, plateau_bytes: clips * clip_bytes },
        OUTPUTS_WITH_GRAPH => LeakGrowth::with(GrowthEvent::Step, rounds.fraction(|position| position.last_pass)),
        EMBEDDINGS_WITH_GRAPH => LeakGrowth::with(GrowthEvent::Step, rounds.fraction(|position| position.first_pass)),
        NODE_MODELS | ROUND_RESULTS => {
            LeakGrowth::with(GrowthEvent::Step, rounds.fraction(|position| position.ends_turn))
        }
        VALIDATION_OUTPUTS => LeakGrowth::with(GrowthEvent::Validation, 1.0),
        THREAD_POOLS => LeakGrowth::with(GrowthEvent::Epoch, 1.0),
        _ => LeakGrowth::with(GrowthEvent::Step, 1.0),
    }
}
