//! Interface between a pipeline and [`ModuleTask`](super::module_task::ModuleTask), after Lightning's `LightningModule`.

use std::path::Path;

use burn::optim::GradientsParams;
use burn_store::ModuleSnapshot;
use serde_json::Value;

use super::backbone::Backbone;
use super::gradients;
use super::micro_batches::MicroBatchSize;
use super::module_task::{Evaluation, Step};
use super::step::{StepValues, TrainState};
use xrun_core::bounded::DeepSize;
use xrun_core::task::predict::{PredictRequest, PredictionSink};
use xrun_core::task::{Phases, StepReport, TaskError, ValidationReport};

/// Training of one network: the loss of a batch and the metrics of a validation. Every other hook has a default.
///
/// All hooks are called on the training thread. The hooks of a step come in this order: `before_step`, `gradient_sets`, `train`
/// for each batch, `learning_rate`, `update`, `after_step`, `report`.
pub trait TrainingModule: Sized {
    /// Batch on the host, prepared by a worker of the feed.
    type Batch: DeepSize + Send + 'static;
    /// Network that is trained.
    type Network: ModuleSnapshot;
    /// Intermediate result of a validation that callbacks receive; `()` where there is none.
    type Output: ?Sized;
    /// Name of the model in the file of its weights.
    const MODEL: &'static str;
    /// Kind of every step in the report, for modules that keep the default of [`Self::report`].
    const STEP: &'static str = "training";
    /// True if [`Self::predict`] is implemented.
    const PREDICTS: bool = false;

    /// Parts of [`Self::train`], [`Self::update`] and [`Self::validate`] that may be captured and replayed, and those that may not, as in
    /// [`TaskFacts::captures`](xrun_core::task::TaskFacts::captures); empty if nothing may. [`Step::pass`] has the conditions.
    fn captures(&self) -> &'static str {
        ""
    }

    /// Runs before the first batch of step `number` (from 1) is taken.
    ///
    /// # Errors
    /// The device fails, or the network was lost.
    fn before_step(
        &mut self,
        _number: u64,
        _trained: &mut TrainState<Self::Network>,
        _phases: &mut dyn Phases,
    ) -> Result<(), TaskError> {
        Ok(())
    }

    /// Number of sets of gradients of a step; each is clipped by its own norm.
    fn gradient_sets(&self) -> usize {
        1
    }

    /// Adds the gradients and values of a batch to the step, for example by [`Step::micro_batch`]. Called
    /// `training.gradient_accumulation` times a step.
    ///
    /// # Errors
    /// The device fails, or the network was lost.
    fn train(&mut self, batch: &Self::Batch, step: &mut Step<'_, Self::Network>) -> Result<(), TaskError>;

    /// Learning rate of the update, given that of the schedule.
    fn learning_rate(&mut self, scheduled: f64) -> f64 {
        scheduled
    }

    /// Backbone of the network, if it has one: its learning rate is its own.
    fn backbone(_network: &Self::Network) -> Option<&Backbone> {
        None
    }

    /// Applies the clipped gradients of a step.
    ///
    /// # Errors
    /// As [`TrainState::update`].
    fn update(
        &mut self,
        learning_rate: f64,
        mut gradients: GradientsParams,
        trained: &mut TrainState<Self::Network>,
    ) -> Result<(), TaskError> {
        if let Some(backbone) = Self::backbone(trained.network()?).filter(|backbone| !backbone.frozen) {
            let rate = learning_rate * backbone.learning_rate_factor;
            let own = gradients::take_module(&mut gradients, backbone);
            trained.update(rate, own)?;
        }
        trained.update(learning_rate, gradients)
    }

    /// Runs after the update, when the values of the step are on the host.
    ///
    /// # Errors
    /// The device fails, or the network was lost.
    fn after_step(
        &mut self,
        _trained: &mut TrainState<Self::Network>,
        _phases: &mut dyn Phases,
    ) -> Result<(), TaskError> {
        Ok(())
    }

    /// Makes the report of a step from its values.
    fn report(&mut self, fetched: StepValues) -> StepReport {
        fetched.report(Self::STEP)
    }

    /// Computes the metrics on held-out data, the same each time, at most `limits.batch_size` items on the device at once.
    /// `network` is without autodiff: its inputs belong on the inner device.
    ///
    /// # Errors
    /// The data or the device fails.
    fn validate(
        &mut self,
        network: &Self::Network,
        evaluation: &mut Evaluation<'_, Self>,
    ) -> Result<ValidationReport, TaskError>;

    /// Writes weights and state into an existing empty directory.
    ///
    /// # Errors
    /// A file cannot be written.
    fn save(&mut self, trained: &mut TrainState<Self::Network>, directory: &Path) -> Result<(), TaskError> {
        trained.save(Self::MODEL, directory)
    }

    /// Reads the files that [`Self::save`] wrote.
    ///
    /// # Errors
    /// A file cannot be read or does not fit.
    fn load(&mut self, trained: &mut TrainState<Self::Network>, directory: &Path) -> Result<(), TaskError> {
        trained.load(directory)
    }

    /// Takes the weights of another run's checkpoint, before the first step.
    ///
    /// # Errors
    /// The file cannot be read or does not fit.
    fn load_weights(&mut self, trained: &mut TrainState<Self::Network>, weights: &Path) -> Result<(), TaskError> {
        trained.load_weights(weights)
    }

    /// Answers about files as [`predict`](xrun_core::task::predict) describes. Called only where [`Self::PREDICTS`].
    ///
    /// # Errors
    /// The device or the data of the run fails, or an answer cannot be written.
    fn predict(
        &mut self,
        _trained: &TrainState<Self::Network>,
        _request: &PredictRequest<'_>,
        _sink: &mut dyn PredictionSink,
    ) -> Result<Value, TaskError> {
        Err(TaskError::Rejected("this pipeline does not predict".into()))
    }

    /// Reason why [`Self::predict`] cannot answer a request; `None` where it can.
    fn refuses(&self, request: &PredictRequest<'_>) -> Option<String> {
        request.refused_question()
    }

    /// Receives the directory of the run, before the first step.
    fn set_run_directory(&mut self, _run: &Path) {}

    /// Evicts from the caches of the data until they are down to this fraction of their caps; returns the number of bytes freed.
    fn evict_caches(&self, _low_water: f64) -> u64 {
        0
    }

    /// Size of the micro-batches, for the rung `micro_batch` of `limits.on_pressure`; `None` where a smaller one would change the
    /// training.
    fn micro_batch_size(&self) -> Option<&MicroBatchSize> {
        None
    }

    /// Has backward passes recompute activations, or not, for the rung `activation_checkpointing`; returns `false` where this
    /// cannot change in a run.
    fn set_recompute(&mut self, _recompute: bool) -> bool {
        false
    }

    /// Counts for `summary.json`, at most 64.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Name of the device in the plan and on the screen, given its own name.
    fn device_name(&self, device: String) -> String {
        device
    }
}
