//! What does the data say before anything is on a device? Opened once, for the plan and then for the task.

use std::path::Path;
use std::sync::Arc;

use super::batch::{Batches, batch_bytes_max, validation_bytes_max};
use super::precision::{METRICS, drawn};
use super::settings::{Model, Settings};
use super::sizes::Sizes;
use crate::data::digest::digest_of_file;
use crate::data::feed;
use crate::data::question_answers::corpus::Corpus;
use crate::data::question_answers::settings::Settings as Data;
use crate::data::question_answers::store::ExampleStore;
use crate::experiment::Experiment;
use crate::experiment::sections::Training;
use crate::memory::ledger::{Cap, Ledger, Policy};
use crate::plan;
use crate::results::format::{Keeps, Occasion, PlannedOwner};
use crate::task::{Metric, TaskError, TaskFacts};

/// The batch that a validation or a calibration is looking at.
pub const VALIDATION_BATCH: &str = "validation_batch";

/// Pretraining steps of a probe: the quantised steps after them need more.
const PROBE_PRETRAINING: u64 = 3;

/// A little pretraining, and each precision twice.
fn probe_steps(settings: &Settings) -> u64 {
    settings.pretraining_steps.min(PROBE_PRETRAINING) + (2 * settings.weight_bits.len() as u64).max(8)
}

fn probe_overrides(settings: &Settings) -> Vec<String> {
    let fewer = settings.pretraining_steps.min(PROBE_PRETRAINING);
    vec![format!("pipeline.qat-language-model.pretraining_steps={fewer}")]
}

/// Opened data, and what the task needs of the experiment.
#[derive(Debug)]
pub struct Prepared {
    pub settings: Settings,
    pub model: Model,
    pub batches: Batches,
}

/// Opens the data. The index and the cache of examples enter the ledger here.
pub fn prepare(
    settings: &Settings,
    model: &Model,
    dataset: &Data,
    experiment: &Experiment,
    ledger: &Ledger,
) -> Result<(TaskFacts, Prepared), TaskError> {
    let corpus = Corpus::open(dataset)?;
    let mut digests = vec![("question-answers".into(), corpus.digest.clone())];
    // Other merges make other tokens of the same text.
    let files = [("encoder", &dataset.encoder), ("merges", &dataset.merges), ("weights", &model.weights)];
    for (name, path) in files {
        if let Some(path) = path {
            digests.push((name.into(), digest_of_file(Path::new(path))?));
        }
    }
    let skipped = corpus.skipped.clone();
    let seed = experiment.experiment.seed;
    let store = Arc::new(ExampleStore::new(corpus, dataset, settings.sequence_length, seed, ledger)?);
    let limits = &experiment.limits;
    let bytes = batch_bytes_max(settings, limits.batch_size);
    let mut owners = store.planned_owners();
    owners.extend(feed::planned_owners(limits, bytes));
    owners.push(PlannedOwner::on_host(
        VALIDATION_BATCH,
        Policy::Refuse,
        Cap { items: 1, bytes: validation_bytes_max(settings, limits.batch_size, store.windows()) },
        "one batch of a validation, with all windows of its questions, or of the calibration",
    ));
    // After each batch that is trained on, at each precision.
    owners.extend(experiment.leaks.planned_owners(|_| {
        let passes = drawn(settings.policy, settings.weight_bits.len(), seed, 1).len();
        let passes = passes * experiment.training.accumulation;
        Keeps::with(Occasion::Step, passes as f64)
    }));
    let trained = Sizes::new(settings, model, store.corpus().tokenizer.size()).trained(settings);
    let batches = Batches::new(store, settings, seed, limits.batch_size);
    quantises(settings, &experiment.training, batches.per_epoch())?;
    let facts = TaskFacts {
        batches_per_epoch: batches.per_epoch(),
        owners,
        data_digests: digests,
        data_skipped: skipped,
        trained_parameters: Some(trained),
        batch_items: limits.batch_size as u64,
        probe_steps: probe_steps(settings),
        probe_overrides: probe_overrides(settings),
        metrics: METRICS.iter().map(Metric::from).collect(),
    };
    Ok((facts, Prepared { settings: settings.clone(), model: model.clone(), batches }))
}

/// Refuses what the file alone does not show: the data is so small that all its steps are pretraining.
fn quantises(settings: &Settings, training: &Training, batches_per_epoch: u64) -> Result<(), TaskError> {
    let (pretraining, (_, steps)) = (settings.pretraining_steps, plan::steps(training, batches_per_epoch));
    match pretraining < steps {
        true => Ok(()),
        false => Err(TaskError::Data(format!(
            "`pipeline.qat-language-model.pretraining_steps`: {pretraining} steps, and the training has {steps} \
             ({} epochs of this data): nothing would be quantised; write fewer of them, or more `training.epochs`",
            training.epochs
        ))),
    }
}

#[cfg(test)]
#[path = "prepare_tests.rs"]
mod tests;
