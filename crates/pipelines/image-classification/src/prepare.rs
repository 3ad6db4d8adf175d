//! Preparation of a run: opens the data and plans the buffers, before a device is used.

use std::sync::Arc;

use super::batch::{BatchLoader, batch_bytes_max};
use super::labels::Labels;
use super::settings::{ImageClassification, ResNet};
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Ledger, Policy, Registration};
use xrun_core::bounded::planned::PlannedBuffer;
use xrun_core::dataset::sample::HostImage;
use xrun_core::experiment::Experiment;
use xrun_core::task::lowered::LoweredSetting;
use xrun_core::task::{HeldOutLoss, Metric, TaskError, TaskFacts};
use xrun_core::units::pluralize;
use xrun_data::boxes::frames::{self, FrameStore};
use xrun_data::boxes::library::Library;
use xrun_data::feed;
use xrun_data::reading::decoding;
use xrun_training::backbone::Pretrained;

/// Validation metrics in the order of display. The first selects the best checkpoint unless the experiment names another.
pub const METRICS: &[Metric] = &[
    Metric::higher("accuracy", "share")
        .within(ACCURACY, "accuracy")
        .baseline("largest_class")
        .about("Fraction of held-out images whose class has the highest score."),
    Metric::constant("largest_class", "share")
        .within(ACCURACY, "largest class")
        .about("Accuracy of always predicting the most frequent class."),
    Metric::lower("cross_entropy", "")
        .held_out_loss(HeldOutLoss::Mean)
        .about("Mean over held-out images of the negative log probability of the class."),
];

const ACCURACY: &str = "Accuracy";

/// Default of `training.batch_size`, in images.
pub const BATCH_SIZE: usize = 32;

/// Caption of the images of a validation, as in [`TaskFacts::images`].
const LEGEND: &str = "The misclassified images with the highest cross-entropy, as the network sees them.";

/// Dependence of a model on its data, as a part of a message.
const LEARNED: &str = "its classes are those of that data";

/// Parts of a step that are captured, as in [`TaskFacts::captures`].
pub const CAPTURES: &str = "a pass for each size of a micro-batch, the update, and validation";
/// Network that the classified features come from.
pub enum Features {
    /// One that is trained from nothing.
    ResNet(ResNet),
    /// A pretrained one.
    Backbone(Box<Pretrained>),
}

/// Opened data and settings of a task.
pub struct Prepared {
    /// Network below the linear layer.
    pub features: Features,
    /// Source of batches.
    pub batches: BatchLoader,
    /// Decoder of images, with a cache.
    pub store: Arc<FrameStore>,
    /// Buffers of the task and its data.
    pub buffers: Buffers,
    /// Number of held-out images in a validation.
    pub validated: usize,
    /// Ledger entry of the labels.
    pub registration: Registration,
}

xrun_core::buffers! {
    /// Buffers of the task and its data.
    pub struct Buffers {
        /// Images.
        pub images: frames::Buffers,
        /// Classes of the images.
        pub labels: Buffer,
        /// Prepared batches.
        pub feed: feed::Buffers,
        /// Current batch of a validation.
        pub validation_batch: Buffer,
        /// Images of the current validation for the report.
        pub validation_images: Buffer,
    }
}

/// Number of images of a batch, and the setting if the data has fewer.
pub fn batch_size(experiment: &Experiment, labels: &Labels) -> (usize, Option<LoweredSetting>) {
    let requested = experiment.batch_size();
    let size = requested.min(labels.train.len());
    let because = format!("the data has {}", pluralize(labels.train.len() as u64, "training image"));
    (size, LoweredSetting::detect("training.batch_size", requested as u64, size as u64, because))
}

/// Opens the data, and registers the frame cache, the index and the labels in the ledger.
///
/// # Errors
/// The data cannot be used.
pub fn prepare(
    settings: &ImageClassification,
    experiment: &Experiment,
    ledger: &Ledger,
) -> Result<(TaskFacts, Prepared), TaskError> {
    let library: Arc<Library> = Arc::new(experiment.open_dataset()?);
    let (limits, seed) = (&experiment.limits, experiment.experiment.seed);
    decoding::fits(library.largest.as_ref(), limits)?;
    let labels = Labels::new(&library, settings.validation_fraction, seed)?;
    let (size, lowered) = batch_size(experiment, &labels);
    let validated = labels.held_out.len().min(experiment.validation.batches.saturating_mul(size));
    let validation_size = limits.batch_size.min(validated);
    let (shown, side) = (experiment.validation.images as u64, settings.image_size);
    let images = Cap { items: shown, bytes: shown * HostImage::bytes(side, side) };
    let cap = Cap { items: 1, bytes: batch_bytes_max(validation_size, settings.image_size) };
    let buffers = Buffers {
        images: frames::Buffers::new(&library, limits, validated as u64),
        labels: labels.buffer(),
        feed: feed::Buffers::new(limits, batch_bytes_max(size, settings.image_size)),
        validation_batch: Buffer::new("validation_batch", Policy::Refuse, cap)
            .key("limits.batch_size")
            .because("`limits.batch_size` images of a validation"),
        validation_images: Buffer::new("validation_images", Policy::Evict, images)
            .key("validation.images")
            .because("`validation.images` that are classified worst, for the report"),
    };
    let features = match Pretrained::of(experiment, settings.image_size)? {
        Some(pretrained) => Features::Backbone(Box::new(pretrained)),
        None => Features::ResNet(experiment.model_settings::<ResNet>()?.clone()),
    };
    let mut notes = vec![format!(
        "{} of {} classes; {} held out, {validated} in each validation",
        pluralize(labels.train.len() as u64, "training image"),
        labels.classes.len(),
        labels.held_out.len(),
    )];
    let mut trained_parameters = None;
    if let Features::Backbone(pretrained) = &features {
        let linear = (pretrained.architecture.pooled_outputs() + 1) * labels.classes.len();
        trained_parameters = Some((pretrained.trained_parameters() + linear) as u64);
        notes.push(pretrained.note(limits.batch_size.min(size), settings.image_size));
    }
    let store = Arc::new(FrameStore::new(&library, ledger, &buffers.images));
    let registration = buffers.labels.register(ledger);
    registration.set(buffers.labels.cap.items, buffers.labels.cap.bytes);
    let facts = TaskFacts {
        owners: PlannedBuffer::all(&[&buffers]),
        data_digests: vec![(experiment.dataset_name().into(), library.digest.clone())],
        data_skipped: library.skipped.clone(),
        captures: CAPTURES,
        learned_from_data: Some(LEARNED),
        lowered: lowered.into_iter().collect(),
        notes,
        trained_parameters,
        batch_items: size as u64,
        batch_keys: &["training.batch_size"],
        images: LEGEND,
        validation_batches: validated.div_ceil(limits.batch_size) as u64,
        ..TaskFacts::new((labels.train.len() as u64).div_ceil(size as u64), METRICS)
    };
    let batches = BatchLoader {
        library,
        labels: Arc::new(labels),
        source: store.clone(),
        settings: settings.clone(),
        size,
        seed,
    };
    Ok((facts, Prepared { features, batches, store, buffers, validated, registration }))
}
