//! Batches of examples on the host: images, input tokens, target tokens and their weights in the loss.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::selective::{self, StepSums, TokenKind, WeighedAnswer, weigh_answer};
use super::settings::VisionLanguage;
use xrun_core::bounded::DeepSize;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;
use xrun_data::image_text::store::{Example, ImageTextStore};
use xrun_data::order::Permutation;
use xrun_training::epochs::items_of_batch;

/// `size` examples of `length` text tokens each, row-major. Padding has weight 0.
#[derive(Clone, Debug, PartialEq)]
pub struct ExampleBatch {
    /// Number of examples.
    pub size: usize,
    /// Text tokens of each row.
    pub length: usize,
    /// Side of an image in pixels.
    pub side: usize,
    /// 8-bit RGB values of the images, `[size, side, side, 3]`.
    pub images: Vec<u8>,
    /// Token ids, `[size, length]`, padded with the end-of-text token.
    pub inputs: Vec<i32>,
    /// Next token of each input, `[size, length]`, padded with the end-of-text token.
    pub targets: Vec<i32>,
    /// Weight of each target in the loss, 0 for prompt and padding.
    pub weights: Vec<f32>,
    /// Kind of each target; `None` for prompt and padding.
    pub kinds: Vec<Option<TokenKind>>,
    /// Numbers of the examples in their split.
    pub numbers: Vec<u64>,
    /// Number of masked tokens of each answer. With a `structure_weight` of 1 the weights do not show them.
    masked: Vec<u32>,
    /// Numbers of the examples, for messages.
    pub description: String,
}

impl DeepSize for ExampleBatch {
    fn deep_size(&self) -> u64 {
        let tokens = (self.inputs.capacity() + self.targets.capacity() + self.weights.capacity()) * size_of::<i32>();
        let rows = self.numbers.capacity() * size_of::<u64>() + self.masked.capacity() * size_of::<u32>();
        let bytes = self.images.capacity() + self.kinds.capacity() + self.description.capacity();
        (size_of::<Self>() + tokens + rows + bytes) as u64
    }
}

/// Maximum length of [`ExampleBatch::description`] in bytes.
const DESCRIPTION_BYTES_MAX: usize = 120;
/// Bytes of a token of a batch: input, target, weight and kind.
const TOKEN_BYTES: usize = size_of::<[i32; 2]>() + size_of::<f32>() + size_of::<Option<TokenKind>>();
/// Bytes of a row of a batch: number of the example and of its masked tokens.
const ROW_BYTES: usize = size_of::<u64>() + size_of::<u32>();

impl ExampleBatch {
    /// Batch with room for `size` examples, all padding.
    fn empty(size: usize, length: usize, side: usize, eos_token: u32, description: &str) -> Self {
        Self {
            size,
            length,
            side,
            images: Vec::with_capacity(size * side * side * 3),
            inputs: vec![eos_token as i32; size * length],
            targets: vec![eos_token as i32; size * length],
            weights: vec![0.0; size * length],
            kinds: vec![None; size * length],
            numbers: Vec::with_capacity(size),
            masked: Vec::with_capacity(size),
            description: description[..description.floor_char_boundary(DESCRIPTION_BYTES_MAX)].to_owned(),
        }
    }

    /// Fills the next row with an example, whose prompt, answer and end of text have at most `length + 1` tokens.
    fn push(&mut self, example: &Example, number: u64, weighed: &WeighedAnswer, eos_token: u32) {
        let (row, text) = (self.numbers.len() * self.length, &example.text);
        let tokens = text.prompt.iter().chain(&text.answer).chain([&eos_token]).map(|token| *token as i32);
        for (at, token) in tokens.take(self.length + 1).enumerate() {
            if at < self.length {
                self.inputs[row + at] = token;
            }
            if at > 0 {
                self.targets[row + at - 1] = token;
            }
        }
        // The last token of the prompt predicts the first one of the answer.
        let answer = (text.prompt.len().saturating_sub(1)..self.length).map(|at| row + at);
        for (at, (weight, kind)) in answer.zip(weighed.weights.iter().zip(&weighed.kinds)) {
            self.weights[at] = *weight;
            self.kinds[at] = Some(*kind);
        }
        self.images.extend_from_slice(&example.image.rgb);
        self.numbers.push(number);
        self.masked.push(weighed.masked.iter().filter(|masked| **masked).count() as u32);
    }

    /// Splits the batch into micro-batches of at most `size` examples; borrows the batch if one holds all of them.
    pub fn micro_batches(&self, size: usize) -> impl Iterator<Item = Cow<'_, Self>> {
        let size = size.max(1);
        (0..self.size).step_by(size).map(move |from| self.rows_or_all(from..(from + size).min(self.size)))
    }

    /// Returns the examples `rows`; borrows the batch if these are all of them.
    pub fn rows_or_all(&self, rows: Range<usize>) -> Cow<'_, Self> {
        match rows == (0..self.size) {
            true => Cow::Borrowed(self),
            false => Cow::Owned(self.rows(rows.start, rows.end)),
        }
    }

    /// Copies the examples `from..to` to a new batch.
    pub fn rows(&self, from: usize, to: usize) -> Self {
        let tokens = from * self.length..to * self.length;
        let image = self.side * self.side * 3;
        Self {
            size: to - from,
            length: self.length,
            side: self.side,
            images: self.images[from * image..to * image].to_vec(),
            inputs: self.inputs[tokens.clone()].to_vec(),
            targets: self.targets[tokens.clone()].to_vec(),
            weights: self.weights[tokens.clone()].to_vec(),
            kinds: self.kinds[tokens].to_vec(),
            numbers: self.numbers[from..to].to_vec(),
            masked: self.masked[from..to].to_vec(),
            description: self.description.clone(),
        }
    }

    /// Positions `row * length + column` whose target has a weight above 0.
    pub fn selected(&self) -> Vec<usize> {
        (0..self.weights.len()).filter(|at| self.weights[*at] > 0.0).collect()
    }

    /// Positions whose target is a token of an answer or its end of text.
    pub fn answered(&self) -> Vec<usize> {
        (0..self.kinds.len()).filter(|at| self.kinds[*at].is_some()).collect()
    }

    /// Number of tokens of all answers, end of text included.
    pub fn answer_tokens(&self) -> u64 {
        self.kinds.iter().flatten().count() as u64
    }

    /// Number of masked tokens of all answers, regardless of their weight.
    pub fn masked(&self) -> u64 {
        self.masked.iter().map(|masked| u64::from(*masked)).sum()
    }

    /// Sums of the batch, without the loss.
    pub fn sums(&self) -> StepSums {
        let tokens = self.answer_tokens();
        StepSums {
            weighted_loss: 0.0,
            weights: self.weights.iter().map(|weight| f64::from(*weight)).sum(),
            tokens,
            selected: tokens - self.masked(),
        }
    }
}

/// Maximum of [`ExampleBatch::deep_size`] with `text` text tokens per row.
pub fn batch_bytes_max(text: usize, image_size: usize, size: usize) -> u64 {
    let row = 3 * image_size * image_size + TOKEN_BYTES * text + ROW_BYTES;
    (size_of::<ExampleBatch>() + size * row + DESCRIPTION_BYTES_MAX) as u64
}

/// Bytes that a validation holds: a batch, its examples and the weights of their tokens.
pub fn validation_bytes(batch: &ExampleBatch, examples: &[Example], weighed: &[WeighedAnswer]) -> u64 {
    let examples: u64 = examples.iter().map(DeepSize::deep_size).sum();
    batch.deep_size() + examples + weighed.iter().map(DeepSize::deep_size).sum::<u64>()
}

/// Maximum of [`validation_bytes`] with tokens of at most `token_bytes` bytes of text.
pub fn validation_bytes_max(text: usize, image_size: usize, size: usize, token_bytes: usize) -> u64 {
    let tokens = text + 1;
    // Bytes of prompt and answer; the question is a part of the prompt.
    let written = tokens * token_bytes;
    let example = size_of::<Example>() + 3 * image_size * image_size + tokens * size_of::<u32>() + written;
    // A field has at least one byte, and one that separates it from the next.
    let fields = (written / 2 + 1) * size_of::<std::ops::Range<usize>>();
    let weighed = size_of::<WeighedAnswer>() + tokens * (size_of::<f32>() + size_of::<[bool; 2]>()) + fields;
    batch_bytes_max(text, image_size, size) + (size * (example + weighed)) as u64
}

/// Sizes of batches and of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    /// Number of examples in a batch.
    pub size: usize,
    /// Text tokens of a row.
    pub length: usize,
    /// Number of batches in a step.
    pub accumulation: usize,
    /// Side of an image in pixels.
    pub side: usize,
}

/// Source of batches by their number; shared by worker threads.
#[derive(Clone, Debug)]
pub struct BatchLoader {
    /// Store that reads the examples.
    pub store: Arc<ImageTextStore>,
    selective: selective::SelectiveLoss,
    seed: u32,
    /// Sizes of a batch.
    pub shape: BatchShape,
    /// Examples of the first batch; `None` if it follows the order of the epoch.
    first: Option<Arc<[u64]>>,
}

impl BatchLoader {
    /// Batches of a shape; `seed` is the seed of the run.
    pub fn new(store: Arc<ImageTextStore>, settings: &VisionLanguage, seed: u32, shape: BatchShape) -> Self {
        Self { store, selective: settings.selective.clone(), seed, shape, first: None }
    }

    /// Replaces the first batch by the examples with the most tokens in the loss, whose logits dominate the memory of a step.
    /// Among equal examples the first ones of the data are taken.
    ///
    /// # Errors
    /// As [`BatchLoader::training_batch`].
    pub fn put_longest_first(&mut self) -> Result<(), DataError> {
        let on = self.selective.masks_at(0);
        // One more than a batch before `truncate`.
        let mut longest: Vec<(usize, u64)> = Vec::with_capacity(self.shape.size + 1);
        for number in 0..self.store.count(Split::Train) {
            let text = self.store.text(Split::Train, number)?;
            let weighed = weigh_answer(&self.selective, on, &text.answer_text, &text.answer, &self.store.tokenizer)?;
            let tokens = weighed.weights.iter().filter(|weight| **weight > 0.0).count();
            let rank = longest.partition_point(|(other, _)| *other >= tokens);
            longest.insert(rank, (tokens, number));
            longest.truncate(self.shape.size);
        }
        // With fewer examples than a batch has rows, they repeat, as in an epoch.
        let numbers = longest.iter().map(|(_, number)| *number).cycle();
        self.first = Some(numbers.take(self.shape.size.min(longest.len() * self.shape.size)).collect());
        Ok(())
    }

    /// Number of batches per epoch; the last batch is filled up from the next epoch.
    pub fn per_epoch(&self) -> u64 {
        self.store.count(Split::Train).div_ceil(self.shape.size as u64)
    }

    /// Returns training batch `number`, masked by the schedule of the step that it belongs to.
    ///
    /// # Errors
    /// An example has changed since the data was opened.
    pub fn training_batch(&self, number: u64) -> Result<ExampleBatch, DataError> {
        let numbers = self.example_numbers(number);
        let listed: String = numbers.iter().map(|example| format!(" {example}")).collect();
        let description = format!("batch {number}, examples{listed}");
        let on = self.selective.masks_at(number / self.shape.accumulation as u64);
        let mut batch = self.empty(numbers.len(), &description);
        // One example at a time, so that a worker holds no second copy of the images.
        for number in numbers {
            let example = self.store.example(Split::Train, number)?;
            let weighed = self.weighed(&example, on)?;
            batch.push(&example, number, &weighed, self.store.tokenizer.eos_token());
        }
        Ok(batch)
    }

    /// Numbers of the examples of training batch `number`.
    pub fn example_numbers(&self, number: u64) -> Vec<u64> {
        if let Some(first) = self.first.as_ref().filter(|_| number == 0) {
            return first.to_vec();
        }
        let (count, size) = (self.store.count(Split::Train), self.shape.size as u64);
        items_of_batch(self.seed, "order", number, size, count).collect()
    }

    /// Returns examples and their numbers of validation batch `number` of a split: the same in each validation, fewer in the last
    /// batch, none behind it.
    ///
    /// # Errors
    /// As [`BatchLoader::training_batch`].
    pub fn held_out(&self, split: Split, number: u64) -> Result<(Vec<u64>, Vec<Example>), DataError> {
        let numbers = self.held_out_numbers(split, number);
        let examples = numbers.iter().map(|number| self.store.example(split, *number)).collect::<Result<_, _>>()?;
        Ok((numbers, examples))
    }

    /// Numbers of the examples of validation batch `number` of a split.
    pub fn held_out_numbers(&self, split: Split, number: u64) -> Vec<u64> {
        let count = self.store.count(split);
        let order = Permutation::new(self.seed, "validation", split as u64, count);
        let first = number.saturating_mul(self.shape.size as u64).min(count);
        let last = first.saturating_add(self.shape.size as u64).min(count);
        (first..last).map(|position| order.at(position)).collect()
    }

    /// Returns the number of free answers of a validation of at most `batches` batches and `answers` answers of a kind: to
    /// held-out images, to grey ones in their place, and to unseen ones.
    pub fn answered(&self, batches: u64, answers: usize, grey_images: bool) -> u64 {
        let max = batches.saturating_mul(self.shape.size as u64).min(answers as u64);
        let of = |split| self.store.count(split).min(max);
        of(Split::Validation) * (1 + u64::from(grey_images)) + of(Split::Unseen)
    }

    /// Builds the batch of `examples` and the weights of their tokens; `on` switches the mask.
    ///
    /// # Errors
    /// The tokens of an answer do not match its text.
    pub fn assemble(
        &self,
        examples: &[Example],
        numbers: &[u64],
        on: bool,
        description: &str,
    ) -> Result<(ExampleBatch, Vec<WeighedAnswer>), DataError> {
        let weighed: Vec<WeighedAnswer> =
            examples.iter().map(|example| self.weighed(example, on)).collect::<Result<_, DataError>>()?;
        let mut batch = self.empty(examples.len(), description);
        for ((example, number), weighed) in examples.iter().zip(numbers).zip(&weighed) {
            batch.push(example, *number, weighed, self.store.tokenizer.eos_token());
        }
        Ok((batch, weighed))
    }

    fn empty(&self, size: usize, description: &str) -> ExampleBatch {
        let BatchShape { length, side, .. } = self.shape;
        ExampleBatch::empty(size, length, side, self.store.tokenizer.eos_token(), description)
    }

    fn weighed(&self, example: &Example, on: bool) -> Result<WeighedAnswer, DataError> {
        let text = &example.text;
        weigh_answer(&self.selective, on, &text.answer_text, &text.answer, &self.store.tokenizer)
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
