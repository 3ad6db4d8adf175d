//! A block of the Vision Transformer (Dosovitskiy et al. 2021) and of what came from it, such as the Audio Spectrogram
//! Transformer: every token sees every other.
//!
//! ```text
//! x += attention(norm(x)), x += mlp(norm(x))
//! ```

use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::Device;
use burn::tensor::activation::gelu;

use super::Tensor;

/// As Hugging Face's `ViTConfig` and `ASTConfig` have it.
const EPSILON: f64 = 1e-12;
/// The hidden layer of a block is so many times as wide as a token.
pub const MLP_RATIO: usize = 4;

/// See the file's head.
#[derive(Module, Debug)]
pub struct EncoderBlock {
    layernorm_before: LayerNorm,
    attention: MultiHeadAttention,
    layernorm_after: LayerNorm,
    intermediate: Linear,
    output: Linear,
}

/// Names in Hugging Face's files, as patterns, and ours: of blocks in a list `layer`, and of normalisation.
pub const NAMES: [(&str, &str); 6] = [
    (r"^encoder\.layer\.(\d+)\.attention\.attention\.", "layer.$1.attention."),
    (r"^encoder\.layer\.(\d+)\.attention\.output\.dense\.", "layer.$1.attention.output."),
    (r"^encoder\.layer\.(\d+)\.(intermediate|output)\.dense\.", "layer.$1.$2."),
    (r"^encoder\.layer\.(\d+)\.(layernorm_before|layernorm_after)\.", "layer.$1.$2."),
    // Burn's names of what normalisation multiplies by and adds.
    (r"(layernorm|layernorm_before|layernorm_after)\.weight$", "$1.gamma"),
    (r"(layernorm|layernorm_before|layernorm_after)\.bias$", "$1.beta"),
];

impl EncoderBlock {
    /// All but the first values, which are to be drawn.
    pub fn new(width: usize, heads: usize, device: &Device) -> Self {
        let wide = MLP_RATIO * width;
        Self {
            layernorm_before: norm(width, device),
            attention: MultiHeadAttentionConfig::new(width, heads).with_dropout(0.0).init(device),
            layernorm_after: norm(width, device),
            intermediate: LinearConfig::new(width, wide).init(device),
            output: LinearConfig::new(wide, width).init(device),
        }
    }

    /// `[batch, tokens, width]` to the same.
    pub fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        let normal = self.layernorm_before.forward(input.clone());
        let middle = input + self.attention.forward(MhaInput::self_attn(normal)).context;
        let normal = self.layernorm_after.forward(middle.clone());
        middle + self.output.forward(gelu(self.intermediate.forward(normal)))
    }
}

/// The normalisation of these encoders.
pub fn norm(width: usize, device: &Device) -> LayerNorm {
    LayerNormConfig::new(width).with_epsilon(EPSILON).init(device)
}
