//! What does the data say before anything is on a device? Opened once, for the plan and then for the task.

use std::sync::Arc;

use super::batch::{Batches, batch_bytes_max};
use super::precision::METRICS;
use super::settings::{Model, Settings};
use crate::data::error::DataError;
use crate::data::feed;
use crate::data::question_answers::corpus::Corpus;
use crate::data::question_answers::settings::Settings as Data;
use crate::data::question_answers::store::ExampleStore;
use crate::experiment::Experiment;
use crate::memory::ledger::{Ledger, NO_CAP, Policy};
use crate::results::format::{Place, PlannedOwner};
use crate::task::{TaskError, TaskFacts};

/// The batch that a validation or a calibration is looking at.
pub const VALIDATION_BATCH: &str = "validation_batch";

/// Pretraining and each precision twice. Of a longer pretraining a probe sees the beginning only, and no quantised step.
fn probe_steps(settings: &Settings) -> u64 {
    const PRETRAINING_MAX: u64 = 50;
    let quantised = (2 * settings.weight_bits.len() as u64).max(8);
    settings.pretraining_steps.min(PRETRAINING_MAX) + quantised
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
    let data = |error: DataError| TaskError::Data(error.to_string());
    let corpus = Corpus::open(dataset).map_err(data)?;
    let digests = vec![("question-answers".into(), corpus.digest.clone())];
    let skipped = corpus.skipped.clone();
    let store = Arc::new(ExampleStore::new(corpus, dataset, settings.sequence_length, ledger).map_err(data)?);
    let limits = &experiment.limits;
    let bytes = batch_bytes_max(settings, limits.batch_size);
    let mut owners = store.planned_owners();
    owners.extend(feed::planned_owners(limits, bytes));
    owners.push(PlannedOwner {
        fills: None,
        name: VALIDATION_BATCH.into(),
        place: Place::Host,
        policy: Policy::Refuse,
        items: 1,
        bytes,
        because: "one batch of a validation or of the calibration".into(),
    });
    owners.extend(experiment.leaks.on().into_iter().map(|leak| PlannedOwner {
        fills: None,
        name: leak.owner().into(),
        place: Place::Host,
        policy: Policy::Leak,
        items: NO_CAP.items,
        bytes: NO_CAP.bytes,
        because: format!("`leaks.{}` is switched on", leak.key()),
    }));
    let batches = Batches::new(store, settings, experiment.experiment.seed, limits.batch_size);
    let facts = TaskFacts {
        batches_per_epoch: batches.per_epoch(),
        owners,
        data_digests: digests,
        data_skipped: skipped,
        batch_items: limits.batch_size as u64,
        probe_steps: probe_steps(settings),
        metrics: METRICS.to_vec(),
    };
    Ok((facts, Prepared { settings: settings.clone(), model: model.clone(), batches }))
}
