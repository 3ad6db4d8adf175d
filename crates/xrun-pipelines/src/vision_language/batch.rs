//! How do examples become a batch on the host? Pictures, tokens in, tokens to be said next, and what each weighs.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::selective::{self, StepSums, TokenKind, Weighed, weigh};
use super::settings::Settings;
use xrun_core::bounded::HeldBytes;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;
use xrun_data::image_text::store::{Example, ImageTextStore};
use xrun_data::order::Order;

/// `size` examples of `length` text tokens each, row by row; what fills up weighs nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct ExampleBatch {
    /// Examples, which are the rows.
    pub size: usize,
    /// Text tokens of each row.
    pub length: usize,
    /// Pixels along a side of a picture.
    pub side: usize,
    /// `size * side * side * 3` bytes: RGB, row by row.
    pub pictures: Vec<u8>,
    /// `size * length`, filled up with the end of text.
    pub inputs: Vec<i32>,
    /// The tokens after the inputs, filled up in the same way.
    pub targets: Vec<i32>,
    /// Of each target in the loss: 0 for those of the prompt and of what fills up.
    pub weights: Vec<f32>,
    /// Of each target; `None` for those of the prompt and of what fills up.
    pub kinds: Vec<Option<TokenKind>>,
    /// Of the examples in their split.
    pub numbers: Vec<u64>,
    /// Masked tokens of each answer. One with a `structure_weight` of 1 cannot be told by its weight.
    masked: Vec<u32>,
    /// Which examples these are, for messages.
    described: String,
}

impl HeldBytes for ExampleBatch {
    fn held_bytes(&self) -> u64 {
        let tokens = (self.inputs.capacity() + self.targets.capacity() + self.weights.capacity()) * size_of::<i32>();
        let rows = self.numbers.capacity() * size_of::<u64>() + self.masked.capacity() * size_of::<u32>();
        let bytes = self.pictures.capacity() + self.kinds.capacity() + self.described.capacity();
        (size_of::<Self>() + tokens + rows + bytes) as u64
    }
}

/// Bytes of [`ExampleBatch::describe`].
const DESCRIBED_MAX: usize = 120;
/// Of a token of a batch: what goes in, what is to come out, its weight and its kind.
const TOKEN_BYTES: usize = size_of::<[i32; 2]>() + size_of::<f32>() + size_of::<Option<TokenKind>>();
/// Of a row: the number of the example and its masked tokens.
const ROW_BYTES: usize = size_of::<u64>() + size_of::<u32>();

impl ExampleBatch {
    /// Rows of `length` tokens that are all filling.
    fn empty(size: usize, length: usize, side: usize, end: u32, described: &str) -> Self {
        Self {
            size,
            length,
            side,
            pictures: Vec::with_capacity(size * side * side * 3),
            inputs: vec![end as i32; size * length],
            targets: vec![end as i32; size * length],
            weights: vec![0.0; size * length],
            kinds: vec![None; size * length],
            numbers: Vec::with_capacity(size),
            masked: Vec::with_capacity(size),
            described: described[..described.floor_char_boundary(DESCRIBED_MAX)].to_owned(),
        }
    }

    /// The next row. The tokens of prompt, answer and end of text are `length + 1` at most.
    fn push(&mut self, example: &Example, number: u64, weighed: &Weighed, end: u32) {
        let (row, text) = (self.numbers.len() * self.length, &example.text);
        let tokens = text.prompt.iter().chain(&text.answer).chain([&end]).map(|token| *token as i32);
        for (at, token) in tokens.take(self.length + 1).enumerate() {
            if at < self.length {
                self.inputs[row + at] = token;
            }
            if at > 0 {
                self.targets[row + at - 1] = token;
            }
        }
        // The first token of the answer is the target of the last one of the prompt.
        let answer = (text.prompt.len().saturating_sub(1)..self.length).map(|at| row + at);
        for (at, (weight, kind)) in answer.zip(weighed.weights.iter().zip(&weighed.kinds)) {
            self.weights[at] = *weight;
            self.kinds[at] = Some(*kind);
        }
        self.pictures.extend_from_slice(&example.picture.rgb);
        self.numbers.push(number);
        self.masked.push(weighed.masked.iter().filter(|masked| **masked).count() as u32);
    }

    /// The same examples, at most so many at a time; the batch itself where that is all of them.
    pub fn parts(&self, size: usize) -> impl Iterator<Item = Cow<'_, Self>> {
        let size = size.max(1);
        (0..self.size).step_by(size).map(move |from| self.rows_or_all(from..(from + size).min(self.size)))
    }

    /// Examples `rows`; the batch itself where that is all of them.
    pub fn rows_or_all(&self, rows: Range<usize>) -> Cow<'_, Self> {
        match rows == (0..self.size) {
            true => Cow::Borrowed(self),
            false => Cow::Owned(self.rows(rows.start, rows.end)),
        }
    }

    /// Examples `from..to` as a batch of their own.
    pub fn rows(&self, from: usize, to: usize) -> Self {
        let tokens = from * self.length..to * self.length;
        let picture = self.side * self.side * 3;
        Self {
            size: to - from,
            length: self.length,
            side: self.side,
            pictures: self.pictures[from * picture..to * picture].to_vec(),
            inputs: self.inputs[tokens.clone()].to_vec(),
            targets: self.targets[tokens.clone()].to_vec(),
            weights: self.weights[tokens.clone()].to_vec(),
            kinds: self.kinds[tokens].to_vec(),
            numbers: self.numbers[from..to].to_vec(),
            masked: self.masked[from..to].to_vec(),
            described: self.described.clone(),
        }
    }

    /// Places in the batch, `row * length + at`, whose target weighs something.
    pub fn selected(&self) -> Vec<usize> {
        (0..self.weights.len()).filter(|at| self.weights[*at] > 0.0).collect()
    }

    /// Places in the batch whose target is a token of an answer or its end of text.
    pub fn answered(&self) -> Vec<usize> {
        (0..self.kinds.len()).filter(|at| self.kinds[*at].is_some()).collect()
    }

    /// Tokens of all answers, with the end of text.
    pub fn answer_tokens(&self) -> u64 {
        self.kinds.iter().flatten().count() as u64
    }

    /// Of these, those that are masked, whatever they weigh.
    pub fn masked(&self) -> u64 {
        self.masked.iter().map(|masked| u64::from(*masked)).sum()
    }

    /// All sums of a step but that of the losses, which is 0 here.
    pub fn sums(&self) -> StepSums {
        let tokens = self.answer_tokens();
        StepSums {
            weighted_loss: 0.0,
            weights: self.weights.iter().map(|weight| f64::from(*weight)).sum(),
            tokens,
            selected: tokens - self.masked(),
        }
    }

    /// Which examples these are, for messages.
    pub fn describe(&self) -> &str {
        &self.described
    }
}

/// The most that one batch holds. `text` are the text tokens of a row.
pub fn batch_bytes_max(text: usize, image_size: usize, size: usize) -> u64 {
    let row = 3 * image_size * image_size + TOKEN_BYTES * text + ROW_BYTES;
    (size_of::<ExampleBatch>() + size * row + DESCRIBED_MAX) as u64
}

/// What a validation holds of a batch: the batch itself, its examples and what their tokens weigh.
pub fn validation_bytes(batch: &ExampleBatch, examples: &[Example], weighed: &[Weighed]) -> u64 {
    let examples: u64 = examples.iter().map(HeldBytes::held_bytes).sum();
    batch.held_bytes() + examples + weighed.iter().map(HeldBytes::held_bytes).sum::<u64>()
}

/// The most of it. A token stands for `token_bytes` at most.
pub fn validation_bytes_max(text: usize, image_size: usize, size: usize, token_bytes: usize) -> u64 {
    let tokens = text + 1;
    // What the prompt and the answer are written in; the question is a part of the prompt.
    let written = tokens * token_bytes;
    let example = size_of::<Example>() + 3 * image_size * image_size + tokens * size_of::<u32>() + written;
    // A field has a byte of its own and one that divides it from the next.
    let fields = (written / 2 + 1) * size_of::<std::ops::Range<usize>>();
    let weighed = size_of::<Weighed>() + tokens * (size_of::<f32>() + size_of::<[bool; 2]>()) + fields;
    batch_bytes_max(text, image_size, size) + (size * (example + weighed)) as u64
}

/// How large batches are, and how many make a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    /// Examples in a batch.
    pub size: usize,
    /// Text tokens of a row.
    pub length: usize,
    /// Batches in a step.
    pub accumulation: usize,
    /// Pixels along a side of a picture.
    pub side: usize,
}

/// Makes batches by their number; used by many threads at once.
#[derive(Clone, Debug)]
pub struct Batches {
    store: Arc<ImageTextStore>,
    selective: selective::Settings,
    seed: u32,
    shape: BatchShape,
    /// The examples of the first batch, where they are not those of the order.
    first: Option<Arc<[u64]>>,
}

impl Batches {
    /// Batches of this shape; `seed` is that of the run.
    pub fn new(store: Arc<ImageTextStore>, settings: &Settings, seed: u32, shape: BatchShape) -> Self {
        Self { store, selective: settings.selective.clone(), seed, shape, first: None }
    }

    /// Makes the first batch of the examples that have most tokens in the loss: logits are computed for those, and they are
    /// what a step needs most memory for. Of equals those that come first in the data.
    ///
    /// # Errors
    /// As [`Batches::train`].
    pub fn begin_with_the_longest(&mut self) -> Result<(), DataError> {
        let on = self.selective.is_on(0);
        // One more than a batch for a moment.
        let mut longest: Vec<(usize, u64)> = Vec::with_capacity(self.shape.size + 1);
        for number in 0..self.store.count(Split::Train) {
            let text = self.store.text(Split::Train, number)?;
            let weighed = weigh(&self.selective, on, &text.answer_text, &text.answer, self.store.tokenizer())?;
            let tokens = weighed.weights.iter().filter(|weight| **weight > 0.0).count();
            let place = longest.partition_point(|(other, _)| *other >= tokens);
            longest.insert(place, (tokens, number));
            longest.truncate(self.shape.size);
        }
        // Fewer examples than a batch: again from the longest, as in the order of an epoch.
        let numbers = longest.iter().map(|(_, number)| *number).cycle();
        self.first = Some(numbers.take(self.shape.size.min(longest.len() * self.shape.size)).collect());
        Ok(())
    }

    /// What reads the examples.
    pub fn store(&self) -> &Arc<ImageTextStore> {
        &self.store
    }

    /// How large a batch is.
    pub fn shape(&self) -> BatchShape {
        self.shape
    }

    /// Text tokens of a row.
    pub fn length(&self) -> usize {
        self.shape.length
    }

    /// Pixels along a side of a picture.
    pub fn side(&self) -> usize {
        self.shape.side
    }

    /// Batches in one pass over the examples to train on; the last one takes some of the next pass.
    pub fn per_epoch(&self) -> u64 {
        self.store.count(Split::Train).div_ceil(self.shape.size as u64)
    }

    /// Training batch `number`. The mask is on where the schedule has it on in the step that the batch is part of.
    ///
    /// # Errors
    /// An example was changed since the data was opened.
    pub fn train(&self, number: u64) -> Result<ExampleBatch, DataError> {
        let numbers = self.numbers(number);
        let listed: String = numbers.iter().map(|example| format!(" {example}")).collect();
        let described = format!("batch {number}, examples{listed}");
        let on = self.selective.is_on(number / self.shape.accumulation as u64);
        let mut batch = self.empty(numbers.len(), &described);
        // One example at a time: a worker holds no second copy of the pictures.
        for number in numbers {
            let example = self.store.example(Split::Train, number)?;
            let weighed = self.weighed(&example, on)?;
            batch.push(&example, number, &weighed, self.store.tokenizer().end());
        }
        Ok(batch)
    }

    /// Which examples training batch `number` has.
    pub fn numbers(&self, number: u64) -> Vec<u64> {
        if let Some(first) = self.first.as_ref().filter(|_| number == 0) {
            return first.to_vec();
        }
        let (count, size) = (self.store.count(Split::Train), self.shape.size as u64);
        let mut order: Option<(u64, Order)> = None;
        let of = |at: u64| {
            let position = number * size + at;
            let epoch = position / count;
            let known = order.take().filter(|(of, _)| *of == epoch);
            let (_, this) =
                order.insert(known.unwrap_or_else(|| (epoch, Order::new(self.seed, "order", epoch, count))));
            this.at(position % count)
        };
        (0..size).map(of).collect()
    }

    /// Examples of validation batch `number` of a split and their numbers, the same each time; fewer at the end of the split.
    ///
    /// # Errors
    /// As [`Batches::train`].
    pub fn held_out(&self, split: Split, number: u64) -> Result<(Vec<u64>, Vec<Example>), DataError> {
        let numbers = self.held_out_numbers(split, number);
        let examples = numbers.iter().map(|number| self.store.example(split, *number)).collect::<Result<_, _>>()?;
        Ok((numbers, examples))
    }

    /// Which examples these are.
    pub fn held_out_numbers(&self, split: Split, number: u64) -> Vec<u64> {
        let count = self.store.count(split);
        let order = Order::new(self.seed, "validation", split as u64, count);
        let first = number.saturating_mul(self.shape.size as u64).min(count);
        let last = first.saturating_add(self.shape.size as u64).min(count);
        (first..last).map(|position| order.at(position)).collect()
    }

    /// The batch of these examples, and what their tokens weigh with the mask on or off.
    ///
    /// # Errors
    /// The tokens of an answer are not those of its text.
    pub fn of(
        &self,
        examples: &[Example],
        numbers: &[u64],
        on: bool,
        described: &str,
    ) -> Result<(ExampleBatch, Vec<Weighed>), DataError> {
        let weighed: Vec<Weighed> =
            examples.iter().map(|example| self.weighed(example, on)).collect::<Result<_, DataError>>()?;
        let mut batch = self.empty(examples.len(), described);
        for ((example, number), weighed) in examples.iter().zip(numbers).zip(&weighed) {
            batch.push(example, *number, weighed, self.store.tokenizer().end());
        }
        Ok((batch, weighed))
    }

    fn empty(&self, size: usize, described: &str) -> ExampleBatch {
        let BatchShape { length, side, .. } = self.shape;
        ExampleBatch::empty(size, length, side, self.store.tokenizer().end(), described)
    }

    fn weighed(&self, example: &Example, on: bool) -> Result<Weighed, DataError> {
        let text = &example.text;
        weigh(&self.selective, on, &text.answer_text, &text.answer, self.store.tokenizer())
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
