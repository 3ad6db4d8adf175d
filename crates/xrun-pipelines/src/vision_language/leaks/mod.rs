//! Leaks that `[leaks]` can switch on, and the growth that the forecast expects of each. They run beside the training module: as
//! a callback, and in what the workers of the feed call.

#[cfg(feature = "train")]
pub mod callback;
pub mod data;

use super::batch::{BatchShape, Batches};
use super::prepare::Prepared;
use crate::leaks::copies;
pub use crate::leaks::{
    DATA_PER_WORKER, GRADIENTS, LOG_HISTORY, LOSS_WITH_GRAPH, OUTPUTS_WITH_GRAPH, VALIDATION_WITH_GRAPH,
};
use xrun_core::bounded::HeldBytes;
use xrun_core::bounded::leak_growth::{GrowthEvent, LeakGrowth};
use xrun_core::dataset::sample::HostImage;
use xrun_core::dataset::split::Split;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::leaks::Leak;
use xrun_core::leak;
use xrun_core::task::TaskFacts;
use xrun_data::feed;

/// Pictures that are decoded in the list of the data and stay there.
pub const IMAGES_DECODED_IN_PLACE: Leak = leak!(
    "images_decoded_in_place",
    on_host,
    "Decode each picture in its place in the list of the data when it is first used, in all its pixels, and keep it there. Ends \
     when all pictures have been used."
);
/// What goes into each batch, with pictures as floats.
pub const PROCESSED_BATCHES: Leak =
    leak!("processed_batches", with_tensors, "Keep what goes into each batch, pictures as 32-bit floats.");
/// Logits and labels of each step.
pub const LABELS_AND_LOGITS: Leak = leak!(
    "labels_and_logits",
    with_tensors,
    "Keep the logits of all text tokens and their labels at each step (for statistics of the training)."
);
/// Logits of validations on the device.
pub const VALIDATION_LOGITS: Leak = leak!(
    "validation_logits",
    with_tensors,
    "Keep the logits of all text tokens of each validation on the device (metrics that are computed at its end)."
);
/// All examples to train on, made ready at the start.
pub const FORMATTED_EXAMPLES: Leak = leak!(
    "formatted_examples",
    on_host,
    "Make all examples to train on ready at the start, pictures and tokens, and keep them."
);

/// All of them.
pub const LEAKS: &[&Leak] = &[
    &IMAGES_DECODED_IN_PLACE,
    &GRADIENTS,
    &LOSS_WITH_GRAPH,
    &OUTPUTS_WITH_GRAPH,
    &PROCESSED_BATCHES,
    &LABELS_AND_LOGITS,
    &VALIDATION_LOGITS,
    &VALIDATION_WITH_GRAPH,
    &DATA_PER_WORKER,
    &FORMATTED_EXAMPLES,
    &LOG_HISTORY,
];

/// Of more examples the first so many are looked at, and the others taken to be like them: to look at as many takes seconds.
const LOOKED_AT_MAX: usize = 100_000;

/// Adds the buffers of the leaks that are switched on to the plan.
pub fn plan(facts: &mut TaskFacts, prepared: &Prepared, experiment: &Experiment) {
    facts.owners.extend(experiment.leaks.planned_owners(LEAKS, |leak| keeps(leak, &prepared.batches, experiment)));
}

/// Growth of `leak` over the run.
pub fn keeps(leak: &Leak, batches: &Batches, experiment: &Experiment) -> LeakGrowth {
    let BatchShape { size, accumulation, .. } = batches.shape();
    match *leak {
        IMAGES_DECODED_IN_PLACE => {
            let in_all = originals(batches, prepared(batches, experiment));
            LeakGrowth::Filling { in_all, full: originals(batches, u64::MAX) }
        }
        DATA_PER_WORKER => {
            let workers = experiment.limits.workers.max(1);
            LeakGrowth::InAll(examples_of_workers(batches, prepared(batches, experiment), workers))
        }
        FORMATTED_EXAMPLES => LeakGrowth::InAll(examples(batches, 0..batches.store().count(Split::Train))),
        // After each batch.
        LOSS_WITH_GRAPH | OUTPUTS_WITH_GRAPH | PROCESSED_BATCHES => {
            LeakGrowth::with(GrowthEvent::Step, accumulation as f64)
        }
        // After each batch of it.
        VALIDATION_LOGITS | VALIDATION_WITH_GRAPH => {
            let held_out = batches.store().count(Split::Validation).div_ceil(size as u64);
            LeakGrowth::with(GrowthEvent::Validation, held_out.min(experiment.validation.episodes as u64) as f64)
        }
        _ => LeakGrowth::with(GrowthEvent::Step, 1.0),
    }
}

/// Training batches that a run prepares: those of its steps, and those that workers are ahead.
fn prepared(batches: &Batches, experiment: &Experiment) -> u64 {
    let (_, steps) = experiment.training.steps(batches.per_epoch());
    let ahead = if experiment.limits.workers == 0 { 0 } else { feed::batches_ahead(&experiment.limits) };
    steps.saturating_mul(batches.shape().accumulation as u64).saturating_add(ahead)
}

/// The examples of the first so many training batches, each once.
fn seen(batches: &Batches, prepared: u64) -> Box<dyn Iterator<Item = u64> + '_> {
    let count = batches.store().count(Split::Train);
    match prepared.saturating_mul(batches.shape().size as u64) >= count {
        true => Box::new(0..count),
        // Within an epoch none comes twice.
        false => Box::new((0..prepared).flat_map(|number| batches.numbers(number))),
    }
}

/// Bytes of different pictures in all their pixels: exact for up to [`LOOKED_AT_MAX`] of them that can be read.
fn originals(batches: &Batches, prepared: u64) -> u64 {
    let store = batches.store();
    // All examples to train on are in one file, which numbers its pictures.
    let mut known = vec![false; store.library().pictures as usize];
    let is_new = |number: &u64| {
        let of_file = store.picture_key(Split::Train, *number).map(|(_, picture)| picture as usize);
        of_file.and_then(|picture| known.get_mut(picture)).is_some_and(|known| !std::mem::replace(known, true))
    };
    let bytes = |number: u64| {
        let pixels = store.original_pixels(Split::Train, number).ok()?;
        Some(size_of::<HostImage>() as u64 + 3 * pixels)
    };
    sum(seen(batches, prepared).filter(is_new), bytes)
}

/// Bytes of the examples that workers have seen, on average over who is given which batch; exact for a single worker.
fn examples_of_workers(batches: &Batches, prepared: u64, workers: usize) -> u64 {
    let positions = prepared.saturating_mul(batches.shape().size as u64);
    let looks = positions as f64 / batches.store().count(Split::Train) as f64;
    (copies(workers as f64, looks.max(1.0)) * examples(batches, seen(batches, prepared)) as f64) as u64
}

/// Bytes of examples to train on, with a picture as the model sees it.
fn examples(batches: &Batches, numbers: impl Iterator<Item = u64>) -> u64 {
    let (store, side) = (batches.store(), batches.side());
    let picture = (size_of::<HostImage>() + 3 * side * side) as u64;
    sum(numbers, |number| Some(picture + store.text(Split::Train, number).ok()?.held_bytes()))
}

/// The sum over these examples. One that cannot be read, and what is behind [`LOOKED_AT_MAX`], counts as the mean.
fn sum(mut numbers: impl Iterator<Item = u64>, bytes: impl Fn(u64) -> Option<u64>) -> u64 {
    let read: Vec<Option<u64>> = numbers.by_ref().take(LOOKED_AT_MAX).map(bytes).collect();
    let found: Vec<u64> = read.iter().flatten().copied().collect();
    let all = read.len() + numbers.count();
    (found.iter().sum::<u64>() as f64 / found.len().max(1) as f64 * all as f64).round() as u64
}

#[cfg(test)]
mod tests;
