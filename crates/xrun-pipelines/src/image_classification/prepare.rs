//! Facts about the data before anything is on a device, and what the task takes over.

use std::sync::Arc;

use super::batch::{Batches, batch_bytes};
use super::labels::Labels;
use super::settings::{Model, Settings};
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Holding, Ledger, Policy};
use xrun_core::bounded::planned::PlannedOwner;
use xrun_core::experiment::Experiment;
use xrun_core::task::clamped::ClampedSetting;
use xrun_core::task::{Metric, TaskError, TaskFacts};
use xrun_core::units::counted;
use xrun_data::boxes::frames::{self, FrameStore};
use xrun_data::boxes::library::Library;
use xrun_data::feed;
use xrun_data::reading::decoding;

/// Validation metrics, in the order in which they are shown. The first chooses the best checkpoint unless the file names
/// another.
pub const METRICS: &[Metric] = &[
    Metric::higher("accuracy", "share")
        .within(ACCURACY, "accuracy")
        .about("The share of held-out pictures whose class has the highest score of all."),
    Metric::constant("largest_class", "share")
        .within(ACCURACY, "largest class")
        .about("What guessing the most frequent class would give."),
    Metric::lower("cross_entropy", "")
        .about("The mean over held-out pictures of minus the logarithm of the class's probability."),
];

const ACCURACY: &str = "Accuracy";

/// Pictures of a batch where the file does not say how many.
pub const BATCH_SIZE: usize = 32;

/// The tie between a model and its data, in the middle of a sentence.
const LEARNED: &str = "its classes are those of that data";

/// Opened data, and what the task needs of the experiment.
pub struct Prepared {
    /// Settings of the model.
    pub model: Model,
    /// The source of batches.
    pub batches: Batches,
    /// The decoder of pictures, which keeps some.
    pub store: Arc<FrameStore>,
    /// Batches on their way to the trainer.
    pub feed: feed::Buffers,
    /// The batch that a validation is looking at.
    pub validation_batch: Buffer,
    /// Held-out pictures that a validation looks at.
    pub validated: usize,
    /// The labels' place in the ledger.
    pub holding: Holding,
}

/// Opens the data. The frame cache, the index and the labels enter the ledger here.
///
/// # Errors
/// Data that cannot be used.
pub fn prepare(
    settings: &Settings,
    experiment: &Experiment,
    ledger: &Ledger,
) -> Result<(TaskFacts, Prepared), TaskError> {
    let library: Arc<Library> = Arc::new(experiment.open_dataset()?);
    let (limits, seed) = (&experiment.limits, experiment.experiment.seed);
    decoding::fits(library.largest.as_ref(), limits)?;
    let labels = Labels::new(&library, settings.validation_share, seed)?;
    let asked = experiment.training.batch_size.unwrap_or(BATCH_SIZE);
    let size = asked.min(labels.train.len());
    let validated = labels.held_out.len().min(experiment.validation.episodes.saturating_mul(size));
    let of_data = frames::Buffers::new(&library, limits, validated as u64);
    let store = Arc::new(FrameStore::new(&library, ledger, &of_data));
    let of_labels = labels.buffer();
    let holding = of_labels.register(ledger);
    holding.set(of_labels.cap.items, of_labels.cap.bytes);
    let feed = feed::Buffers::new(limits, batch_bytes(size, settings.image_size));
    let part = limits.batch_size.min(validated);
    let cap = Cap { items: 1, bytes: batch_bytes(part, settings.image_size) };
    let validation_batch = Buffer::new("validation_batch", Policy::Refuse, cap)
        .key("limits.batch_size")
        .because("pictures of a validation, `limits.batch_size` of them at once");
    let owners = of_data.all().into_iter().chain([&of_labels]).chain(feed.all()).chain([&validation_batch]);
    let because = format!("the data has {} to train on", counted(labels.train.len() as u64, "picture"));
    let facts = TaskFacts {
        owners: owners.map(PlannedOwner::from).collect(),
        data_digests: vec![(experiment.dataset_name().into(), library.digest.clone())],
        data_left_out: library.left_out.clone(),
        learned_from_data: Some(LEARNED),
        smaller: ClampedSetting::detect("training.batch_size", asked as u64, size as u64, because)
            .into_iter()
            .collect(),
        notes: vec![format!(
            "{} of {} classes to train on; {} held out, {validated} in each validation",
            counted(labels.train.len() as u64, "picture"),
            labels.classes.len(),
            labels.held_out.len(),
        )],
        batch_items: size as u64,
        batch_keys: &["training.batch_size"],
        ..TaskFacts::new((labels.train.len() as u64).div_ceil(size as u64), METRICS)
    };
    let batches =
        Batches { library, labels: Arc::new(labels), source: store.clone(), settings: settings.clone(), size, seed };
    let model: &Model = experiment.model_settings()?;
    Ok((facts, Prepared { model: model.clone(), batches, store, feed, validation_batch, validated, holding }))
}
