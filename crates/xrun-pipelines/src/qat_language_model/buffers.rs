//! Which buffers does the task have, and how much may each hold? Declared once, for the plan and for whoever fills them.

use super::batch::{batch_bytes_max, windows_bytes_max};
use super::settings::Settings;
use crate::gpt2_shape::Gpt2Shape;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::settings::sections::Limits;
use xrun_data::feed;

/// All but those of the data set, which has its own.
#[derive(Clone, Debug)]
pub struct Buffers {
    /// Batches on their way to the trainer.
    pub feed: feed::Buffers,
    /// The batch that a validation or a calibration is looking at.
    pub validation_batch: Buffer,
    /// Keys and values of the tokens so far, while questions are answered.
    pub decode_cache: Buffer,
}

impl Buffers {
    /// Of batches of `size` questions. A held-out question has `windows` windows of its context at most.
    pub fn new(settings: &Settings, shape: &Gpt2Shape, limits: &Limits, size: usize, windows: usize) -> Self {
        let bytes = batch_bytes_max(settings, size);
        let (answered, positions) = (size.min(limits.batch_size), settings.sequence_length + settings.answer_tokens);
        let with_windows = bytes + windows_bytes_max(settings, size, windows);
        Self {
            feed: feed::Buffers::new(limits, bytes),
            validation_batch: Buffer::new("validation_batch", Policy::Refuse, Cap { items: 1, bytes: with_windows })
                .because("one batch of a validation, with all windows of its questions, or of the calibration"),
            // Rows that have ended stay until the last one of their batch ends, behind the longest prompt.
            decode_cache: shape.decode_cache(1, answered, positions),
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Buffer> {
        self.feed.all().into_iter().chain([&self.validation_batch, &self.decode_cache])
    }
}
