//! Shape of a GPT-2, and the numbers that follow from it without a network.

use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};

/// Sizes of a GPT-2, without those of its vocabulary and its LoRA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpt2Shape {
    /// Number of blocks.
    pub layers: usize,
    /// Attention heads of a block.
    pub heads: usize,
    /// Features of a token between blocks; a multiple of `heads`.
    pub hidden_size: usize,
    /// Maximum number of tokens of a sequence.
    pub context_length: usize,
}

impl Gpt2Shape {
    /// Number of parameters with a vocabulary of this many tokens: embeddings, blocks and normalisation; the output is tied.
    pub fn parameters(&self, vocabulary: usize) -> u64 {
        let Self { layers, hidden_size: width, context_length: context, .. } = *self;
        // Weights and biases of the four linear layers, and scale and shift of the two normalisations.
        let block = 12 * width * width + 9 * width + 4 * width;
        ((vocabulary + context) * width + layers * block + 2 * width) as u64
    }

    /// Buffer for the KV caches of `batches` batches of this many sequences, each of at most `positions` tokens.
    pub fn decode_cache(&self, batches: usize, sequences: usize, positions: usize) -> Buffer {
        let bytes = sequences * self.layers * 2 * positions * self.hidden_size * size_of::<f32>();
        let cap = Cap { items: batches as u64, bytes: bytes as u64 };
        Buffer::new("decode_cache", Policy::Refuse, cap)
            .because("keys and values of the examples that are answered at once")
    }
}
