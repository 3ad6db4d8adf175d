//! Batches of questions on the host: input tokens, target tokens and the mask of the loss.

use std::borrow::Cow;
use std::sync::Arc;

use super::settings::{LossTokens, QatLanguageModel};
use xrun_core::bounded::DeepSize;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;
use xrun_data::order::Permutation;
use xrun_data::question_answers::example::Example;
use xrun_data::question_answers::store::ExampleStore;
use xrun_data::tokenizer::Tokenizer;
use xrun_training::epochs::items_of_batch;

/// `size` sequences of `length` tokens, row-major. Padding has weight 0.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBatch {
    /// Number of sequences.
    pub size: usize,
    /// Tokens of each sequence, padding included.
    pub length: usize,
    /// Token ids, `[size, length]`, padded with the end-of-text token.
    pub inputs: Vec<i32>,
    /// Next token of each input, `[size, length]`, padded with the end-of-text token.
    pub targets: Vec<i32>,
    /// Mask of the loss: 1 for each target that counts, otherwise 0.
    pub loss_mask: Vec<f32>,
    /// Number of inputs of each sequence before its padding.
    input_lengths: Vec<usize>,
    /// Numbers of the questions, for messages.
    pub description: String,
}

impl DeepSize for TokenBatch {
    fn deep_size(&self) -> u64 {
        let numbers = self.inputs.capacity() + self.targets.capacity() + self.loss_mask.capacity();
        let input_lengths = self.input_lengths.capacity() * size_of::<usize>();
        (size_of::<Self>() + numbers * size_of::<i32>() + input_lengths + self.description.capacity()) as u64
    }
}

/// Maximum length of [`TokenBatch::description`] in bytes.
const DESCRIPTION_BYTES_MAX: usize = 120;

impl TokenBatch {
    /// Batch of sequences that are cut or padded with `eos_token` to `length` tokens.
    pub fn new(
        examples: &[Arc<Example>],
        length: usize,
        loss_tokens: LossTokens,
        eos_token: u32,
        description: &str,
    ) -> Self {
        let size = examples.len();
        let mut batch = Self {
            size,
            length,
            inputs: vec![eos_token as i32; size * length],
            targets: vec![eos_token as i32; size * length],
            loss_mask: vec![0.0; size * length],
            input_lengths: examples.iter().map(|example| example.tokens.len().saturating_sub(1).min(length)).collect(),
            description: description[..description.floor_char_boundary(DESCRIPTION_BYTES_MAX)].to_owned(),
        };
        for (row, example) in examples.iter().enumerate() {
            let first = if loss_tokens == LossTokens::All { 1 } else { example.prompt_length.max(1) };
            for (at, token) in example.tokens.iter().take(length + 1).enumerate() {
                if at < length {
                    batch.inputs[row * length + at] = *token as i32;
                }
                if at > 0 {
                    batch.targets[row * length + at - 1] = *token as i32;
                }
                if at >= first {
                    batch.loss_mask[row * length + at - 1] = 1.0;
                }
            }
        }
        batch
    }

    /// Splits the batch into micro-batches of at most `size` sequences; borrows the batch if one holds all of them.
    pub fn micro_batches(&self, size: usize) -> impl Iterator<Item = Cow<'_, Self>> {
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
            loss_mask: self.loss_mask[numbers].to_vec(),
            input_lengths: self.input_lengths[from..to].to_vec(),
            description: self.description.clone(),
        }
    }

    /// Positions `row * length + column` of the inputs that have a target, which excludes padding and the last token of a text.
    pub fn text_positions(&self) -> Vec<i32> {
        let in_row = |(row, text): (usize, &usize)| (0..*text).map(move |at| (row * self.length + at) as i32);
        self.input_lengths.iter().enumerate().flat_map(in_row).collect()
    }

    /// Bytes of text of the targets that count.
    pub fn target_bytes(&self, tokenizer: &Tokenizer) -> u64 {
        let counted = self.targets.iter().zip(&self.loss_mask).filter(|(_, weight)| **weight > 0.0);
        counted.map(|(target, _)| tokenizer.bytes(*target as u32) as u64).sum()
    }

    /// Number of targets that count.
    pub fn loss_target_count(&self) -> f64 {
        self.loss_mask.iter().map(|weight| f64::from(*weight)).sum()
    }
}

/// Bytes that a validation holds for a batch and its questions.
pub fn validation_bytes(batch: &TokenBatch, examples: &[Arc<Example>]) -> u64 {
    batch.deep_size() + examples.iter().map(|example| example.token_bytes()).sum::<u64>()
}

/// Upper bound on the bytes of the examples in [`validation_bytes`], with at most `windows` context windows per question.
pub fn windows_bytes_max(settings: &QatLanguageModel, batch_size: usize, windows: usize) -> u64 {
    let window = size_of::<Vec<u32>>() + (settings.sequence_length + 1) * size_of::<u32>();
    (batch_size * windows * window) as u64
}

/// Maximum of [`TokenBatch::deep_size`].
pub fn batch_bytes_max(settings: &QatLanguageModel, batch_size: usize) -> u64 {
    let numbers = 3 * batch_size * settings.sequence_length;
    let input_lengths = batch_size * size_of::<usize>();
    (size_of::<TokenBatch>() + numbers * size_of::<i32>() + input_lengths + DESCRIPTION_BYTES_MAX) as u64
}

/// Source of batches by their number; shared by worker threads.
#[derive(Clone, Debug)]
pub struct BatchLoader {
    /// Store that tokenises the questions.
    pub store: Arc<ExampleStore>,
    seed: u32,
    size: usize,
    length: usize,
    loss_tokens: LossTokens,
}

impl BatchLoader {
    /// Batches of `size` sequences; `seed` is the seed of the run.
    pub fn new(store: Arc<ExampleStore>, settings: &QatLanguageModel, seed: u32, size: usize) -> Self {
        Self { store, seed, size, length: settings.sequence_length, loss_tokens: settings.loss_tokens }
    }

    /// Number of batches per epoch; the last batch is filled up from the next epoch.
    pub fn batches_per_epoch(&self) -> u64 {
        self.store.count(Split::Train).div_ceil(self.size as u64)
    }

    /// Returns training batch `batch_index`.
    pub fn training_batch(&self, batch_index: u64) -> Result<TokenBatch, DataError> {
        self.batch("order", batch_index)
    }

    /// Returns calibration batch `batch_index`: training questions in an order that differs from the training order.
    pub fn calibration_batch(&self, batch_index: u64) -> Result<TokenBatch, DataError> {
        self.batch("calibration", batch_index)
    }

    fn batch(&self, purpose: &str, batch_index: u64) -> Result<TokenBatch, DataError> {
        let count = self.store.count(Split::Train);
        let mut examples = Vec::with_capacity(self.size);
        let mut description = format!("batch {batch_index}, questions");
        for question in items_of_batch(self.seed, purpose, batch_index, self.size as u64, count) {
            description += &format!(" {question}");
            examples.push(self.store.example(Split::Train, question)?);
        }
        let eos_token = self.store.corpus.tokenizer.eos_token();
        Ok(TokenBatch::new(&examples, self.length, self.loss_tokens, eos_token, &description))
    }

    /// Returns the held-out questions of validation batch `batch_index`, the same in each validation. The last batch may be smaller;
    /// an index past the end returns an empty list.
    pub fn held_out(&self, batch_index: u64) -> Result<Vec<Arc<Example>>, DataError> {
        let count = self.store.count(Split::Validation);
        let order = Permutation::new(self.seed, "validation", 0, count);
        let first = (batch_index * self.size as u64).min(count);
        let last = (first + self.size as u64).min(count);
        (first..last).map(|position| self.store.example(Split::Validation, order.at(position))).collect()
    }

    /// Returns the number of batches of a validation, at most `max`.
    pub fn validation_batches(&self, max: u64) -> u64 {
        self.store.count(Split::Validation).div_ceil(self.size as u64).min(max)
    }

    /// Returns the batch of the questions of validation batch `batch_index`.
    pub fn validation_batch(&self, examples: &[Arc<Example>], loss_tokens: LossTokens, batch_index: u64) -> TokenBatch {
        let eos_token = self.store.corpus.tokenizer.eos_token();
        TokenBatch::new(examples, self.length, loss_tokens, eos_token, &format!("validation batch {batch_index}"))
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
