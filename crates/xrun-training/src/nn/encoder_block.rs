//! Block of the Vision Transformer (Dosovitskiy et al. 2021) and of its descendants, such as the Audio Spectrogram Transformer:
//! every token attends to every other.
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

/// Epsilon of layer normalisation, from Hugging Face's `ViTConfig` and `ASTConfig`.
pub const EPSILON: f64 = 1e-12;
/// Width of the hidden layer of a block over the width of a token.
pub const MLP_RATIO: usize = 4;

/// Layer normalisation over the features of a token, with the field names of Burn's `LayerNorm`.
#[derive(Module, Debug)]
pub struct Norm {
    gamma: Param<Tensor<1>>,
    beta: Param<Tensor<1>>,
    #[module(skip)]
    epsilon: f64,
}

/// Multi-head attention, with the field names of Burn's `MultiHeadAttention`.
#[derive(Module, Debug)]
pub struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    #[module(skip)]
    heads: usize,
}

/// Pre-norm transformer block: attention and MLP, each with a residual connection.
#[derive(Module, Debug)]
pub struct EncoderBlock {
    layernorm_before: Norm,
    attention: Attention,
    layernorm_after: Norm,
    intermediate: Linear,
    output: Linear,
}

/// Patterns of the tensor names in Hugging Face's files, and the names in this module: blocks in a list `layer`, and normalisation.
pub const HUGGING_FACE_NAMES: [(&str, &str); 6] = [
    (r"^encoder\.layer\.(\d+)\.attention\.attention\.", "layer.$1.attention."),
    (r"^encoder\.layer\.(\d+)\.attention\.output\.dense\.", "layer.$1.attention.output."),
    (r"^encoder\.layer\.(\d+)\.(intermediate|output)\.dense\.", "layer.$1.$2."),
    (r"^encoder\.layer\.(\d+)\.(layernorm_before|layernorm_after)\.", "layer.$1.$2."),
    // Scale and shift of normalisation bear Burn's names.
    (r"(layernorm|layernorm_before|layernorm_after)\.weight$", "$1.gamma"),
    (r"(layernorm|layernorm_before|layernorm_after)\.bias$", "$1.beta"),
];

impl Norm {
    /// Normalisation with scales of one and shifts of zero.
    pub fn new(width: usize, epsilon: f64, device: &Device) -> Self {
        Self { gamma: parameter([width], 1.0, device), beta: parameter([width], 0.0, device), epsilon }
    }

    /// Normalisation with these scales and shifts.
    pub fn of(gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, epsilon: f64) -> Self {
        Self { gamma, beta, epsilon }
    }

    /// Normalises each token of `[batch, tokens, width]`.
    pub fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        layer_norm(input, self.gamma.val(), self.beta.val(), self.epsilon)
    }
}

impl Attention {
    /// Layers whose initial values are still to be drawn by [`parameters`](super::parameters).
    pub fn new(width: usize, heads: usize, device: &Device) -> Self {
        let linear = || LinearConfig::new(width, width).init(device);
        Self { query: linear(), key: linear(), value: linear(), output: linear(), heads }
    }

    /// Attention of these layers: queries, keys, values, output.
    pub fn of([query, key, value, output]: [Linear; 4], heads: usize) -> Self {
        Self { query, key, value, output, heads }
    }

    /// Attention of `tokens`, `[batch, n, width]`, to `context`, `[batch, m, width]`; returns `[batch, n, width]`. The queries of
    /// tokens that all share, `[1, n, width]`, are computed once.
    pub fn forward(&self, tokens: Tensor<3>, context: Tensor<3>) -> Tensor<3> {
        let query = linear(&self.query, tokens);
        let [_, count, width] = query.dims();
        let query = query.expand([context.dims()[0], count, width]);
        let (key, value) = (linear(&self.key, context.clone()), linear(&self.value, context));
        linear(&self.output, attention(query, key, value, self.heads, AttentionMask::None))
    }
}

impl EncoderBlock {
    /// Layers whose initial values are still to be drawn by [`parameters`](super::parameters).
    pub fn new(width: usize, heads: usize, device: &Device) -> Self {
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        let hidden = MLP_RATIO * width;
        let norms = [(), ()].map(|()| Norm::new(width, EPSILON, device));
        let mlp = [linear(width, hidden), linear(hidden, width)];
        Self::of(norms, Attention::new(width, heads, device), mlp)
    }

    /// Block of these layers: normalisation before the attention and before the MLP, and the two layers of the MLP.
    pub fn of(norms: [Norm; 2], attention: Attention, mlp: [Linear; 2]) -> Self {
        let ([layernorm_before, layernorm_after], [intermediate, output]) = (norms, mlp);
        Self { layernorm_before, attention, layernorm_after, intermediate, output }
    }

    /// Output of the block, `[batch, tokens, width]` to the same shape.
    pub fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        let normalised = self.layernorm_before.forward(input.clone());
        let middle = input + self.attention.forward(normalised.clone(), normalised);
        let normalised = self.layernorm_after.forward(middle.clone());
        middle + linear(&self.output, gelu(linear(&self.intermediate, normalised), Gelu::Erf))
    }
}

/// Output of a linear layer, `[batch, tokens, inputs]` to `[batch, tokens, outputs]`, as one matrix product. Burn computes one for
/// each sequence, and a gradient of the weights for each.
pub fn linear(layer: &Linear, input: Tensor<3>) -> Tensor<3> {
    let [batch, tokens, inputs] = input.dims();
    let bias = layer.bias.as_ref().map(Param::val);
    let output = xrun_ops::linear(input.reshape([batch * tokens, inputs]), layer.weight.val(), bias);
    let outputs = output.dims()[1];
    output.reshape([batch, tokens, outputs])
}
