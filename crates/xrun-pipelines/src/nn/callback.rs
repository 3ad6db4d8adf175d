//! Callbacks of a training, after Lightning's `Callback`: code that runs with a [`TrainingModule`] without being a part of it.

use burn::optim::GradientsParams;

use super::step::TrainState;
use super::training_module::TrainingModule;
use xrun_core::task::{StepReport, TaskError};

/// Hooks of a [`ModuleTask`](super::module_task::ModuleTask), each empty by default. `()` implements none of them. An error
/// ends the run.
pub trait Callback<L: TrainingModule> {
    /// Runs at the start of a step (from 1).
    fn on_step_start(&mut self, _step: u64, _context: &CallbackContext<'_, L>) -> Result<(), TaskError> {
        Ok(())
    }

    /// Runs after the backward pass of a batch; `is_last` marks the last one of its step.
    fn on_batch_end(
        &mut self,
        _batch: &L::Batch,
        _is_last: bool,
        _context: &CallbackContext<'_, L>,
    ) -> Result<(), TaskError> {
        Ok(())
    }

    /// Runs after clipping, before the optimiser's update.
    fn on_before_update(
        &mut self,
        _gradients: &GradientsParams,
        _context: &CallbackContext<'_, L>,
    ) -> Result<(), TaskError> {
        Ok(())
    }

    /// Runs after a step.
    fn on_step_end(
        &mut self,
        _step: u64,
        _learning_rate: f64,
        _report: &StepReport,
        _context: &CallbackContext<'_, L>,
    ) -> Result<(), TaskError> {
        Ok(())
    }

    /// Runs before a validation.
    fn on_validation_start(&mut self, _context: &CallbackContext<'_, L>) -> Result<(), TaskError> {
        Ok(())
    }

    /// Receives an intermediate result of a validation.
    fn on_validation_output(
        &mut self,
        _output: &L::Output,
        _trained: &TrainState<L::Network>,
    ) -> Result<(), TaskError> {
        Ok(())
    }

    /// Runs after a validation.
    fn on_validation_end(&mut self) {}
}

impl<L: TrainingModule> Callback<L> for () {}

/// State of a task that callbacks can read.
pub struct CallbackContext<'a, L: TrainingModule> {
    /// Module of the pipeline.
    pub module: &'a L,
    /// Network, optimiser and device.
    pub trained: &'a TrainState<L::Network>,
}
