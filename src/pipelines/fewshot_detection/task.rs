//! The pipeline as the loop sees it: step, validate, save, load.

use std::path::Path;
use std::sync::Arc;

use burn::module::{AutodiffModule, Module};
use burn::optim::{GradientsAccumulator, GradientsParams};

use super::assignment::{cells, targets};
use super::batch::{DetectionBatch, HostBatch, TripletBatch, batch_bytes_max};
use super::leaks::StepLeaks;
use super::losses::{centres, detection_loss};
use super::mix::batches_per_epoch;
use super::model::ReferenceDetector;
use super::pixels::{fetch, pictures};
use super::prepare::Prepared;
use super::settings::{Settings, TripletMining};
use super::validation::Validation;
use crate::data::feed::{Feed, FeedSettings};
use crate::data::reference_video::frames::FrameStore;
use crate::device::Kind;
use crate::device::dispatch::TensorDevice;
use crate::experiment::Experiment;
use crate::experiment::leaks::Leak;
use crate::experiment::sections::CleanupAction;
use crate::memory::ledger::Ledger;
use crate::nn::optimizer::ModuleOptimizer;
use crate::nn::{Backend, Tensor, checkpoint_weights, gradients, triplet_loss};
use crate::task::{DeviceMemory, Phases, StepReport, Task, TaskError, ValidationReport};

type Network = ReferenceDetector<Backend>;

/// Training of a [`ReferenceDetector`].
pub struct FewshotDetection {
    settings: Settings,
    batch_size: usize,
    accumulation: usize,
    steps_per_epoch: u64,
    clip_norm: Option<f64>,
    cache_low_water: f64,
    device: TensorDevice,
    /// `None` only while the optimiser has it: so weights are not held twice.
    network: Option<Network>,
    /// `None` only while it is loaded.
    optimizer: Option<ModuleOptimizer<Network>>,
    feed: Feed<HostBatch>,
    validation: Validation,
    store: Arc<FrameStore>,
    /// `[1, cells, 4]` on the training device.
    centres: Tensor<3>,
    parameters: u64,
    /// Objects so far that no cell answered for.
    unanswered: u64,
    leaks: StepLeaks,
}

/// Gradients and numbers of a step while it is put together. Losses are sums, and are divided once, by what the whole step
/// counted: so it does not matter how its frames are split into batches and parts.
#[derive(Default)]
struct Gathered {
    gradients: GradientsAccumulator<Network>,
    /// Names and values `[1]` without their graphs; fetched in one transfer at the end.
    parts: Vec<(&'static str, Tensor<1>)>,
    /// Cells with an object, or rows of triplets that are compared.
    counted: usize,
    images: u64,
    kind: &'static str,
    batch: String,
    unanswered: usize,
    /// For the leak that keeps it.
    loss: Option<Tensor<1>>,
}

impl FewshotDetection {
    /// Puts the model on the device and starts the workers at the batch of step `first_step`.
    pub fn open(
        prepared: Prepared,
        experiment: &Experiment,
        kind: Kind,
        ledger: &Ledger,
        first_step: u64,
    ) -> Result<Self, TaskError> {
        let training = &experiment.training;
        let device = TensorDevice::open(kind, training.activation_checkpointing)?;
        let network = ReferenceDetector::new(
            &prepared.model,
            prepared.settings.image_size,
            experiment.experiment.seed,
            &device.autodiff,
        );
        let feed_settings = FeedSettings {
            workers: experiment.limits.workers,
            prefetch: experiment.limits.prefetch,
            first: first_step.saturating_sub(1) * training.accumulation as u64,
            item_bytes_max: batch_bytes_max(&prepared.settings, &experiment.limits),
            leak: experiment.leaks.has(Leak::WorkerQueue).then(|| Leak::WorkerQueue.owner()),
        };
        let batches = prepared.batches.clone();
        let feed = Feed::new(ledger, feed_settings, Arc::new(move |number| batches.prepare(number)))?;
        Ok(Self {
            batch_size: experiment.limits.batch_size,
            accumulation: training.accumulation,
            steps_per_epoch: batches_per_epoch(prepared.library(), &prepared.settings)
                .div_ceil(training.accumulation as u64)
                .max(1),
            clip_norm: training.clip_norm,
            cache_low_water: experiment.cleanup.cache_low_water,
            centres: centres(&cells(prepared.settings.image_size), &device.autodiff),
            parameters: network.num_params() as u64,
            network: Some(network),
            optimizer: Some(ModuleOptimizer::new(&experiment.optimizer)),
            validation: Validation::new(&prepared, experiment, ledger),
            unanswered: 0,
            leaks: StepLeaks::new(&experiment.leaks, ledger),
            store: prepared.store,
            settings: prepared.settings,
            device,
            feed,
        })
    }

    fn network(&self) -> Result<&Network, TaskError> {
        self.network.as_ref().ok_or_else(TaskError::model_lost)
    }

    /// One episode: references, then queries in parts of at most `limits.batch_size`.
    fn detection(
        &self,
        batch: &DetectionBatch,
        gathered: &mut Gathered,
        phases: &mut dyn Phases,
    ) -> Result<(), TaskError> {
        let network = self.network()?;
        let (side, device) = (self.settings.image_size, &self.device.autodiff);
        let picture_bytes = side * side * 3;
        let mut from = 0;
        for pixels in batch.query_pixels.chunks(self.batch_size * picture_bytes) {
            phases.enter("forward");
            let to = from + pixels.len() / picture_bytes;
            // Once for each part: the parts together must not hold more than one of them.
            let references = pictures(&batch.reference_pixels, self.settings.reference_size, device);
            let prototypes = ReferenceDetector::prototypes(network.embed(references), batch.classes.len());
            let dense = network.dense(pictures(pixels, side, device));
            let similarity = network.similarity(dense.embeddings.clone(), prototypes);
            let targets = targets(batch.queries[from..to].iter().map(|query| &*query.truths), side);
            gathered.counted += targets.positives;
            gathered.unanswered += targets.unanswered;
            let loss = detection_loss(&self.settings, dense, similarity, targets, &self.centres);
            for (name, part) in ["objectness", "similarity", "box"].into_iter().zip(loss.parts()) {
                gathered.parts.push((name, part));
            }
            gathered.images += (to - from) as u64;
            self.backward(loss.total(), gathered, phases)?;
            from = to;
        }
        gathered.images += (batch.reference_pixels.len() / (self.settings.reference_size.pow(2) * 3)) as u64;
        Ok(())
    }

    fn triplets(
        &self,
        batch: &TripletBatch,
        gathered: &mut Gathered,
        phases: &mut dyn Phases,
    ) -> Result<(), TaskError> {
        phases.enter("forward");
        let network = self.network()?;
        let embeddings = network.embed(pictures(&batch.pixels, self.settings.reference_size, &self.device.autodiff));
        let count = batch.classes.len() / 3;
        let margin = self.settings.triplet_margin;
        let loss = match self.settings.triplet_mining {
            TripletMining::BatchHard => triplet_loss::batch_hard(embeddings, &batch.classes, margin),
            TripletMining::Given => {
                let part = |number: usize| embeddings.clone().narrow(0, number * count, count);
                triplet_loss::given(part(0), part(1), part(2), margin)
            }
        };
        gathered.counted += loss.counted;
        let loss = loss.sum.mul_scalar(self.settings.triplet_weight as f32);
        gathered.parts.push(("triplet", loss.clone().inner()));
        gathered.images += batch.classes.len() as u64;
        self.backward(loss, gathered, phases)
    }

    /// Adds the gradients of one part of one batch; its graph is gone afterwards.
    fn backward(&self, loss: Tensor<1>, gathered: &mut Gathered, phases: &mut dyn Phases) -> Result<(), TaskError> {
        phases.enter("backward");
        gathered.loss = self.leaks.keeps_losses().then(|| loss.clone());
        let network = self.network()?;
        let gradients = GradientsParams::from_grads(loss.backward(), network);
        gathered.gradients.accumulate(network, gradients);
        Ok(())
    }
}

impl Task for FewshotDetection {
    fn train_step(&mut self, step: u64, learning_rate: f64, phases: &mut dyn Phases) -> Result<StepReport, TaskError> {
        let mut gathered = Gathered::default();
        if step.is_multiple_of(self.steps_per_epoch) {
            self.leaks.epoch(&self.settings, &self.device)?;
        }
        for _ in 0..self.accumulation {
            phases.enter("data");
            let batch = self.feed.next()?;
            match gathered.batch.is_empty() {
                true => gathered.batch = batch.describe().to_owned(),
                // The names of all would be as long as the step is large.
                false if !gathered.batch.ends_with('…') => gathered.batch += " and those after it …",
                false => {}
            }
            match &*batch {
                HostBatch::Detection(detection) => {
                    gathered.kind = "detection";
                    self.detection(detection, &mut gathered, phases)?;
                    let network = self.network.as_ref().ok_or_else(TaskError::model_lost)?;
                    self.leaks.batch(network, detection, &self.settings, &self.device);
                }
                HostBatch::Triplet(triplet) => {
                    gathered.kind = "triplet";
                    self.triplets(triplet, &mut gathered, phases)?;
                }
            }
        }
        self.leaks.loss(gathered.loss.take(), &self.device);
        phases.enter("optimizer");
        let network = self.network.take().ok_or_else(TaskError::model_lost)?;
        let counted = gathered.counted.max(1) as f64;
        let (gradients, norm) = gradients::mean_and_clip(&network, gathered.gradients.grads(), counted, self.clip_norm);
        self.leaks.gradients(&network, &gradients, &self.device);
        let optimizer = self.optimizer.as_mut().ok_or_else(TaskError::model_lost)?;
        self.network = Some(optimizer.step(learning_rate, network, gradients));
        phases.enter("transfer");
        let mut tensors: Vec<Tensor<1>> = gathered.parts.iter().map(|(_, value)| value.clone()).collect();
        tensors.extend(norm.clone());
        let mut numbers =
            fetch(tensors).into_iter().map(|values| f64::from(values.first().copied().unwrap_or(f32::NAN)));
        let mut values: Vec<(&'static str, f64)> = Vec::with_capacity(4);
        for (name, _) in &gathered.parts {
            let value = numbers.next().unwrap_or(f64::NAN) / counted;
            match values.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += value,
                None => values.push((name, value)),
            }
        }
        self.unanswered += gathered.unanswered as u64;
        self.leaks.said(|| format!("step {step}: {} {values:?}; {}", gathered.kind, gathered.batch));
        Ok(StepReport {
            kind: gathered.kind,
            loss: values.iter().map(|(_, value)| value).sum(),
            gradient_norm: norm.and_then(|_| numbers.next()),
            values,
            items: gathered.images,
            batch: gathered.batch,
        })
    }

    fn leave_files_in(&mut self, run: &Path) {
        self.validation.leave_files_in(run);
    }

    fn validate(&mut self, phases: &mut dyn Phases) -> Result<ValidationReport, TaskError> {
        let (network, leaks) = (self.network.as_ref().ok_or_else(TaskError::model_lost)?, &mut self.leaks);
        let batch = || self.validation.first_batch();
        leaks.validation(network, batch, &self.settings, &self.device)?;
        // The plain model shares its weights with the trained one; it builds no graph.
        let plain = self.network()?.valid();
        self.validation.run(&plain, &self.device, phases)
    }

    fn save(&mut self, directory: &Path) -> Result<(), TaskError> {
        checkpoint_weights::save(&self.network()?.valid(), "reference-detector", directory)?;
        self.optimizer.as_ref().ok_or_else(TaskError::model_lost)?.save(directory)
    }

    fn load(&mut self, directory: &Path) -> Result<(), TaskError> {
        checkpoint_weights::load(self.network.as_mut().ok_or_else(TaskError::model_lost)?, directory)?;
        let optimizer = self.optimizer.take().ok_or_else(TaskError::model_lost)?;
        self.optimizer = Some(optimizer.load(directory, &self.device.plain)?);
        Ok(())
    }

    fn clean(&mut self, action: CleanupAction) -> u64 {
        match action {
            CleanupAction::Caches => self.store.evict_to_share(self.cache_low_water),
            CleanupAction::DevicePool => self.device.clean_pool(),
            // Gradients never outlive their step here; the heap is the loop's.
            CleanupAction::Gradients | CleanupAction::Heap => 0,
        }
    }

    fn synchronise(&mut self) -> Result<(), TaskError> {
        self.device.synchronise()
    }

    fn device_memory(&mut self) -> Option<DeviceMemory> {
        self.device.memory()
    }

    fn parameters(&self) -> u64 {
        self.parameters
    }

    fn device_name(&self) -> String {
        self.device.name()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let cache = self.store.counters();
        vec![
            ("frame_cache_hits", cache.hits),
            ("frame_cache_misses", cache.misses),
            ("frame_cache_evictions", cache.evictions),
            ("frame_cache_too_large", cache.too_large),
            ("validation_predictions_left_out", self.validation.left_out),
            ("objects_without_a_cell", self.unanswered),
        ]
    }
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
