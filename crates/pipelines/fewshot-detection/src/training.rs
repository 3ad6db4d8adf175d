//! Training module with the losses of episodes and of triplet batches.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::{Device, TensorData};
use serde_json::Value;

use super::assignment::{cells, targets};
use super::batch::{DetectionBatch, HostBatch, TripletBatch};
use super::decode::FrameDetection;
use super::loss::{DetectionLoss, Origins, TARGETS, detection_loss, target_data};
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
use xrun_training::nn::backbone::Backbone;
use xrun_training::nn::captured::{Inputs, Pass};
use xrun_training::nn::micro_batches::{DeferredOutputs, MicroBatchExecutor, MicroBatchSize};
use xrun_training::nn::module_task::{Evaluation, ModuleTask, Step};
use xrun_training::nn::pixels::image_data;
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
    /// Constants of boxes on the training device.
    origins: Origins,
    /// Kind of the current step.
    kind: &'static str,
    /// Number of objects without a cell in the run.
    unassigned: u64,
}

/// Counts of the targets of query frames.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    /// Number of cells with an object.
    positives: usize,
    /// Number of objects without a cell.
    unassigned: usize,
}

impl Counts {
    fn add(&mut self, more: Self) {
        self.positives += more.positives;
        self.unassigned += more.unassigned;
    }
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
    let pretrained = prepared.backbone.as_ref().map(|of| Backbone::read(of, &device.autodiff)).transpose()?;
    let seed = experiment.experiment.seed;
    let fixed = prepared.batches.episodes.fixed_classes();
    let network = DetectorNetwork::with_features(&prepared.model, pretrained, fixed, side, seed, &device.autodiff);
    let executor = Arc::new(opening::executor(opening, &prepared.buffers.part_gradients)?);
    let feed = opening::feed(opening, &prepared.buffers.feed, prepare)?;
    let module = FewshotDetectionModule {
        origins: Origins::new(&cells(side), &device.autodiff),
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
        let (device, ways) = (&step.device().autodiff, batch.classes.len());
        let references = self.references(&batch.reference_pixels);
        let queries = self.executor.split(batch.queries.len());
        let mut counts = Counts::default();
        let mut inputs = Vec::new();
        if step.is_captured() {
            inputs.extend(references.iter().map(|range| self.reference_data(&batch.reference_pixels, range.clone())));
            for range in &queries {
                let (data, more) = self.query_data(batch, range.clone());
                counts.add(more);
                inputs.extend(data);
            }
        }
        let pass = Pass { inputs, ..Pass::default() };
        let mut computed_counts = Counts::default();
        step.pass(pass, |network, inputs, accumulator, _| {
            let part = |range: &Range<usize>, inputs| (range.clone(), inputs);
            let references: Vec<_> = references.iter().map(|range| part(range, inputs.part(1))).collect();
            let queries: Vec<_> = queries.iter().map(|range| part(range, inputs.part(1 + TARGETS))).collect();
            let embed = |network: &Network, (range, inputs): &(Range<usize>, Option<Inputs<'_>>)| {
                let data = || vec![self.reference_data(&batch.reference_pixels, range.clone())];
                network.embed(inputs.clone().unwrap_or_else(|| Inputs::on_host(data(), device)).floats())
            };
            // Graph from the embeddings of the references to the prototypes; the reference encoder is backpropagated last.
            let referenced = (!references.is_empty()).then(|| {
                let references = DeferredOutputs::new(network, &self.executor, &references, embed);
                let rows = references.leaf();
                let prototypes = DetectorNetwork::prototypes(rows.clone(), ways);
                (references, rows, prototypes)
            });
            let shared = referenced.as_ref().map(|(.., prototypes)| prototypes.clone().detach().require_grad());
            let computed =
                accumulator.run_micro_batches(network, &self.executor, &queries, |network, part, micro_batch| {
                    let (range, inputs) = part;
                    let (mut inputs, counts) = match inputs {
                        Some(inputs) => (inputs.clone(), Counts::default()),
                        None => {
                            let (data, counts) = self.query_data(batch, range.clone());
                            (Inputs::on_host(data, device), counts)
                        }
                    };
                    let loss =
                        self.query_loss(network, &mut inputs, shared.as_ref().map(|shared| micro_batch.leaf(shared)));
                    for (name, term) in ["objectness", "similarity", "box"].into_iter().zip(&loss.0) {
                        micro_batch.record(name, term.clone().inner(), counts.positives as f64);
                    }
                    (Some(loss.total()), counts)
                });
            computed.results.into_iter().for_each(|counts| computed_counts.add(counts));
            if let (Some((references, rows, prototypes)), Some(gradient)) = (referenced, computed.gradient) {
                let mut gradients = (prototypes * gradient).sum().backward();
                if let Some(gradient) = rows.grad_remove(&mut gradients) {
                    accumulator.backward_outputs(network, &self.executor, references, gradient);
                }
            }
            Ok(())
        })?;
        counts.add(computed_counts);
        let each = self.settings.reference_size.pow(2) * 3;
        step.accumulator.divisor += counts.positives as f64;
        step.accumulator.items += (batch.queries.len() + batch.reference_pixels.len() / each) as u64;
        Ok(counts.unassigned)
    }

    /// Values of the query frames `range` of an episode and of their targets.
    pub(super) fn query_data(&self, batch: &DetectionBatch, range: Range<usize>) -> (Vec<TensorData>, Counts) {
        let side = self.settings.image_size;
        let bytes = side * side * 3;
        let mut data = vec![image_data(&batch.query_pixels[range.start * bytes..range.end * bytes], side)];
        let targets = targets(batch.queries[range.clone()].iter().map(|query| &*query.truths), side);
        let counts = Counts { positives: targets.positives, unassigned: targets.unassigned };
        data.extend(target_data(targets, range.len(), batch.classes.len()));
        (data, counts)
    }

    /// Computes the loss of query frames, the inputs of [`Self::query_data`], given the prototypes `[classes, D]`; those of fixed
    /// classes are the network's.
    pub(super) fn query_loss(
        &self,
        network: &Network,
        inputs: &mut Inputs<'_>,
        prototypes: Option<Tensor<2>>,
    ) -> DetectionLoss {
        let dense = network.dense(inputs.floats());
        let prototypes = prototypes.or_else(|| network.class_prototypes());
        let prototypes = prototypes.unwrap_or_else(|| unreachable!("classes have references, or are fixed"));
        let similarity = network.similarity(dense.embeddings.clone(), prototypes);
        detection_loss(&self.settings, dense, similarity, inputs, &self.origins)
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
        DeferredOutputs::new(network, &self.executor, &self.references(pixels), |network, range| {
            network.embed(Tensor::from_data(self.reference_data(pixels, range.clone()), device))
        })
    }

    /// Micro-batches of reference images.
    fn references(&self, pixels: &[u8]) -> Vec<Range<usize>> {
        self.executor.split(pixels.len() / (self.settings.reference_size.pow(2) * 3))
    }

    fn reference_data(&self, pixels: &[u8], range: Range<usize>) -> TensorData {
        let side = self.settings.reference_size;
        let each = side * side * 3;
        image_data(&pixels[range.start * each..range.end * each], side)
    }
}

impl TrainingModule for FewshotDetectionModule {
    type Batch = HostBatch;
    type Network = Network;
    /// Detections in a query frame.
    type Output = [FrameDetection];
    const MODEL: &'static str = super::MODEL;
    const PREDICTS: bool = true;

    fn captures(&self) -> &'static str {
        super::prepare::CAPTURES
    }

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

    fn backbone(network: &Network) -> Option<&Backbone> {
        network.backbone.as_ref()
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

    fn micro_batch_size(&self) -> Option<&MicroBatchSize> {
        Some(&self.executor.size)
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
        predict::predict(&self.validation, &trained.inner()?, trained, request, sink)
    }
}

#[cfg(test)]
#[path = "training_tests.rs"]
mod tests;
