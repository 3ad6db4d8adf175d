//! Which buffers does the task have, and how much may each hold? Declared once, for the plan and for whoever fills them.

use super::batch::{BatchShape, batch_bytes_max, validation_bytes_max};
use super::settings::{Settings, Shape};
use crate::metrics::fields::{FIELDS_MAX, FieldScores};
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::settings::sections::Limits;
use xrun_data::feed;
use xrun_data::parts;
use xrun_data::tokenizer::Tokenizer;

/// Answers whose fields are counted apart: to held-out pictures, to unseen ones and to grey ones.
const COUNTED_APART: u64 = 3;

/// All but those of the data set, which has its own.
#[derive(Clone, Debug)]
pub struct Buffers {
    /// Batches on their way to the trainer.
    pub feed: feed::Buffers,
    /// The batch that a validation is looking at.
    pub validation_batch: Buffer,
    /// Keys and values of the tokens so far, while a batch is answered freely.
    pub decode_cache: Buffer,
    /// Gradients of the parts of a batch.
    pub part_gradients: Buffer,
    /// Right answers by field.
    pub field_counts: Buffer,
}

impl Buffers {
    /// Declares them; `trained` is the number of trained parameters.
    pub fn new(
        settings: &Settings,
        shape: &Shape,
        limits: &Limits,
        batch: BatchShape,
        tokenizer: &Tokenizer,
        trained: u64,
    ) -> Self {
        let BatchShape { size, length, side, .. } = batch;
        let token_bytes = (0..tokenizer.size() as u32).map(|token| tokenizer.bytes(token)).max().unwrap_or_default();
        let looked_at = validation_bytes_max(length, side, size, token_bytes);
        let answered = size.min(limits.batch_size);
        // Rows that have ended stay until the last one of their batch ends, behind the longest prompt.
        let positions = settings.sequence_length + settings.answer_tokens;
        let fixed = |name, items, bytes| Buffer::new(name, Policy::Refuse, Cap { items, bytes });
        Self {
            feed: feed::Buffers::new(limits, batch_bytes_max(length, side, size)),
            validation_batch: fixed("validation_batch", 1, looked_at)
                .because("one batch of a validation, with the texts of its examples and what their tokens weigh"),
            decode_cache: shape.language().decode_cache(parts::parts_at_once(limits), answered, positions),
            part_gradients: parts::part_gradients(trained, limits),
            field_counts: fixed(
                "field_counts",
                COUNTED_APART * FIELDS_MAX as u64,
                COUNTED_APART * FieldScores::BYTES_MAX as u64,
            )
            .because("right answers of each field, at most 16 fields"),
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Buffer> {
        self.feed.all().into_iter().chain([
            &self.validation_batch,
            &self.decode_cache,
            &self.part_gradients,
            &self.field_counts,
        ])
    }
}
