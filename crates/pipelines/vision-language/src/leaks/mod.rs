//! Leaks that `[leaks]` can switch on, which run as a callback of the training or in the workers of the feed, and the growth
//! that the forecast expects of each.

#[cfg(feature = "train")]
pub mod callbacks;
pub mod data;

use super::batch::{BatchLoader, BatchShape};
use xrun_core::bounded::DeepSize;
use xrun_core::bounded::leak_growth::{GrowthEvent, LeakGrowth};
use xrun_core::dataset::sample::HostImage;
use xrun_core::dataset::split::Split;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::leaks::Leak;
use xrun_core::leaks;
use xrun_core::task::TaskFacts;
use xrun_training::leaks::copies;
pub use xrun_training::leaks::{
    DATA_PER_WORKER, GRADIENTS, LOG_HISTORY, LOSS_NEVER_BACKPROPAGATED, LOSS_WITH_GRAPH, OUTPUTS_WITH_GRAPH,
    VALIDATION_WITH_GRAPH,
};

leaks! {
    /// Images that are decoded in the list of the data and stay there.
    IMAGES_DECODED_IN_PLACE = "images_decoded_in_place", on_host,
        "Decode each image at its first use, in its original size, and keep it in the list of the data (a lazy image that is decoded in \
         place). Ends when all images have been used.";
    /// Inputs of each batch, with images as floats.
    PROCESSED_BATCHES = "processed_batches", with_tensors, "Keep the inputs of each batch, with images as 32-bit floats.";
    /// Logits and labels of each step.
    LABELS_AND_LOGITS = "labels_and_logits", with_tensors,
        "Keep the logits of all text tokens and their labels at each step (for statistics of the training).";
    /// Logits of validations on the device.
    VALIDATION_LOGITS = "validation_logits", with_tensors,
        "Keep the logits of all text tokens of each validation on the device (metrics that are computed at its end).";
    /// All training examples, formatted at the start.
    FORMATTED_EXAMPLES = "formatted_examples", on_host, "Format all training examples at the start, images and tokens, and keep them.";
}

/// All leaks of the pipeline.
pub const LEAKS: &[&Leak] = &[
    &IMAGES_DECODED_IN_PLACE,
    &GRADIENTS,
    &LOSS_WITH_GRAPH,
    &LOSS_NEVER_BACKPROPAGATED,
    &OUTPUTS_WITH_GRAPH,
    &PROCESSED_BATCHES,
    &LABELS_AND_LOGITS,
    &VALIDATION_LOGITS,
    &VALIDATION_WITH_GRAPH,
    &DATA_PER_WORKER,
    &FORMATTED_EXAMPLES,
    &LOG_HISTORY,
];

/// Maximum number of examples that are read to estimate bytes, which takes seconds; the others count as their mean.
const SAMPLED_MAX: usize = 100_000;

/// Adds the buffers of the leaks that are switched on to the plan.
pub fn plan(facts: &mut TaskFacts, batches: &BatchLoader, experiment: &Experiment) {
    let owners = experiment.leaks.planned_buffers(LEAKS, |leak| leak_growth(leak, batches, experiment));
    facts.owners.extend(owners);
}

/// Growth of `leak` over the run.
pub fn leak_growth(leak: &Leak, batches: &BatchLoader, experiment: &Experiment) -> LeakGrowth {
    let BatchShape { size, accumulation, .. } = batches.shape;
    match *leak {
        IMAGES_DECODED_IN_PLACE => {
            let total = original_bytes(batches, prepared_batches(batches, experiment));
            LeakGrowth::Filling { total, plateau_bytes: original_bytes(batches, u64::MAX) }
        }
        DATA_PER_WORKER => {
            let workers = experiment.limits.workers.max(1);
            LeakGrowth::Total(worker_copy_bytes(batches, prepared_batches(batches, experiment), workers))
        }
        FORMATTED_EXAMPLES => LeakGrowth::Total(example_bytes(batches, 0..batches.store.count(Split::Train))),
        // Per batch.
        LOSS_WITH_GRAPH | LOSS_NEVER_BACKPROPAGATED | OUTPUTS_WITH_GRAPH | PROCESSED_BATCHES => {
            LeakGrowth::with(GrowthEvent::Step, accumulation as f64)
        }
        // Per batch of a validation.
        VALIDATION_LOGITS | VALIDATION_WITH_GRAPH => {
            let held_out = batches.store.count(Split::Validation).div_ceil(size as u64);
            LeakGrowth::with(GrowthEvent::Validation, held_out.min(experiment.validation.batches as u64) as f64)
        }
        _ => LeakGrowth::with(GrowthEvent::Step, 1.0),
    }
}

/// Number of training batches that a run prepares: those of its steps, and the lead of the workers.
fn prepared_batches(batches: &BatchLoader, experiment: &Experiment) -> u64 {
    let (_, steps) = experiment.training.steps(batches.per_epoch());
    let ahead = if experiment.limits.workers == 0 { 0 } else { experiment.limits.batches_ahead() };
    steps.saturating_mul(batches.shape.accumulation as u64).saturating_add(ahead)
}

/// Distinct examples of the first `prepared` training batches.
fn distinct_examples(batches: &BatchLoader, prepared: u64) -> Box<dyn Iterator<Item = u64> + '_> {
    let count = batches.store.count(Split::Train);
    match prepared.saturating_mul(batches.shape.size as u64) >= count {
        true => Box::new(0..count),
        // Within an epoch no example repeats.
        false => Box::new((0..prepared).flat_map(|number| batches.example_numbers(number))),
    }
}

/// Bytes of the distinct decoded originals; exact for up to [`SAMPLED_MAX`] readable ones.
fn original_bytes(batches: &BatchLoader, prepared: u64) -> u64 {
    let store = &batches.store;
    // All training examples are in one file, which numbers its images.
    let mut known = vec![false; store.library.images as usize];
    let is_new = |number: &u64| {
        let image = store.image_key(Split::Train, *number).map(|(_, image)| image as usize);
        image.and_then(|image| known.get_mut(image)).is_some_and(|known| !std::mem::replace(known, true))
    };
    let bytes = |number: u64| {
        let pixels = store.original_pixels(Split::Train, number).ok()?;
        Some(size_of::<HostImage>() as u64 + 3 * pixels)
    };
    estimate(distinct_examples(batches, prepared).filter(is_new), bytes)
}

/// Expected bytes of the workers' copies of examples if batches are assigned at random; exact for one worker.
fn worker_copy_bytes(batches: &BatchLoader, prepared: u64, workers: usize) -> u64 {
    let positions = prepared.saturating_mul(batches.shape.size as u64);
    let looks = positions as f64 / batches.store.count(Split::Train) as f64;
    let once = example_bytes(batches, distinct_examples(batches, prepared));
    (copies(workers as f64, looks.max(1.0)) * once as f64) as u64
}

/// Bytes of training examples with images in the model's size.
fn example_bytes(batches: &BatchLoader, numbers: impl Iterator<Item = u64>) -> u64 {
    let (store, side) = (&batches.store, batches.shape.side);
    let image = HostImage::bytes(side, side);
    estimate(numbers, |number| Some(image + store.text(Split::Train, number).ok()?.deep_size()))
}

/// Sum of bytes over examples; unreadable ones and those behind [`SAMPLED_MAX`] count as the mean.
fn estimate(mut numbers: impl Iterator<Item = u64>, bytes: impl Fn(u64) -> Option<u64>) -> u64 {
    let sampled: Vec<Option<u64>> = numbers.by_ref().take(SAMPLED_MAX).map(bytes).collect();
    let read: Vec<u64> = sampled.iter().flatten().copied().collect();
    let all = sampled.len() + numbers.count();
    (read.iter().sum::<u64>() as f64 / read.len().max(1) as f64 * all as f64).round() as u64
}

#[cfg(test)]
mod tests;
