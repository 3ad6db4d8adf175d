//! Facts of the data for the plan, before anything is on a device. The data is opened once, for the plan and the task.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::batch::BatchLoader;
use super::buffers::Buffers;
use super::leaks;
use super::precision::{METRICS, PERPLEXITY, draw};
use super::settings::{Gpt2, PrecisionPolicy, QatLanguageModel, RangeSource};
use super::sizes::ParameterCounts;
use xrun_core::bounded::buffer::BufferSet;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::bounded::planned::PlannedBuffer;
use xrun_core::dataset::digest::digest_of_file;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;
use xrun_core::experiment::Experiment;
use xrun_core::settings::sections::Training;
use xrun_core::task::lowered::LoweredSetting;
use xrun_core::task::{Metric, TaskError, TaskFacts};
use xrun_core::units::pluralize;
use xrun_data::question_answers::corpus::Corpus;
use xrun_data::question_answers::store::ExampleStore;
use xrun_training::data_facts::{LEARNED, lowered_validation, lowered_vocabulary};

/// Maximum number of pretraining steps of a probe; the quantised steps after them need more memory.
const PROBE_PRETRAINING: u64 = 3;
/// Minimum number of quantised steps of a probe, after which allocators have settled.
const PROBE_STEPS_MIN: u64 = 8;
/// Maximum number of quantised steps of a probe: a sandwich of eight precisions draws the last one late.
const PROBE_STEPS_MAX: u64 = 64;

/// Policy of a probe: cyclic in place of uniform, which needs the same memory and draws all precisions sooner.
fn probe_policy(settings: &QatLanguageModel) -> PrecisionPolicy {
    match settings.policy {
        PrecisionPolicy::Uniform | PrecisionPolicy::Cyclic => PrecisionPolicy::Cyclic,
        PrecisionPolicy::Sandwich => PrecisionPolicy::Sandwich,
    }
}

/// Steps of a probe: a few of pretraining, and quantised ones until each precision has been drawn, because the optimiser
/// state of its LoRA is allocated in its first step.
fn probe_steps(settings: &QatLanguageModel, seed: u32) -> u64 {
    let before = settings.pretraining_steps.min(PROBE_PRETRAINING);
    let count = settings.weight_bits.len();
    let mut unmet: BTreeSet<usize> = (0..count).collect();
    let meets_all = (before + 1..=before + PROBE_STEPS_MAX).find(|step| {
        let met = draw(probe_policy(settings), count, seed, *step);
        unmet.retain(|precision| !met.contains(precision));
        unmet.is_empty()
    });
    meets_all.unwrap_or(before + PROBE_STEPS_MAX).max(before + (2 * count as u64).max(PROBE_STEPS_MIN))
}

fn probe_overrides(settings: &QatLanguageModel) -> Vec<String> {
    let fewer = settings.pretraining_steps.min(PROBE_PRETRAINING);
    let mut overrides = vec![format!("pipeline.qat-language-model.pretraining_steps={fewer}")];
    if settings.policy != probe_policy(settings) {
        overrides.push("pipeline.qat-language-model.policy=\"cyclic\"".into());
    }
    overrides
}

/// Choices of precisions that a step may have.
fn captured_kinds(settings: &QatLanguageModel) -> u64 {
    let count = settings.weight_bits.len();
    let kinds = match settings.policy {
        PrecisionPolicy::Uniform | PrecisionPolicy::Cyclic => count,
        // The widest, the narrowest and one between them.
        PrecisionPolicy::Sandwich => count.saturating_sub(2).max(1),
    };
    kinds as u64
}

/// Parts of a step that are captured, as in [`TaskFacts::captures`].
pub fn captures(settings: &QatLanguageModel) -> &'static str {
    match settings.clean_every_blocks {
        0 => "a pass for each choice of precisions, the updates, and each token of an answer at each precision",
        // A cleanup in the middle of a pass would have to be recorded.
        _ => "",
    }
}

/// Opened data and settings of the task.
#[derive(Debug)]
pub struct Prepared {
    /// Settings of the task.
    pub settings: QatLanguageModel,
    /// Settings of the model.
    pub model: Gpt2,
    /// Source of batches.
    pub batches: BatchLoader,
    /// Buffers of the task.
    pub buffers: Buffers,
}

/// Opens the data and registers the index and the cache of examples in the ledger.
///
/// # Errors
/// The data or a file of weights cannot be read, or has too few questions.
pub fn prepare(
    settings: &QatLanguageModel,
    experiment: &Experiment,
    ledger: &Ledger,
) -> Result<(TaskFacts, Prepared), TaskError> {
    let model: &Gpt2 = experiment.model_settings()?;
    let corpus: Corpus = experiment.open_dataset()?;
    let options = experiment.loader_settings::<Corpus>().unwrap_or_default();
    let mut digests = vec![(experiment.dataset_name().into(), corpus.digest.clone())];
    digests.extend(options.vocabulary.digests()?);
    if let Some(weights) = &model.weights {
        digests.push(("weights".into(), digest_of_file(Path::new(weights))?));
    }
    let skipped = corpus.skipped.clone();
    let seed = experiment.experiment.seed;
    let store = Arc::new(ExampleStore::new(corpus, &options, settings.sequence_length, seed, ledger)?);
    let size = experiment.batch_size();
    let buffers = Buffers::new(settings, &model.shape(), &experiment.limits, size, store.windows());
    let owners: Vec<PlannedBuffer> = store.buffers.iter().chain(buffers.all()).map(PlannedBuffer::from).collect();
    let trained = ParameterCounts::new(settings, model, store.corpus.tokenizer.size()).trained(settings);
    let counts = [Split::Train, Split::Validation].map(|split| store.count(split));
    let mut lowered = lowered_settings(settings, experiment, counts);
    let tokens = store.corpus.tokenizer.size();
    let notes = store.corpus.tokenizer.note().map(str::to_owned).into_iter().collect();
    lowered.extend(lowered_vocabulary(
        experiment,
        &options.vocabulary,
        &store.corpus.tokenizer,
        "the training articles",
    ));
    let batches = BatchLoader::new(store, settings, seed, size);
    check_pretraining(settings, &experiment.training, batches.batches_per_epoch())?;
    let mut facts = TaskFacts {
        owners,
        data_digests: digests,
        data_skipped: skipped,
        captures: captures(settings),
        captured_kinds: captured_kinds(settings),
        // Each has many tokens of answers.
        captured_batches: 2,
        learned_from_data: options.vocabulary.files.is_none().then_some(LEARNED),
        lowered,
        notes,
        trained_parameters: Some(trained),
        stage_ends: Some(settings.pretraining_steps).filter(|steps| *steps > 0).into_iter().collect(),
        batch_items: size as u64,
        batch_keys: &["training.batch_size"],
        whole_batches: settings.activation_ranges == RangeSource::Moving,
        probe_steps: probe_steps(settings, experiment.experiment.seed),
        probe_overrides: probe_overrides(settings),
        validation_batches: batches.validation_batches(experiment.validation.batches as u64),
        ..TaskFacts::new(batches.batches_per_epoch(), &with_chance(tokens))
    };
    leaks::plan(&mut facts, settings, experiment);
    Ok((facts, Prepared { settings: settings.clone(), model: model.clone(), batches, buffers }))
}

/// Metrics with the chance level of a perplexity: all `tokens` of the vocabulary have the same probability.
fn with_chance(tokens: usize) -> Vec<Metric> {
    let with_chance = |metric: &Metric| match metric.family {
        PERPLEXITY => metric.chance(tokens as f64),
        _ => *metric,
    };
    METRICS.iter().map(with_chance).collect()
}

/// Returns the settings for which the data has too few questions: batch size, calibration and validation.
pub fn lowered_settings(
    settings: &QatLanguageModel,
    experiment: &Experiment,
    [train, held_out]: [u64; 2],
) -> Vec<LoweredSetting> {
    let (size, calibration) = (experiment.batch_size() as u64, settings.calibration_batches as u64);
    let available = format!("the data has {} to train on", pluralize(train, "question"));
    let repeated = format!("{available}; later batches repeat them");
    let key = "pipeline.qat-language-model.calibration_batches";
    let all = [
        LoweredSetting::detect("training.batch_size", size, train, format!("{available}; batches repeat some")),
        LoweredSetting::detect(key, calibration, train.div_ceil(size), repeated),
        lowered_validation(experiment, held_out, "held-out question"),
    ];
    all.into_iter().flatten().collect()
}

/// Refuses a training on this data that ends within pretraining.
///
/// # Errors
/// No step would be quantised.
pub fn check_pretraining(
    settings: &QatLanguageModel,
    training: &Training,
    batches_per_epoch: u64,
) -> Result<(), DataError> {
    let (pretraining, (_, steps)) = (settings.pretraining_steps, training.steps(batches_per_epoch));
    match pretraining < steps {
        true => Ok(()),
        false => Err(DataError::value(
            "pipeline.qat-language-model.pretraining_steps",
            format!(
                "nothing is quantised: pretraining has {pretraining} steps, \
            and the training has {steps} ({} of this data); write fewer, or more `training.epochs`",
                pluralize(training.epochs, "epoch")
            ),
        )),
    }
}

#[cfg(test)]
#[path = "prepare_tests.rs"]
mod tests;
