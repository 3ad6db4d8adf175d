//! Training and validation of a classifier: cross-entropy and accuracy.

use std::sync::Arc;

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, TensorData};
use serde_json::Value;

use super::batch::{BatchLoader, ImageBatch};
use super::network::ClassifierNetwork;
use super::predict;
use super::prepare::{Buffers, Features, Prepared};
use xrun_core::bounded::DeepSize;
use xrun_core::bounded::ledger::Registration;
use xrun_core::dataset::sample::HostImage;
use xrun_core::experiment::pipeline::Opening;
use xrun_core::task::confusion::Confusion;
use xrun_core::task::predict::{PredictRequest, PredictionSink};
use xrun_core::task::{TaskError, ValidationReport};
use xrun_core::units::pluralize;
use xrun_data::boxes::frames::FrameStore;
use xrun_training::metrics::running_mean::RunningMean;
use xrun_training::nn::backbone::Backbone;
use xrun_training::nn::captured::{Inputs, Pass};
use xrun_training::nn::micro_batches::MicroBatchSize;
use xrun_training::nn::module_task::{Evaluation, ModuleTask, Step};
use xrun_training::nn::pixels::image_data;
use xrun_training::nn::step::TrainState;
use xrun_training::nn::training_module::TrainingModule;
use xrun_training::nn::{Tensor, opening};

/// Training of a [`ClassifierNetwork`].
pub struct Classifier {
    batches: BatchLoader,
    store: Arc<FrameStore>,
    /// Number of held-out images in a validation.
    validated: usize,
    /// Number of images on the device at once.
    micro_batch_size: MicroBatchSize,
    validation_batch: Registration,
    validation_images: Registration,
    /// Largest number of images of a validation in the report.
    shown: usize,
    /// Ledger entry of the labels.
    _labels: Registration,
}

/// Image of a validation that was taken for one of another class.
struct Misclassified {
    cross_entropy: f64,
    predicted: usize,
    /// Index into [`Labels::held_out`](super::labels::Labels::held_out).
    index: usize,
    image: HostImage,
}

/// Opens the device, creates the network on it and starts the workers.
///
/// # Errors
/// The device fails, or a thread cannot be started.
pub fn open(prepared: Prepared, opening: Opening<'_>) -> Result<ModuleTask<Classifier>, TaskError> {
    let Opening { experiment, ledger, .. } = opening;
    let Prepared { features, batches, store, buffers, validated, registration } = prepared;
    let Buffers { feed, validation_batch, validation_images, .. } = buffers;
    let device = opening::device(opening, experiment.training.activation_checkpointing)?;
    let (classes, seed) = (batches.labels.classes.len(), experiment.experiment.seed);
    let network = match &features {
        Features::ResNet(model) => ClassifierNetwork::new(model, classes, seed, &device.autodiff),
        Features::Backbone(pretrained) => ClassifierNetwork::linear(pretrained, classes, seed, &device.autodiff)?,
    };
    let source = batches.clone();
    let feed = opening::feed(opening, &feed, Arc::new(move |number| source.training_batch(number)))?;
    let classifier = Classifier {
        batches,
        store,
        validated,
        micro_batch_size: MicroBatchSize::new(experiment.limits.batch_size, experiment.batch_size()),
        validation_batch: validation_batch.register(ledger),
        validation_images: validation_images.register(ledger),
        shown: experiment.validation.images,
        _labels: registration,
    };
    Ok(ModuleTask::new(classifier, network, device, feed, experiment))
}

/// Sum over images of the negative log probability of their classes `[n, 1]`, `[1]`.
fn cross_entropy(logits: Tensor<2>, classes: burn::tensor::Tensor<2, Int>) -> Tensor<1> {
    log_softmax(logits, 1).gather(1, classes).sum().neg()
}

impl Classifier {
    /// Logits, `classes` for each image, for pixels `[n, S, S, 3]`.
    fn logits(
        &self,
        network: &ClassifierNetwork,
        pixels: &[u8],
        trained: &TrainState<ClassifierNetwork>,
    ) -> Result<Vec<f32>, TaskError> {
        let inputs = vec![image_data(pixels, self.batches.settings.image_size)];
        let mut forward = |inputs: &mut Inputs<'_>| vec![network.forward(inputs.floats()).reshape([-1])];
        Ok(trained.outputs(Pass::new(inputs), &mut forward)?.pop().unwrap_or_default())
    }

    /// Adds an image to the worst classified ones if it is one of them.
    fn keep_worst(&self, worst: &mut Vec<Misclassified>, one: impl FnOnce() -> Misclassified, cross_entropy: f64) {
        let rank = worst.partition_point(|other| other.cross_entropy >= cross_entropy);
        if rank < self.shown {
            worst.truncate(self.shown - 1);
            worst.insert(rank, one());
            let bytes = worst.iter().map(|one| one.image.deep_size()).sum();
            self.validation_images.set(worst.len() as u64, bytes);
        }
    }

    /// Image for the report, and its caption.
    fn captioned(&self, one: Misclassified) -> (HostImage, String) {
        let (labels, library) = (&self.batches.labels, &self.batches.library);
        let labelled = labels.held_out[one.index];
        let [class, predicted] = [labelled.class as usize, one.predicted].map(|class| &labels.classes[class]);
        let path = labelled.frame(library).path.display();
        (one.image, format!("{class}, taken for {predicted} · {path}"))
    }
}

impl TrainingModule for Classifier {
    type Batch = ImageBatch;
    type Network = ClassifierNetwork;
    type Output = ();
    const STEP: &'static str = "classification";
    const MODEL: &'static str = super::MODELS[0];
    const PREDICTS: bool = true;

    fn captures(&self) -> &'static str {
        super::prepare::CAPTURES
    }

    fn train(&mut self, batch: &ImageBatch, step: &mut Step<'_, ClassifierNetwork>) -> Result<(), TaskError> {
        step.describe(&pluralize(batch.classes.len() as u64, "image"));
        let (size, side) = (self.micro_batch_size.get(), self.batches.settings.image_size);
        for (classes, pixels) in batch.classes.chunks(size).zip(batch.pixels.chunks(size * side.pow(2) * 3)) {
            let count = classes.len();
            let inputs = vec![image_data(pixels, side), TensorData::new(classes.to_vec(), [count, 1])];
            step.micro_batch("cross_entropy", count, inputs, |network, inputs| {
                let logits = network.forward(inputs.floats());
                cross_entropy(logits, inputs.ints())
            })?;
        }
        Ok(())
    }

    fn validate(
        &mut self,
        network: &ClassifierNetwork,
        evaluation: &mut Evaluation<'_, Self>,
    ) -> Result<ValidationReport, TaskError> {
        let (mut correct, mut loss, mut confusion) = (RunningMean::default(), 0.0, Confusion::default());
        let (classes, side) = (&self.batches.labels.classes, self.batches.settings.image_size);
        let mut worst: Vec<Misclassified> = Vec::new();
        let size = self.micro_batch_size.get();
        let batches = self.validated.div_ceil(size) as u64;
        for from in (0..self.validated).step_by(size) {
            let batch = self.batches.held_out(from..(from + size).min(self.validated))?;
            self.validation_batch.set(1, batch.deep_size());
            let logits = self.logits(network, &batch.pixels, evaluation.trained)?;
            let pixels = batch.pixels.chunks(side * side * 3);
            let rows = logits.chunks(classes.len()).zip(pixels);
            for (index, ((row, pixels), class)) in rows.zip(&batch.classes).enumerate() {
                let class = *class as usize;
                let (predicted, cross_entropy) = prediction_and_loss(row, class);
                correct.add(Some(f64::from(u8::from(predicted == class))));
                confusion.add(class, predicted);
                loss += cross_entropy;
                if predicted != class {
                    let image = || HostImage { width: side, height: side, rgb: pixels.into() };
                    let one = || Misclassified { cross_entropy, predicted, index: from + index, image: image() };
                    self.keep_worst(&mut worst, one, cross_entropy);
                }
            }
            evaluation.batch_done((from / size) as u64 + 1, batches);
        }
        self.validation_batch.set(0, 0);
        let metrics = vec![
            ("accuracy".into(), correct.mean()),
            ("largest_class".into(), Some(self.batches.labels.majority_fraction(self.validated))),
            ("cross_entropy".into(), Some(loss / self.validated as f64).filter(|loss| loss.is_finite())),
        ];
        let images = worst.into_iter().map(|one| self.captioned(one)).collect();
        self.validation_images.set(0, 0);
        let intervals = correct.interval().map(|interval| ("accuracy".into(), interval)).into_iter().collect();
        Ok(ValidationReport { metrics, intervals, images, classes: confusion.rows(classes) })
    }

    fn backbone(network: &ClassifierNetwork) -> Option<&Backbone> {
        network.backbone.as_ref()
    }

    fn micro_batch_size(&self) -> Option<&MicroBatchSize> {
        Some(&self.micro_batch_size)
    }

    fn evict_caches(&self, low_water: f64) -> u64 {
        self.store.cache.evict_to_fraction(low_water)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let counters = self.store.cache.counters();
        vec![("frame_cache_hits", counters.hits), ("frame_cache_misses", counters.misses)]
    }

    fn predict(
        &mut self,
        trained: &TrainState<ClassifierNetwork>,
        request: &PredictRequest<'_>,
        sink: &mut dyn PredictionSink,
    ) -> Result<Value, TaskError> {
        let network = trained.inner()?;
        let logits = |pixels: &[u8]| self.logits(&network, pixels, trained);
        predict::predict(&self.batches, request, sink, logits)
    }
}

/// Class with the highest logit, the first of equal ones, and the cross-entropy of `class`.
fn prediction_and_loss(logits: &[f32], class: usize) -> (usize, f64) {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let predicted = logits.iter().position(|logit| *logit == highest).unwrap_or(0);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - highest).exp()).sum();
    (predicted, f64::from(highest) + sum.ln() - f64::from(logits[class]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_training::nn::testing::{autodiff, values};

    /// By hand: the logarithm of e^1 + e^2 + e^3 is 3.407606, that of e^0 + e^0 + e^4 is 4.035976.
    #[test]
    fn loss_and_cross_entropy_match_hand_computed_values() {
        let rows = [[1.0_f32, 2.0, 3.0], [0.0, 0.0, 4.0]];
        let logits = Tensor::<2>::from_floats(rows, &autodiff());
        let classes = burn::tensor::Tensor::from_ints([[1], [0]], &autodiff());
        let loss = values(cross_entropy(logits, classes))[0];
        assert!((loss - (1.407_606 + 4.035_976)).abs() < 1e-5, "{loss}");
        let ((first, one), (second, other)) = (prediction_and_loss(&rows[0], 1), prediction_and_loss(&rows[1], 0));
        assert_eq!((first, second), (2, 2));
        assert!((one - 1.407_606).abs() < 1e-6 && (other - 4.035_976).abs() < 1e-6, "{one} {other}");
    }
}
