//! How do questions become a batch on the host? Tokens in, tokens to be said next, and which of them count.

use std::borrow::Cow;
use std::sync::Arc;

use super::settings::{LossOn, Settings};
use xrun_core::bounded::HeldBytes;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;
use xrun_data::order::Order;
use xrun_data::question_answers::example::Example;
use xrun_data::question_answers::store::ExampleStore;
use xrun_data::tokenizer::Tokenizer;

/// `size` sequences of `length` tokens, row by row. What is filled up weighs nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBatch {
    /// Sequences, which are the rows.
    pub size: usize,
    /// Tokens of each sequence.
    pub length: usize,
    /// Token numbers, `[size, length]`; what fills up is the end of text.
    pub inputs: Vec<i32>,
    /// The token after each input, `[size, length]`, filled up in the same way.
    pub targets: Vec<i32>,
    /// 1 where the target counts, and else 0.
    pub weights: Vec<f32>,
    /// How many inputs of each sequence have a target; the others fill it up.
    texts: Vec<usize>,
    /// Which questions these are, for messages.
    described: String,
}

impl HeldBytes for TokenBatch {
    fn held_bytes(&self) -> u64 {
        let numbers = self.inputs.capacity() + self.targets.capacity() + self.weights.capacity();
        let texts = self.texts.capacity() * size_of::<usize>();
        (size_of::<Self>() + numbers * size_of::<i32>() + texts + self.described.capacity()) as u64
    }
}

/// Characters of [`TokenBatch::describe`].
const DESCRIBED_MAX: usize = 120;

impl TokenBatch {
    /// Sequences of the same length, filled up with `end`.
    pub fn new(examples: &[Arc<Example>], length: usize, loss_on: LossOn, end: u32, described: &str) -> Self {
        let size = examples.len();
        let mut batch = Self {
            size,
            length,
            inputs: vec![end as i32; size * length],
            targets: vec![end as i32; size * length],
            weights: vec![0.0; size * length],
            texts: examples.iter().map(|example| example.tokens.len().saturating_sub(1).min(length)).collect(),
            described: described[..described.floor_char_boundary(DESCRIBED_MAX)].to_owned(),
        };
        for (row, example) in examples.iter().enumerate() {
            let first = if loss_on == LossOn::All { 1 } else { example.prompt.max(1) };
            for (at, token) in example.tokens.iter().take(length + 1).enumerate() {
                if at < length {
                    batch.inputs[row * length + at] = *token as i32;
                }
                if at > 0 {
                    batch.targets[row * length + at - 1] = *token as i32;
                }
                if at >= first {
                    batch.weights[row * length + at - 1] = 1.0;
                }
            }
        }
        batch
    }

    /// The same sequences, at most so many at a time; the batch itself where that is all of them.
    pub fn parts(&self, size: usize) -> impl Iterator<Item = Cow<'_, Self>> {
        let size = size.max(1);
        (0..self.size).step_by(size).map(move |from| match size >= self.size {
            true => Cow::Borrowed(self),
            false => Cow::Owned(self.rows(from, (from + size).min(self.size))),
        })
    }

    fn rows(&self, from: usize, to: usize) -> Self {
        let numbers = from * self.length..to * self.length;
        Self {
            size: to - from,
            length: self.length,
            inputs: self.inputs[numbers.clone()].to_vec(),
            targets: self.targets[numbers.clone()].to_vec(),
            weights: self.weights[numbers].to_vec(),
            texts: self.texts[from..to].to_vec(),
            described: self.described.clone(),
        }
    }

    /// Inputs that have a target, by their number in the batch. What fills up is not among them, nor the end of a text.
    pub fn text(&self) -> Vec<i32> {
        let of_row = |(row, text): (usize, &usize)| (0..*text).map(move |at| (row * self.length + at) as i32);
        self.texts.iter().enumerate().flat_map(of_row).collect()
    }

    /// Bytes of text that the targets which count stand for.
    pub fn counted_bytes(&self, tokenizer: &Tokenizer) -> u64 {
        let counted = self.targets.iter().zip(&self.weights).filter(|(_, weight)| **weight > 0.0);
        counted.map(|(target, _)| tokenizer.bytes(*target as u32) as u64).sum()
    }

    /// How many targets count.
    pub fn counted(&self) -> f64 {
        self.weights.iter().map(|weight| f64::from(*weight)).sum()
    }

    /// Which questions these are, for messages.
    pub fn describe(&self) -> &str {
        &self.described
    }
}

/// What a validation holds of a batch and its questions.
pub fn validation_bytes(batch: &TokenBatch, examples: &[Arc<Example>]) -> u64 {
    batch.held_bytes() + examples.iter().map(|example| example.token_bytes()).sum::<u64>()
}

/// The most of it beyond the batch itself: each question has at most so many windows of its context.
pub fn windows_bytes_max(settings: &Settings, batch_size: usize, windows: usize) -> u64 {
    let window = size_of::<Vec<u32>>() + (settings.sequence_length + 1) * size_of::<u32>();
    (batch_size * windows * window) as u64
}

/// The most that one batch holds.
pub fn batch_bytes_max(settings: &Settings, batch_size: usize) -> u64 {
    let numbers = 3 * batch_size * settings.sequence_length;
    let texts = batch_size * size_of::<usize>();
    (size_of::<TokenBatch>() + numbers * size_of::<i32>() + texts + DESCRIBED_MAX) as u64
}

/// Makes batches by their number; used by many threads at once.
#[derive(Clone, Debug)]
pub struct Batches {
    store: Arc<ExampleStore>,
    seed: u32,
    size: usize,
    length: usize,
    loss_on: LossOn,
}

impl Batches {
    /// Batches of `size` sequences each; `seed` is that of the run.
    pub fn new(store: Arc<ExampleStore>, settings: &Settings, seed: u32, size: usize) -> Self {
        Self { store, seed, size, length: settings.sequence_length, loss_on: settings.loss_on }
    }

    /// What tokenises the questions.
    pub fn store(&self) -> &Arc<ExampleStore> {
        &self.store
    }

    /// Batches in one pass over the questions to train on; the last one takes some of the next pass.
    pub fn per_epoch(&self) -> u64 {
        self.store.count(Split::Train).div_ceil(self.size as u64)
    }

    /// Training batch `number`.
    pub fn train(&self, number: u64) -> Result<TokenBatch, DataError> {
        self.batch(Split::Train, "order", number)
    }

    /// Calibration batch `number`: of the questions to train on, in an order of its own.
    pub fn calibration(&self, number: u64) -> Result<TokenBatch, DataError> {
        self.batch(Split::Train, "calibration", number)
    }

    fn batch(&self, split: Split, purpose: &str, number: u64) -> Result<TokenBatch, DataError> {
        let count = self.store.count(split);
        let mut examples = Vec::with_capacity(self.size);
        let mut described = format!("batch {number}, questions");
        let mut order: Option<(u64, Order)> = None;
        for at in 0..self.size as u64 {
            let position = number * self.size as u64 + at;
            let epoch = position / count;
            let known = order.take().filter(|(of, _)| *of == epoch);
            let (_, this) =
                order.insert(known.unwrap_or_else(|| (epoch, Order::new(self.seed, purpose, epoch, count))));
            let question = this.at(position % count);
            described += &format!(" {question}");
            examples.push(self.store.example(split, question)?);
        }
        let end = self.store.corpus().tokenizer.end();
        Ok(TokenBatch::new(&examples, self.length, self.loss_on, end, &described))
    }

    /// Held-out questions of validation batch `number`, the same each time; fewer at the end of the questions.
    pub fn validation(&self, number: u64) -> Result<Vec<Arc<Example>>, DataError> {
        let count = self.store.count(Split::Validation);
        let order = Order::new(self.seed, "validation", 0, count);
        let first = (number * self.size as u64).min(count);
        let last = (first + self.size as u64).min(count);
        (first..last).map(|position| self.store.example(Split::Validation, order.at(position))).collect()
    }

    /// The batch of those questions.
    pub fn of(&self, examples: &[Arc<Example>], loss_on: LossOn, number: u64) -> TokenBatch {
        let end = self.store.corpus().tokenizer.end();
        TokenBatch::new(examples, self.length, loss_on, end, &format!("validation batch {number}"))
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
