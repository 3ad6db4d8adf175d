//! Buffers of the task and their caps, declared once for the plan and for the code that fills them.

use super::batch::{BatchShape, batch_bytes_max, validation_bytes_max};
use super::settings::{ModelShape, VisionLanguage};
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::settings::sections::Limits;
use xrun_data::feed;
use xrun_data::micro_batches;
use xrun_data::tokenizer::Tokenizer;
use xrun_training::metrics::fields::{FIELDS_MAX, FieldScores};

/// Sets of answers whose fields are counted: to held-out images, to unseen ones and to grey ones.
const ANSWER_SETS: u64 = 3;

xrun_core::buffers! {
    /// Buffers of the task; the data set declares its own.
    pub struct Buffers {
        /// Batches that wait for the training thread.
        pub feed: feed::Buffers,
        /// Batch of the running validation.
        pub validation_batch: Buffer,
        /// KV cache of the free answers of a batch.
        pub decode_cache: Buffer,
        /// Gradients of the micro-batches of a batch.
        pub part_gradients: Buffer,
        /// Correct answers by field.
        pub field_counts: Buffer,
    }
}

impl Buffers {
    /// Declares the buffers; `trained` is the number of trained parameters.
    pub fn new(
        settings: &VisionLanguage,
        shape: &ModelShape,
        limits: &Limits,
        batch: BatchShape,
        tokenizer: &Tokenizer,
        trained: u64,
    ) -> Self {
        let BatchShape { size, length, side, .. } = batch;
        let token_bytes = (0..tokenizer.size() as u32).map(|token| tokenizer.bytes(token)).max().unwrap_or_default();
        let validation = validation_bytes_max(length, side, size, token_bytes);
        let answered = size.min(limits.batch_size);
        // A finished row keeps its place until the last row of its batch ends, and all rows start behind the longest prompt.
        let positions = settings.sequence_length + settings.max_new_tokens;
        let fixed = |name, items, bytes| Buffer::new(name, Policy::Refuse, Cap { items, bytes });
        Self {
            feed: feed::Buffers::new(limits, batch_bytes_max(length, side, size)),
            validation_batch: fixed("validation_batch", 1, validation)
                .because("one batch of a validation with the texts of its examples and the weights of their tokens"),
            decode_cache: shape.language().decode_cache(
                micro_batches::concurrent_micro_batches(limits),
                answered,
                positions,
            ),
            part_gradients: micro_batches::gradient_buffer(trained, limits),
            field_counts: fixed(
                "field_counts",
                ANSWER_SETS * FIELDS_MAX as u64,
                ANSWER_SETS * FieldScores::BYTES_MAX as u64,
            )
            .because("correct answers by field, of at most 16 fields"),
        }
    }
}
