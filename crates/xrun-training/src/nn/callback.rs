//! Callbacks of a training, after Lightning's `Callback`: code that runs with a [`TrainingModule`] without being a part of it.

use burn::optim::GradientsParams;

use super::step::TrainState;
use super::training_module::TrainingModule;
use xrun_core::task::{StepReport, TaskError};

/// Function that a [`ModuleTask`](super::module_task::ModuleTask) calls on each event. An error ends the run.
pub type Callback<L> =
    Box<dyn FnMut(&Event<'_, L>, &TrainState<<L as TrainingModule>::Network>) -> Result<(), TaskError>>;

/// Event of a training.
pub enum Event<'a, L: TrainingModule> {
    /// Start of a step, from 1.
    StepStart {
        /// Module of the pipeline.
        module: &'a L,
        /// Number of the step.
        step: u64,
    },
    /// End of the backward pass of a batch.
    BatchEnd {
        /// Module of the pipeline.
        module: &'a L,
        /// The batch.
        batch: &'a L::Batch,
        /// Marks the last batch of its step.
        is_last: bool,
    },
    /// Gradients after clipping, before the optimiser's update.
    BeforeUpdate(&'a GradientsParams),
    /// End of a step.
    StepEnd {
        /// Module of the pipeline.
        module: &'a L,
        /// Number of the step.
        step: u64,
        /// Learning rate of the update.
        learning_rate: f64,
        /// Report of the step.
        report: &'a StepReport,
    },
    /// Start of a validation.
    ValidationStart(&'a L),
    /// Intermediate result of a validation.
    ValidationOutput(&'a L::Output),
    /// End of a validation.
    ValidationEnd,
}
