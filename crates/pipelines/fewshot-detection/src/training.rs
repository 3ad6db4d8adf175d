//! Training module with the losses of episodes and of triplet batches.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use burn::optim::GradientsParams;
use burn::tensor::Device;
use serde_json::Value;

use super::assignment::{cells, targets};
use super::batch::{DetectionBatch, HostBatch, TripletBatch};
use super::decode::FrameDetection;
use super::loss::{DetectionLoss, centres, detection_loss};
use super::network::DetectorNetwork;
use super::prepare::Prepared;
use super::settings::{FewshotDetection, TripletMining};
use super::step_kind::batches_per_epoch;
use super::validation::Validation;
use super::{leaks, predict};
use xrun_core::experiment::pipeline::Opening;
use xrun_core::task::predict::{PredictRequest, PredictionSink};
use xrun_core::task::{StepReport, TaskError, ValidationReport};
use xrun_data::boxes::frames::FrameStore;
use xrun_data::feed::Prepare;
use xrun_training::nn::backbone::{self, Backbone};
use xrun_training::nn::micro_batches::{DeferredOutputs, MicroBatchExecutor};
use xrun_training::nn::module_task::{Evaluation, ModuleTask, Step};
use xrun_training::nn::pixels::images;
use xrun_training::nn::step::{StepValues, TrainState};
use xrun_training::nn::training_module::TrainingModule;
use xrun_training::nn::{Tensor, opening, triplet_loss};

type Network = DetectorNetwork;

/// Training of a [`DetectorNetwork`].
pub struct FewshotDetectionModule {
    pub(super) settings: FewshotDetection,
    executor: Arc<MicroBatchExecutor>,
    pub(super) validation: Validation,
    store: Arc<FrameStore>,
    /// Cell centres `[1, cells, 4]` on the training device.
    centres: Tensor<3>,
    /// Kind of the current step.
    kind: &'static str,
    /// Number of objects without a cell in the run.
    unassigned: u64,
}

/// Loss of query frames.
pub(super) struct QueryLoss {
    /// Terms of the loss.
    pub loss: DetectionLoss,
    /// Number of cells with an object.
    positives: usize,
    /// Number of objects without a cell.
    unassigned: usize,
}

/// Opens the device, creates the network on it and starts the workers.
///
/// # Errors
/// The device fails, or a thread cannot be started.
pub fn open(prepared: Prepared, opening: Opening<'_>) -> Result<ModuleTask<FewshotDetectionModule>, TaskError> {
    let prepare = leaks::data::prepare(prepared.batches.clone(), &opening.experiment.leaks, opening.ledger);
    open_with(prepared, prepare, opening)
}

/// As [`open`], with workers that call `prepare`.
fn open_with(
    prepared: Prepared,
    prepare: Prepare<HostBatch>,
    opening: Opening<'_>,
) -> Result<ModuleTask<FewshotDetectionModule>, TaskError> {
    let Opening { experiment, ledger, .. } = opening;
    let batches = batches_per_epoch(&prepared.batches.episodes.library, &prepared.settings);
    let (steps_per_epoch, _) = experiment.training.steps(batches);
    let device = opening::device(opening, experiment.training.activation_checkpointing)?;
    let side = prepared.settings.image_size;
    let pretrained = prepared.backbone.as_ref();
    let pretrained =
        pretrained.map(|of| Backbone::read(&of.architecture, &of.weights, &device.autodiff)).transpose()?;
    let seed = experiment.experiment.seed;
    let network = DetectorNetwork::with_features(&prepared.model, pretrained, side, seed, &device.autodiff);
    let executor = Arc::new(opening::executor(opening, &prepared.buffers.part_gradients)?);
    let feed = opening::feed(opening, &prepared.buffers.feed, prepare)?;
    let module = FewshotDetectionModule {
        centres: centres(&cells(side), &device.autodiff),
        validation: Validation::new(&prepared, experiment, executor.clone(), ledger),
        executor,
        kind: "",
        unassigned: 0,
        store: prepared.store,
        settings: prepared.settings,
    };
    let callbacks = leaks::callbacks::callbacks(steps_per_epoch, &experiment.leaks, ledger);
    Ok(ModuleTask::new(module, network, device, feed, experiment).with_callbacks(callbacks))
}

impl FewshotDetectionModule {
    /// Adds an episode to a step: references, then queries, in micro-batches. Returns the number of objects without a cell.
    fn detection(&self, batch: &DetectionBatch, step: &mut Step<'_, Network>) -> Result<usize, TaskError> {
        step.enter("forward_backward");
        let (network, device) = (step.trained.network()?, &step.device().autodiff);
        let references = self.embedded(network, &batch.reference_pixels, device);
        // Graph from the embeddings of the references to the prototypes; the reference encoder is backpropagated last.
        let rows = references.leaf();
        let prototypes = DetectorNetwork::prototypes(rows.clone(), batch.classes.len());
        let shared = prototypes.clone().detach().require_grad();
        let accumulator = &mut step.accumulator;
        let parts = self.executor.split(batch.queries.len());
        let computed = accumulator.run_micro_batches(network, &self.executor, &parts, |network, range, micro_batch| {
            let QueryLoss { loss, positives, unassigned } =
                self.query_loss(network, batch, range.clone(), device, || micro_batch.leaf(&shared));
            let divisor = positives as f64;
            for (name, term) in ["objectness", "similarity", "box"].into_iter().zip(&loss.0) {
                micro_batch.record(name, term.clone().inner(), divisor);
            }
            micro_batch.divisor += divisor;
            micro_batch.items += range.len() as u64;
            (Some(loss.total()), unassigned)
        });
        if let Some(gradient) = computed.gradient {
            let mut gradients = (prototypes * gradient).sum().backward();
            if let Some(gradient) = rows.grad_remove(&mut gradients) {
                accumulator.backward_outputs(network, &self.executor, references, gradient);
            }
        }
        let each = self.settings.reference_size.pow(2) * 3;
        accumulator.items += (batch.reference_pixels.len() / each) as u64;
        Ok(computed.results.iter().sum())
    }

    /// Computes the loss of the query frames `range` of an episode, given the prototypes `[classes, D]`.
    pub(super) fn query_loss(
        &self,
        network: &Network,
        batch: &DetectionBatch,
        range: Range<usize>,
        device: &Device,
        prototypes: impl FnOnce() -> Tensor<2>,
    ) -> QueryLoss {
        let side = self.settings.image_size;
        let bytes = side * side * 3;
        let dense = network.dense(images(&batch.query_pixels[range.start * bytes..range.end * bytes], side, device));
        let similarity = network.similarity(dense.embeddings.clone(), prototypes());
        let targets = targets(batch.queries[range].iter().map(|query| &*query.truths), side);
        let (positives, unassigned) = (targets.positives, targets.unassigned);
        let loss = detection_loss(&self.settings, dense, similarity, targets, &self.centres);
        QueryLoss { loss, positives, unassigned }
    }

    fn triplets(&self, batch: &TripletBatch, step: &mut Step<'_, Network>) -> Result<(), TaskError> {
        step.enter("forward_backward");
        let network = step.trained.network()?;
        let embedded = self.embedded(network, &batch.pixels, &step.device().autodiff);
        let rows = embedded.leaf();
        let (loss, divisor) = self.triplet_loss(rows.clone(), batch);
        let accumulator = &mut step.accumulator;
        accumulator.divisor += divisor;
        accumulator.record("triplet", loss.clone().inner(), divisor);
        accumulator.items += batch.classes.len() as u64;
        if let Some(gradient) = rows.grad_remove(&mut loss.backward()) {
            accumulator.backward_outputs(network, &self.executor, embedded, gradient);
        }
        Ok(())
    }

    /// Computes the sum of the triplet losses of embeddings `[n, D]`, `[1]`, and its divisor.
    pub(super) fn triplet_loss(&self, rows: Tensor<2>, batch: &TripletBatch) -> (Tensor<1>, f64) {
        let count = batch.classes.len() / 3;
        let margin = self.settings.triplet_margin;
        let loss = match self.settings.triplet_mining {
            TripletMining::BatchHard => triplet_loss::batch_hard(rows, &batch.classes, margin),
            TripletMining::Given => {
                let part = |number: usize| rows.clone().narrow(0, number * count, count);
                triplet_loss::given(part(0), part(1), part(2), margin)
            }
        };
        (loss.sum.mul_scalar(self.settings.triplet_weight as f32), loss.divisor as f64)
    }

    /// Embeddings `[n, D]` of reference images.
    fn embedded(&self, network: &Network, pixels: &[u8], device: &Device) -> DeferredOutputs<Network> {
        let side = self.settings.reference_size;
        let each = side * side * 3;
        let parts = self.executor.split(pixels.len() / each);
        DeferredOutputs::new(network, &self.executor, &parts, |network, range| {
            network.embed(images(&pixels[range.start * each..range.end * each], side, device))
        })
    }
}

impl TrainingModule for FewshotDetectionModule {
    type Batch = HostBatch;
    type Network = Network;
    /// Detections in a query frame.
    type Output = [FrameDetection];
    const MODEL: &'static str = super::MODEL;
    const PREDICTS: bool = true;

    fn train(&mut self, batch: &HostBatch, step: &mut Step<'_, Network>) -> Result<(), TaskError> {
        step.describe(batch.describe());
        match batch {
            HostBatch::Detection(detection) => {
                self.kind = "detection";
                self.unassigned += self.detection(detection, step)? as u64;
                Ok(())
            }
            HostBatch::Triplet(triplet) => {
                self.kind = "triplet";
                self.triplets(triplet, step)
            }
        }
    }

    fn update(
        &mut self,
        learning_rate: f64,
        gradients: GradientsParams,
        trained: &mut TrainState<Network>,
    ) -> Result<(), TaskError> {
        backbone::update(learning_rate, gradients, trained, |network| network.backbone.as_ref())
    }

    fn report(&mut self, fetched: StepValues) -> StepReport {
        let divisor = fetched.divisor.max(1.0);
        // Each value is divided before the sum: the other order would change the last bits of the committed results.
        let mut values: Vec<(&'static str, f64)> = Vec::with_capacity(4);
        for number in &fetched.values {
            let value = number.sum / divisor;
            match values.iter_mut().find(|(known, _)| *known == number.name) {
                Some((_, sum)) => *sum += value,
                None => values.push((number.name, value)),
            }
        }
        StepReport {
            kind: self.kind,
            loss: values.iter().map(|(_, value)| value).sum(),
            gradient_norm: fetched.norm,
            values,
            items: fetched.items,
            batch: fetched.batch,
        }
    }

    fn validate(
        &mut self,
        network: &Network,
        evaluation: &mut Evaluation<'_, Self>,
    ) -> Result<ValidationReport, TaskError> {
        self.validation.run(network, evaluation)
    }

    fn set_run_directory(&mut self, run: &Path) {
        self.validation.set_run_directory(run);
    }

    fn evict_caches(&self, low_water: f64) -> u64 {
        self.store.cache.evict_to_fraction(low_water)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let cache = self.store.cache.counters();
        vec![
            ("frame_cache_hits", cache.hits),
            ("frame_cache_misses", cache.misses),
            ("frame_cache_evictions", cache.evictions),
            ("frame_cache_too_large", cache.too_large),
            ("validation_predictions_left_out", self.validation.left_out),
            ("objects_without_a_cell", self.unassigned),
        ]
    }

    fn predict(
        &mut self,
        trained: &TrainState<Network>,
        request: &PredictRequest<'_>,
        sink: &mut dyn PredictionSink,
    ) -> Result<Value, TaskError> {
        predict::predict(&self.validation, &trained.inner()?, &trained.device, request, sink)
    }
}

#[cfg(test)]
#[path = "training_tests.rs"]
mod tests;
