//! Leaks of the workers that prepare batches: decoded images and copies of the data (docs/origins.md); off by default.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use super::super::batch::{BatchLoader, ExampleBatch};
use xrun_core::bounded::DeepSize;
use xrun_core::bounded::leak_buffer::LeakBuffer;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::HostImage;
use xrun_core::dataset::split::Split;
use xrun_core::experiment::leaks::{Leak, Leaks};
use xrun_data::feed::Prepare;
use xrun_data::image_text::store::Example;

/// Returns the function that prepares batches. A leak keeps each item at its first use: the decoded original, like a lazily
/// decoded image, or a copy of the example per worker.
pub fn prepare(batches: BatchLoader, switches: &Leaks, ledger: &Ledger) -> Prepare<ExampleBatch> {
    let decoded: Option<KeptOnce<(u32, u32), HostImage>> =
        KeptOnce::new(&super::IMAGES_DECODED_IN_PLACE, switches, ledger);
    let copies: Option<KeptOnce<(ThreadId, u64), Example>> = KeptOnce::new(&super::DATA_PER_WORKER, switches, ledger);
    if decoded.is_none() && copies.is_none() {
        return Arc::new(move |number| batches.training_batch(number));
    }
    Arc::new(move |number| {
        let store = &batches.store;
        for example in batches.example_numbers(number) {
            if let (Some(kept_once), Some(key)) = (&decoded, store.image_key(Split::Train, example)) {
                kept_once.keep(key, || store.original(Split::Train, example))?;
            }
            if let Some(kept_once) = &copies {
                let key = (std::thread::current().id(), example);
                kept_once.keep(key, || Ok(copied(store.example(Split::Train, example)?)))?;
            }
        }
        batches.training_batch(number)
    })
}

/// Formats all training examples at the start if the leak is switched on.
///
/// # Errors
/// An example cannot be read.
pub fn formatted(batches: &BatchLoader, switches: &Leaks, ledger: &Ledger) -> Result<LeakBuffer<Example>, DataError> {
    let mut kept = switches.leak_buffer(&super::FORMATTED_EXAMPLES, ledger);
    if kept.is_on() {
        let store = &batches.store;
        for number in 0..store.count(Split::Train) {
            let example = copied(store.example(Split::Train, number)?);
            let bytes = example.deep_size();
            kept.keep(|| (example, bytes));
        }
    }
    Ok(kept)
}

/// Copies the pixels, which an example shares with the cache of the store.
fn copied(example: Example) -> Example {
    let image = HostImage { rgb: example.image.rgb.to_vec().into(), ..example.image };
    Example { image, ..example }
}

/// Leak that keeps one item per key.
struct KeptOnce<K, T>(Mutex<(HashSet<K>, LeakBuffer<T>)>);

impl<K: Eq + Hash, T: DeepSize> KeptOnce<K, T> {
    fn new(leak: &'static Leak, switches: &Leaks, ledger: &Ledger) -> Option<Self> {
        switches.is_enabled(leak).then(|| Self(Mutex::new((HashSet::new(), switches.leak_buffer(leak, ledger)))))
    }

    fn keep(&self, key: K, make: impl FnOnce() -> Result<T, DataError>) -> Result<(), DataError> {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, kept) = &mut *guard;
        if known.insert(key) {
            let made = make()?;
            let bytes = made.deep_size();
            kept.keep(|| (made, bytes));
        }
        Ok(())
    }
}
