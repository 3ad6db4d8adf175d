//! Tokenised examples of a data set: on demand in a cache that is bounded by bytes, or all at once.

use std::sync::Arc;

use super::corpus::Corpus;
use super::example::{Cut, Example, example, prompts};
use super::settings::LoaderSettings;
use xrun_core::bounded::DeepSize;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::cache::{ByteCache, CacheCounters};
use xrun_core::bounded::ledger::{Cap, Ledger, Policy, Registration};
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;

/// Examples in the cache; the bytes are reached first.
const EXAMPLES_MAX: u64 = 10_000_000;

/// About what an example holds besides its tokens: itself and a few answers.
const EXAMPLE_BYTES: u64 = 200;

type Shared = Arc<Example>;

/// Examples of a data set by their number; used by many threads at once.
#[derive(Debug)]
pub struct ExampleStore {
    /// The index that it reads by.
    pub corpus: Corpus,
    cutting: Cutting,
    examples: Examples,
    _index: Registration,
    _learning: Option<Registration>,
    /// Its buffers in the ledger.
    pub buffers: Vec<Buffer>,
}

/// Settings by which examples are made.
#[derive(Clone, Copy, Debug)]
struct Cutting {
    /// Tokens that a model sees at once.
    length: usize,
    seed: u32,
    stride: usize,
    /// Windows of a held-out question, at most.
    windows: usize,
}

/// Tokenised examples: a cache, or all of them.
#[derive(Debug)]
enum Examples {
    Cache(ByteCache<(Split, u64), Shared>),
    All { train: Vec<Shared>, validation: Vec<Shared>, _registration: Registration },
}

impl ExampleStore {
    /// Makes a store of examples of `length` tokens. The seed draws where a context is cut that does not fit. With
    /// `preprocess_all`, tokenises everything now.
    pub fn new(
        corpus: Corpus,
        loader: &LoaderSettings,
        length: usize,
        seed: u32,
        ledger: &Ledger,
    ) -> Result<Self, DataError> {
        let cutting = Cutting { length, seed, stride: loader.window_stride, windows: loader.validation_windows };
        let (examples, buffer) = match loader.preprocess_all {
            false => {
                let buffer = cache_buffer(&corpus, loader, length);
                (Examples::Cache(ByteCache::new(ledger, &buffer)), buffer)
            }
            true => {
                let all = |split| -> Result<Vec<Shared>, DataError> {
                    (0..corpus.places(split).len() as u64)
                        .map(|number| Ok(Arc::new(made(&corpus, split, number, cutting)?)))
                        .collect()
                };
                let (train, validation) = (all(Split::Train)?, all(Split::Validation)?);
                let items = (train.len() + validation.len()) as u64;
                let bytes = train.iter().chain(&validation).map(DeepSize::deep_size).sum();
                let buffer = Buffer::new("preprocessed_examples", Policy::Refuse, Cap { items, bytes })
                    .because(format!("`{}.preprocess_all`", loader.section));
                let registration = buffer.register(ledger);
                registration.set(items, bytes);
                (Examples::All { train, validation, _registration: registration }, buffer)
            }
        };
        let items = (corpus.places(Split::Train).len() + corpus.places(Split::Validation).len()) as u64;
        let bytes = corpus.index_bytes();
        let cap = Cap { items, bytes: bytes.max(corpus.opening_bytes) };
        let of_index = Buffer::new("dataset_index", Policy::Refuse, cap)
            .because("position of each question in its file, and a paragraph while it is opened");
        let index = of_index.register_opened(ledger, items, bytes);
        let (learning, _learning) = corpus.tokenizer.register_learning(ledger).unzip();
        let buffers = [buffer, of_index].into_iter().chain(learning).collect();
        Ok(Self { corpus, cutting, examples, _index: index, _learning, buffers })
    }

    /// Questions of a split.
    pub fn count(&self, split: Split) -> u64 {
        self.corpus.places(split).len() as u64
    }

    /// Example `number` of a split; the same whatever is kept.
    pub fn example(&self, split: Split, number: u64) -> Result<Shared, DataError> {
        match &self.examples {
            Examples::All { train, validation, .. } => {
                let all = if split == Split::Train { train } else { validation };
                let found = all.get(number as usize).cloned();
                found.ok_or_else(|| DataError::content(format!("there is no example {number}")))
            }
            Examples::Cache(cache) => {
                if let Some(found) = cache.get(&(split, number)) {
                    return Ok(found);
                }
                let example = Arc::new(made(&self.corpus, split, number, self.cutting)?);
                cache.insert((split, number), example.clone());
                Ok(example)
            }
        }
    }

    /// The prompts of a question that is in no file, as of a held-out one: the windows of its context.
    ///
    /// # Errors
    /// Text that the vocabulary does not take.
    pub fn prompts(&self, context: &str, question: &str) -> Result<Vec<Vec<u32>>, DataError> {
        let Cutting { length, stride, windows, .. } = self.cutting;
        prompts(context, question, length, (stride, windows), &self.corpus.tokenizer)
    }

    /// The most windows that a held-out question has.
    pub fn windows(&self) -> usize {
        self.cutting.windows
    }

    /// Hits and misses of the cache; all zero with `preprocess_all`.
    pub fn counters(&self) -> CacheCounters {
        match &self.examples {
            Examples::Cache(cache) => cache.counters(),
            Examples::All { .. } => CacheCounters::default(),
        }
    }

    /// Evicts down to a fraction of the cap; returns the number of evicted bytes.
    pub fn evict_to_fraction(&self, share: f64) -> u64 {
        match &self.examples {
            Examples::Cache(cache) => cache.evict_to_fraction(share),
            Examples::All { .. } => 0,
        }
    }
}

/// Buffer of a cache of examples of `length` tokens.
fn cache_buffer(corpus: &Corpus, loader: &LoaderSettings, length: usize) -> Buffer {
    let [train, validation] = [Split::Train, Split::Validation].map(|split| corpus.places(split).len() as u64);
    let windows = train + validation * loader.validation_windows as u64;
    let working_set_bytes = (train + validation) * EXAMPLE_BYTES + windows * (length * size_of::<u32>()) as u64;
    let cap = Cap { items: EXAMPLES_MAX, bytes: loader.example_cache.0 };
    let key = format!("{}.example_cache", loader.section);
    Buffer::cache("example_cache", key, cap, working_set_bytes)
}

fn made(corpus: &Corpus, split: Split, number: u64, cutting: Cutting) -> Result<Example, DataError> {
    let Cutting { length, seed, stride, windows } = cutting;
    let cut = match split {
        Split::Train => Cut::WithAnswer { seed, number },
        Split::Validation | Split::Unseen => Cut::Sliding { stride, most: windows },
    };
    let place = corpus.places(split).get(number as usize);
    let place = place.ok_or_else(|| DataError::content(format!("there is no question {number}")))?;
    let paragraph = corpus.source(split).paragraph(place)?;
    example(&paragraph, place.question as usize, length, cut, &corpus.tokenizer).map_err(|error| {
        let path = corpus.source(split).path();
        DataError::file(path, format!("question {} of the paragraph at byte {}: {error}", place.question, place.offset))
    })
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
