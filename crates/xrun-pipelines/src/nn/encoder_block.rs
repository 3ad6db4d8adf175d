//! A block of the Vision Transformer (Dosovitskiy et al. 2021) and of what came from it, such as the Audio Spectrogram
//! Transformer: every token sees every other.
//!
//! ```text
//! x += attention(norm(x)), x += mlp(norm(x))
//! ```

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Device;
use xrun_ops::{AttentionMask, Gelu, attention, gelu, layer_norm};

use super::Tensor;
use super::transformer::parameter;

/// As Hugging Face's `ViTConfig` and `ASTConfig` have it.
pub const EPSILON: f64 = 1e-12;
/// The hidden layer of a block is so many times as wide as a token.
pub const MLP_RATIO: usize = 4;

/// Normalisation over the features of a token, with the names of Burn's `LayerNorm`.
#[derive(Module, Debug)]
pub struct Norm {
    gamma: Param<Tensor<1>>,
    beta: Param<Tensor<1>>,
    #[module(skip)]
    epsilon: f64,
}

/// Multi-head attention, with the names of Burn's `MultiHeadAttention`.
#[derive(Module, Debug)]
pub struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    #[module(skip)]
    heads: usize,
}

/// See the file's head.
#[derive(Module, Debug)]
pub struct EncoderBlock {
    layernorm_before: Norm,
    attention: Attention,
    layernorm_after: Norm,
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

impl Norm {
    /// Scales of one and shifts of zero.
    pub fn new(width: usize, epsilon: f64, device: &Device) -> Self {
        Self { gamma: parameter([width], 1.0, device), beta: parameter([width], 0.0, device), epsilon }
    }

    /// `[batch, tokens, width]` to the same.
    pub fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        layer_norm(input, self.gamma.val(), self.beta.val(), self.epsilon)
    }
}

impl Attention {
    /// All but the first values, which are to be drawn.
    pub fn new(width: usize, heads: usize, device: &Device) -> Self {
        let linear = || LinearConfig::new(width, width).init(device);
        Self { query: linear(), key: linear(), value: linear(), output: linear(), heads }
    }

    /// Each of `tokens`, `[batch, n, width]`, looks at all of `seen`, `[batch, m, width]`: `[batch, n, width]`. Of one `tokens` for
    /// all, `[1, n, width]`, queries are made once.
    pub fn forward(&self, tokens: Tensor<3>, seen: Tensor<3>) -> Tensor<3> {
        let query = linear(&self.query, tokens);
        let [_, count, width] = query.dims();
        let query = query.expand([seen.dims()[0], count, width]);
        let (key, value) = (linear(&self.key, seen.clone()), linear(&self.value, seen));
        linear(&self.output, attention(query, key, value, self.heads, AttentionMask::None))
    }
}

impl EncoderBlock {
    /// All but the first values, which are to be drawn.
    pub fn new(width: usize, heads: usize, device: &Device) -> Self {
        let wide = MLP_RATIO * width;
        Self {
            layernorm_before: Norm::new(width, EPSILON, device),
            attention: Attention::new(width, heads, device),
            layernorm_after: Norm::new(width, EPSILON, device),
            intermediate: LinearConfig::new(width, wide).init(device),
            output: LinearConfig::new(wide, width).init(device),
        }
    }

    /// `[batch, tokens, width]` to the same.
    pub fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        let normal = self.layernorm_before.forward(input.clone());
        let middle = input + self.attention.forward(normal.clone(), normal);
        let normal = self.layernorm_after.forward(middle.clone());
        middle + linear(&self.output, gelu(linear(&self.intermediate, normal), Gelu::Erf))
    }
}

/// A linear layer, `[batch, tokens, inputs]` to `[batch, tokens, outputs]`, as one product. Burn's would be one for each sequence,
/// and have a gradient of the weights for each.
pub fn linear(layer: &Linear, input: Tensor<3>) -> Tensor<3> {
    let [batch, tokens, inputs] = input.dims();
    let output = layer.forward(input.reshape([batch * tokens, inputs]));
    let outputs = output.dims()[1];
    output.reshape([batch, tokens, outputs])
}
