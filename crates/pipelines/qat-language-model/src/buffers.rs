//! Buffers of the task and their caps, declared once for the plan and for the code that fills them.

use super::batch::{batch_bytes_max, windows_bytes_max};
use super::settings::QatLanguageModel;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::settings::sections::Limits;
use xrun_data::feed;
use xrun_training::gpt2_shape::Gpt2Shape;

xrun_core::buffers! {
    /// Buffers of the task; the data set declares its own.
    pub struct Buffers {
        /// Batches that wait for the training thread.
        pub feed: feed::Buffers,
        /// Batch of the running validation or calibration.
        pub validation_batch: Buffer,
        /// KV cache of the questions that are being answered.
        pub decode_cache: Buffer,
    }
}

impl Buffers {
    /// Buffers for batches of `size` questions with at most `windows` windows of their context.
    pub fn new(settings: &QatLanguageModel, shape: &Gpt2Shape, limits: &Limits, size: usize, windows: usize) -> Self {
        let bytes = batch_bytes_max(settings, size);
        let (answered, positions) = (size.min(limits.batch_size), settings.sequence_length + settings.max_new_tokens);
        let with_windows = bytes + windows_bytes_max(settings, size, windows);
        Self {
            feed: feed::Buffers::new(limits, bytes),
            validation_batch: Buffer::new("validation_batch", Policy::Refuse, Cap { items: 1, bytes: with_windows })
                .because(
                    "one batch of a validation with all windows of its questions, or one batch of the calibration",
                ),
            // A finished row keeps its place until the last row of its batch ends, and all rows start behind the longest prompt.
            decode_cache: shape.decode_cache(1, answered, positions),
        }
    }
}
