//! Facts of the data for the plan, before anything is on a device. The data is opened once, for the plan and the task.

use std::path::Path;
use std::sync::Arc;

use super::batch::{BatchLoader, BatchShape};
use super::buffers::Buffers;
use super::settings::{VisionLanguage, VisionLanguageModel};
use super::sizes::ParameterCounts;
use super::{leaks, metrics};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::bounded::planned::PlannedBuffer;
use xrun_core::dataset::digest::digest_of_file;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::open_dataset::OpenDataset;
use xrun_core::dataset::split::Split;
use xrun_core::experiment::Experiment;
use xrun_core::task::lowered::LoweredSetting;
use xrun_core::task::{TaskError, TaskFacts};
use xrun_core::units::pluralize;
use xrun_data::image_text::ExampleCounts;
use xrun_data::image_text::library::Library;
use xrun_data::image_text::store::ImageTextStore;
use xrun_data::reading::decoding;
use xrun_training::backbone::Pretrained;
use xrun_training::data_facts::{LEARNED, lowered_validation, lowered_vocabulary};
use xrun_training::metrics::fields::{FIELDS_MAX, compare_answer};

/// Number of held-out answers that are read for the names of fields.
const SAMPLED_ANSWERS: usize = 64;

/// Legend of the images of a validation.
const LEGEND: &str = "Held-out images at the model's resolution, each with its question and the model's free answer. ✓: all \
fields are right and there are no others, or the text equals the truth. ✗: the answer is wrong; wrong \
fields are named, followed by the truth.";

/// Parts of a step that are captured, as in [`TaskFacts::captures`].
pub const CAPTURES: &str =
    "a pass for each eighth of the tokens that may be selected, the update, and each token of an answer";

/// Opened data and settings of the task.
#[derive(Debug)]
pub struct Prepared {
    /// Settings of the task.
    pub settings: VisionLanguage,
    /// Settings of the model.
    pub model: VisionLanguageModel,
    /// Pretrained network in place of the vision transformer.
    pub backbone: Option<Pretrained>,
    /// Source of batches.
    pub batches: BatchLoader,
    /// Buffers of the task.
    pub buffers: Buffers,
    /// Fields with their own metric, the first ones of held-out answers: JSON pointers and names of metrics.
    pub fields: Vec<(String, String)>,
}

/// Opens the data and registers the index, the cache of images and the memory budget of decoding in the ledger.
///
/// # Errors
/// The data cannot be read or is unsuitable.
pub fn prepare(
    settings: &VisionLanguage,
    experiment: &Experiment,
    ledger: &Ledger,
) -> Result<(TaskFacts, Prepared), TaskError> {
    let model: &VisionLanguageModel = experiment.model_settings()?;
    let mut library: Library = experiment.open_dataset()?;
    let options = experiment.loader_settings::<Library>().unwrap_or_default();
    let (limits, side) = (&experiment.limits, options.image_size);
    let backbone = Pretrained::of(experiment, side)?;
    let settings = &settings.on(backbone.as_ref().map(|of| &of.weights));
    let shape = model.shape_on(backbone.as_ref());
    decoding::fits(library.largest.as_ref(), limits)?;
    let tokenizer = library.tokenizer(&options.vocabulary)?;
    let length = settings.text_length(&shape, side);
    library.fit(&tokenizer, settings.text_tokens_max(&shape, side), options.on_invalid)?;
    let mut digests = vec![(experiment.dataset_name().to_owned(), library.digest.clone())];
    digests.extend(options.vocabulary.digests()?);
    let weights = [("vision_weights", &model.vision_weights), ("language_weights", &model.language_weights)];
    for (name, path) in weights {
        if let Some(path) = path {
            digests.push((name.to_owned(), digest_of_file(Path::new(path))?));
        }
    }
    let (skipped, seen) = (library.skipped.clone(), library.summary());
    let mut lowered = lowered_settings(experiment, &seen);
    let tokens = tokenizer.size();
    let mut notes: Vec<String> = tokenizer.note().map(str::to_owned).into_iter().collect();
    notes.extend(backbone.iter().map(|of| of.note(limits.batch_size.min(experiment.batch_size()), side)));
    lowered.extend(lowered_vocabulary(experiment, &options.vocabulary, &tokenizer, "the training texts"));
    let (size, accumulation) = (experiment.batch_size(), experiment.training.gradient_accumulation);
    let batch_shape = BatchShape { size, length, accumulation, side };
    let trained = ParameterCounts::new(settings, &shape, side, tokens).on(backbone.as_ref()).trained(settings);
    let buffers = Buffers::new(settings, &shape, limits, batch_shape, &tokenizer, trained);
    let store = Arc::new(ImageTextStore::new(library, tokenizer, &options, limits, ledger));
    let owners = PlannedBuffer::all(&[&store.buffers, &buffers]);
    let mut batches = BatchLoader::new(store, settings, experiment.experiment.seed, batch_shape);
    if settings.longest_first {
        batches.put_longest_first()?;
    }
    let fields = fields(&batches)?;
    let metrics = metrics::available(&fields, seen.unseen > 0, settings.grey_images);
    let named = fields.into_iter().map(|pointer| (metrics::field_metric_name(&pointer), pointer));
    let fields = named.filter(|(name, _)| metrics.iter().any(|metric| metric.name == name));
    let fields = fields.map(|(name, pointer)| (pointer, name)).collect();
    let mut facts = TaskFacts {
        owners,
        data_digests: digests,
        data_skipped: skipped,
        captures: CAPTURES,
        // Each has many tokens of answers.
        captured_batches: 2,
        learned_from_data: options.vocabulary.files.is_none().then_some(LEARNED),
        lowered,
        notes,
        trained_parameters: Some(trained),
        batch_items: size as u64,
        batch_keys: &["training.batch_size"],
        images: LEGEND,
        probe_overrides: vec!["pipeline.vision-language.longest_first=true".into()],
        validation_batches: batches.answered(
            experiment.validation.batches as u64,
            settings.generated_answers,
            settings.grey_images,
        ),
        ..TaskFacts::new(batches.per_epoch(), &metrics)
    };
    leaks::plan(&mut facts, &batches, experiment);
    let (settings, model) = (settings.clone(), model.clone());
    Ok((facts, Prepared { settings, model, backbone, batches, buffers, fields }))
}

/// Fields of the first held-out answers, in the order of a validation.
fn fields(batches: &BatchLoader) -> Result<Vec<String>, DataError> {
    let size = batches.shape.size;
    let numbers =
        (0..SAMPLED_ANSWERS.div_ceil(size) as u64).flat_map(|batch| batches.held_out_numbers(Split::Validation, batch));
    let mut fields: Vec<String> = Vec::new();
    for number in numbers.take(SAMPLED_ANSWERS) {
        let truth = batches.store.text(Split::Validation, number)?.answer_text;
        for (pointer, _) in compare_answer(&truth, &truth).fields {
            if fields.len() < FIELDS_MAX && !fields.contains(&pointer) {
                fields.push(pointer);
            }
        }
    }
    Ok(fields)
}

/// Returns the settings for which the data has too few examples: batch size and validation.
pub fn lowered_settings(experiment: &Experiment, seen: &ExampleCounts) -> Vec<LoweredSetting> {
    let because = format!("the data has {} to train on; batches repeat some", pluralize(seen.train, "example"));
    let all = [
        LoweredSetting::detect("training.batch_size", experiment.batch_size() as u64, seen.train, because),
        lowered_validation(experiment, seen.held_out, "held-out example"),
    ];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
#[path = "prepare_tests.rs"]
pub mod tests;
