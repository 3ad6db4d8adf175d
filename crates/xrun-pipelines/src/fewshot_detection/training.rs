//! The pipeline as the loop sees it: step, validate, save, load.

use std::path::Path;
use std::sync::Arc;

use burn::module::Module;

use super::assignment::{cells, targets};
use super::batch::{DetectionBatch, HostBatch, TripletBatch};
use super::hoard;
use super::losses::{centres, detection_loss};
use super::mix::batches_per_epoch;
use super::model::ReferenceDetector;
use super::predict;
use super::prepare::Prepared;
use super::settings::{Settings, TripletMining};
use super::step_leaks::StepLeaks;
use super::validation::Validation;
use crate::backend::dispatch::TensorDevice;
use crate::backend::threads;
use crate::nn::pixels::pictures;
use crate::nn::side_by_side::{Outputs, SideBySide};
use crate::nn::step::{Gathered, Trained};
use crate::nn::{Tensor, triplet_loss};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::Kind;
use xrun_core::experiment::Experiment;
use xrun_core::settings::sections::CleanupAction;
use xrun_core::task::predict::{Asked, Predict, Told};
use xrun_core::task::{DeviceMemory, Phases, StepReport, Task, TaskError, ValidationReport};
use xrun_data::boxes::frames::FrameStore;
use xrun_data::feed::{Feed, FeedSettings};
use xrun_data::parts;

type Network = ReferenceDetector;

/// Training of a [`ReferenceDetector`].
pub struct FewshotDetection {
    settings: Settings,
    split: Arc<SideBySide>,
    accumulation: usize,
    steps_per_epoch: u64,
    cache_low_water: f64,
    device: TensorDevice,
    trained: Trained<Network>,
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

/// A step while it is put together, and what is told of it.
struct Step {
    gathered: Gathered<Network>,
    kind: &'static str,
    /// Objects that no cell answers for.
    unanswered: usize,
}

/// Puts the model on the device and starts the workers at the batch of step `first_step`.
///
/// # Errors
/// The device, or a file of weights.
pub fn open(
    prepared: Prepared,
    experiment: &Experiment,
    kind: Kind,
    ledger: &Ledger,
    first_step: u64,
) -> Result<Box<dyn Task>, TaskError> {
    threads::start(parts::threads(&experiment.limits))?;
    Ok(Box::new(FewshotDetection::open(prepared, experiment, kind, ledger, first_step)?))
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
        let split = SideBySide::new(kind, &experiment.limits, &prepared.buffers.part_gradients, ledger)?;
        let split = Arc::new(split);
        let feed_settings = FeedSettings::new(&experiment.limits, training, first_step);
        let prepare = hoard::prepare(prepared.batches.clone(), &experiment.leaks, ledger);
        let feed = Feed::new(ledger, &prepared.buffers.feed, feed_settings, prepare)?;
        Ok(Self {
            accumulation: training.accumulation,
            steps_per_epoch: batches_per_epoch(prepared.library(), &prepared.settings)
                .div_ceil(training.accumulation as u64)
                .max(1),
            cache_low_water: experiment.cleanup.cache_low_water,
            centres: centres(&cells(prepared.settings.image_size), &device.autodiff),
            parameters: network.num_params() as u64,
            trained: Trained::new(network, device.clone(), &experiment.optimizer, training),
            validation: Validation::new(&prepared, experiment, split.clone(), ledger),
            split,
            unanswered: 0,
            leaks: StepLeaks::new(&experiment.leaks, ledger),
            store: prepared.store,
            settings: prepared.settings,
            device,
            feed,
        })
    }

    /// One episode: references, then queries, side by side in parts.
    fn detection(&self, batch: &DetectionBatch, step: &mut Step, phases: &mut dyn Phases) -> Result<(), TaskError> {
        phases.enter("forward_backward");
        let network = self.trained.network()?;
        let (settings, centres, device) = (&self.settings, &self.centres, &self.device.autodiff);
        let (side, reference_side) = (settings.image_size, settings.reference_size);
        let picture_bytes = side * side * 3;
        let references = self.embedded(network, &batch.reference_pixels);
        // The graph from the rows of the references to the prototypes; the one behind the rows is gone back through at the end.
        let rows = references.leaf();
        let prototypes = ReferenceDetector::prototypes(rows.clone(), batch.classes.len());
        let shared = prototypes.clone().detach().require_grad();
        let gathered = &mut step.gathered;
        let parts = self.split.parts(batch.queries.len());
        let computed = gathered.side_by_side(network, &self.split, &parts, |network, range, part| {
            let pixels = &batch.query_pixels[range.start * picture_bytes..range.end * picture_bytes];
            let dense = network.dense(pictures(pixels, side, device));
            let similarity = network.similarity(dense.embeddings.clone(), part.leaf(&shared));
            let targets = targets(batch.queries[range.clone()].iter().map(|query| &*query.truths), side);
            let (counted, unanswered) = (targets.positives as f64, targets.unanswered);
            let loss = detection_loss(settings, dense, similarity, targets, centres);
            for (name, sum) in ["objectness", "similarity", "box"].into_iter().zip(loss.parts()) {
                part.note(name, sum, counted);
            }
            part.count(counted);
            part.went_through(range.len());
            (Some(loss.total()), unanswered)
        });
        step.unanswered += computed.results.iter().sum::<usize>();
        if let Some(gradient) = computed.gradient {
            let mut gradients = (prototypes * gradient).sum().backward();
            if let Some(gradient) = rows.grad_remove(&mut gradients) {
                gathered.back(network, &self.split, references, gradient);
            }
        }
        gathered.items += (batch.reference_pixels.len() / (reference_side.pow(2) * 3)) as u64;
        Ok(())
    }

    fn triplets(&self, batch: &TripletBatch, step: &mut Step, phases: &mut dyn Phases) -> Result<(), TaskError> {
        phases.enter("forward_backward");
        let network = self.trained.network()?;
        let embedded = self.embedded(network, &batch.pixels);
        let rows = embedded.leaf();
        let count = batch.classes.len() / 3;
        let margin = self.settings.triplet_margin;
        let loss = match self.settings.triplet_mining {
            TripletMining::BatchHard => triplet_loss::batch_hard(rows.clone(), &batch.classes, margin),
            TripletMining::Given => {
                let part = |number: usize| rows.clone().narrow(0, number * count, count);
                triplet_loss::given(part(0), part(1), part(2), margin)
            }
        };
        let counted = loss.counted as f64;
        let gathered = &mut step.gathered;
        gathered.count(counted);
        let loss = loss.sum.mul_scalar(self.settings.triplet_weight as f32);
        gathered.note("triplet", loss.clone().inner(), counted);
        gathered.items += batch.classes.len() as u64;
        gathered.keep_loss(&loss);
        if let Some(gradient) = rows.grad_remove(&mut loss.backward()) {
            gathered.back(network, &self.split, embedded, gradient);
        }
        Ok(())
    }

    /// Embeddings `[n, D]` of reference pictures.
    fn embedded(&self, network: &Network, pixels: &[u8]) -> Outputs<Network> {
        let (side, device) = (self.settings.reference_size, &self.device.autodiff);
        let each = side * side * 3;
        let parts = self.split.parts(pixels.len() / each);
        Outputs::new(network, &self.split, &parts, |network, range| {
            network.embed(pictures(&pixels[range.start * each..range.end * each], side, device))
        })
    }
}

impl Task for FewshotDetection {
    fn train_step(
        &mut self,
        number: u64,
        learning_rate: f64,
        phases: &mut dyn Phases,
    ) -> Result<StepReport, TaskError> {
        let mut step =
            Step { gathered: Gathered::new(1).keep_losses(self.leaks.keeps_losses()), kind: "", unanswered: 0 };
        if number.is_multiple_of(self.steps_per_epoch) {
            self.leaks.epoch(&self.settings, &self.device)?;
        }
        for _ in 0..self.accumulation {
            phases.enter("data");
            let batch = self.feed.next()?;
            step.gathered.describe(batch.describe());
            match &*batch {
                HostBatch::Detection(detection) => {
                    step.kind = "detection";
                    self.detection(detection, &mut step, phases)?;
                    self.leaks.batch(self.trained.network()?, detection, &self.settings, &self.device);
                }
                HostBatch::Triplet(triplet) => {
                    step.kind = "triplet";
                    self.triplets(triplet, &mut step, phases)?;
                }
            }
        }
        self.leaks.loss(step.gathered.take_loss(), &self.device);
        phases.enter("optimizer");
        let counted = step.gathered.counted().max(1.0);
        let (gradients, norm) = self.trained.mean_and_clip(&mut step.gathered)?;
        self.leaks.gradients(self.trained.network()?, &gradients, &self.device);
        self.trained.update(learning_rate, gradients)?;
        phases.enter("transfer");
        let fetched = step.gathered.fetch(norm);
        // Each is divided before they are added up: added up first, the last bits of old results would not come out again.
        let mut values: Vec<(&'static str, f64)> = Vec::with_capacity(4);
        for part in &fetched.numbers {
            let value = part.sum / counted;
            match values.iter_mut().find(|(known, _)| *known == part.name) {
                Some((_, sum)) => *sum += value,
                None => values.push((part.name, value)),
            }
        }
        self.unanswered += step.unanswered as u64;
        self.leaks.said(|| format!("step {number}: {} {values:?}; {}", step.kind, fetched.batch));
        Ok(StepReport {
            kind: step.kind,
            loss: values.iter().map(|(_, value)| value).sum(),
            gradient_norm: fetched.norm,
            values,
            items: fetched.items,
            batch: fetched.batch,
        })
    }

    fn leave_files_in(&mut self, run: &Path) {
        self.validation.leave_files_in(run);
    }

    fn validate(&mut self, phases: &mut dyn Phases) -> Result<ValidationReport, TaskError> {
        let batch = || self.validation.first_batch();
        self.leaks.validation(self.trained.network()?, batch, &self.settings, &self.device)?;
        let plain = self.trained.inner()?;
        self.validation.run(&plain, &self.device, phases)
    }

    fn save(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.trained.save("reference-detector", directory)
    }

    fn load(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.trained.load(directory)
    }

    fn start_from(&mut self, weights: &Path) -> Result<(), TaskError> {
        self.trained.start_from(weights)
    }

    fn clean(&mut self, action: CleanupAction) -> u64 {
        match action {
            CleanupAction::Caches => self.store.evict_to_share(self.cache_low_water),
            CleanupAction::DevicePool => self.device.clean_pool(),
            // The heap is the loop's, and gradients go with the step.
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

    fn predictor(&mut self) -> Option<&mut dyn Predict> {
        Some(self)
    }
}

impl Predict for FewshotDetection {
    fn predict(&mut self, asked: &Asked<'_>, told: &mut dyn Told) -> Result<serde_json::Value, TaskError> {
        predict::predict(&self.validation, &self.trained.inner()?, &self.device, asked, told)
    }
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
