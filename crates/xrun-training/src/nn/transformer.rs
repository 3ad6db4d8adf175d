//! Building blocks of GPT-2 (Radford et al. 2019): embeddings, normalisation, causal attention, LoRA.
//!
//! Between them tokens are rows, `[batch * length, width]`. The names of the fields are those of Hugging Face's files.

use std::ops::Range;
use std::sync::OnceLock;

use burn::module::{Module, Param};
use burn::tensor::Device;
use burn::tensor::activation::softmax;
use burn::tensor::{Int, TensorData};
use xrun_ops::{AttentionMask, attention, attention_packed, has_gpu_kernels, layer_norm};

use super::Tensor;
use super::graph::autodiff_like;
use super::matmul::ComputeDtype;

/// Epsilon of GPT-2's layer normalisation.
pub const EPSILON: f64 = 1e-5;
/// Standard deviation of GPT-2's initial weights; those that end a residual branch are divided by the root of the number of branches.
pub const INIT_DEVIATION: f64 = 0.02;
/// Score added to masked positions.
const MASKED: f32 = -1e9;

/// Tensor of token ids.
pub type Tokens<const D: usize> = burn::tensor::Tensor<D, Int>;

/// Table with a row for each token or position.
#[derive(Module, Debug)]
pub struct Embedding {
    /// `[rows, width]`
    pub weight: Param<Tensor<2>>,
}

/// Layer normalisation over the features of a token.
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// Scale of each feature, `[width]`; initially one.
    pub weight: Param<Tensor<1>>,
    /// Shift of each feature, `[width]`; initially zero.
    pub bias: Param<Tensor<1>>,
}

/// Low-rank adaptation of a linear layer (Hu et al. 2021).
#[derive(Module, Debug)]
pub struct Lora {
    /// `[inputs, rank]`
    pub a: Param<Tensor<2>>,
    /// `[rank, outputs]`; initially zero.
    pub b: Param<Tensor<2>>,
}

/// Parameter whose elements are all `value`.
pub fn parameter<const D: usize>(shape: [usize; D], value: f32, device: &Device) -> Param<Tensor<D>> {
    Param::from_tensor(Tensor::full(shape, value, device))
}

/// Applies a function to the values of a parameter, outside the graph. A parameter that requires gradients still does.
pub fn map_values<const D: usize>(
    parameter: &Param<Tensor<D>>,
    change: impl FnOnce(Tensor<D>) -> Tensor<D>,
) -> Param<Tensor<D>> {
    parameter.clone().map(|old| autodiff_like(change(old.clone().inner()), &old).set_require_grad(old.is_autodiff()))
}

/// Values of a parameter; a constant if it is frozen.
pub fn value<const D: usize>(parameter: &Param<Tensor<D>>, frozen: bool) -> Tensor<D> {
    if frozen { parameter.val().detach() } else { parameter.val() }
}

/// Moves token ids, row by row, to a device: `[batch, length]`.
pub fn tokens(ids: &[i32], batch: usize, length: usize, device: &Device) -> Tokens<2> {
    Tokens::from_data(TensorData::new(ids.to_vec(), [batch, length]), device)
}

impl Embedding {
    /// Table of zeros, whose initial values are drawn later.
    pub fn new(rows: usize, width: usize, device: &Device) -> Self {
        Self { weight: parameter([rows, width], 0.0, device) }
    }
}

impl Lora {
    /// Matrices of zeros, whose initial values are drawn later.
    pub fn new(inputs: usize, rank: usize, outputs: usize, device: &Device) -> Self {
        Self { a: parameter([inputs, rank], 0.0, device), b: parameter([rank, outputs], 0.0, device) }
    }
}

impl LayerNorm {
    /// Normalisation with scales of one and shifts of zero.
    pub fn new(width: usize, device: &Device) -> Self {
        Self { weight: parameter([width], 1.0, device), bias: parameter([width], 0.0, device) }
    }

    /// Normalises each row of `[tokens, width]`.
    pub fn forward(&self, input: Tensor<2>, frozen: bool) -> Tensor<2> {
        layer_norm(input, value(&self.weight, frozen), value(&self.bias, frozen), EPSILON)
    }
}

/// Shape of a batch of sequences, and its causal mask.
#[derive(Clone, Debug)]
pub struct BatchLayout {
    /// Number of sequences.
    pub batch: usize,
    /// Number of tokens of each sequence.
    pub length: usize,
    inner: Device,
    /// Additive mask, `[1, length * length]` on the inner device, transferred where it is first used: a captured step uses none.
    causal_mask: OnceLock<Tensor<2>>,
}

impl BatchLayout {
    /// Layout with its mask on the inner (non-autodiff) device.
    pub fn new(batch: usize, length: usize, inner: &Device) -> Self {
        Self { batch, length, inner: inner.clone(), causal_mask: OnceLock::new() }
    }

    fn causal_mask(&self) -> Tensor<2> {
        let (length, pairs) = (self.length, self.length * self.length);
        let make = || {
            let mask = (0..pairs).map(|pair| if pair % length > pair / length { MASKED } else { 0.0 });
            Tensor::from_data(TensorData::new(mask.collect::<Vec<f32>>(), [1, pairs]), &self.inner)
        };
        self.causal_mask.get_or_init(make).clone()
    }
}

/// Splits rows `[batch * length, width]` into heads: `[batch, heads, length, width / heads]`.
pub fn by_head(rows: Tensor<2>, batch: usize, heads: usize) -> Tensor<4> {
    let [count, width] = rows.dims();
    rows.reshape([batch, count / batch, heads, width / heads]).swap_dims(1, 2)
}

/// Causal attention of queries, keys and values, `[batch * length, width]` each; returns the same shape.
pub fn attend(
    query: Tensor<2>,
    key: Tensor<2>,
    value: Tensor<2>,
    heads: usize,
    layout: &BatchLayout,
    matmul: ComputeDtype,
) -> Tensor<2> {
    let [count, width] = query.dims();
    if matmul == ComputeDtype::Float32 || has_gpu_kernels(&query) {
        let [query, key, value] =
            [query, key, value].map(|rows| matmul.operand(rows).reshape([layout.batch, layout.length, width]));
        let attended = attention(query, key, value, heads, AttentionMask::Causal);
        return matmul.output(attended.reshape([count, width]));
    }
    let size = width / heads;
    let by_head = |rows: Tensor<2>| by_head(rows, layout.batch, heads);
    let scores = matmul.product(by_head(query), by_head(key).transpose()).div_scalar((size as f32).sqrt());
    // One row for each sequence and head: flex broadcasts a row quickly, and other dimensions element by element.
    let pairs = layout.length * layout.length;
    let scores = scores.reshape([layout.batch * heads, pairs]) + layout.causal_mask();
    let probabilities = softmax(scores.reshape([layout.batch, heads, layout.length, layout.length]), 3);
    let output = matmul.product(probabilities, by_head(value));
    output.swap_dims(1, 2).reshape([layout.batch * layout.length, width])
}

/// Causal attention of concatenated queries, keys and values, `[batch * length, 3 * width]` to `[batch * length, width]`.
pub fn attend_packed(qkv: Tensor<2>, heads: usize, layout: &BatchLayout, matmul: ComputeDtype) -> Tensor<2> {
    let [count, columns] = qkv.dims();
    let width = columns / 3;
    if matmul == ComputeDtype::Float32 || has_gpu_kernels(&qkv) {
        let sequences = matmul.operand(qkv).reshape([layout.batch, layout.length, columns]);
        return matmul.output(attention_packed(sequences, heads, AttentionMask::Causal).reshape([count, width]));
    }
    let [query, key, value] = [0, 1, 2].map(|part| qkv.clone().narrow(1, part * width, width));
    attend(query, key, value, heads, layout, matmul)
}

/// Additive mask `[batch, positions]` that shows the first positions of each sequence, as many as its length, and those of `more`.
pub fn padding_mask(lengths: &[usize], more: Range<usize>, positions: usize) -> TensorData {
    let shown = |at: usize, length: usize| at < length || more.contains(&at);
    let row =
        |length: &usize| (0..positions).map(|at| if shown(at, *length) { 0.0 } else { MASKED }).collect::<Vec<f32>>();
    TensorData::new(lengths.iter().flat_map(row).collect::<Vec<f32>>(), [lengths.len(), positions])
}

/// Attention of one more token of each sequence, `[batch, width]`, to cached keys and values,
/// `[batch, heads, positions, width / heads]`, with an additive mask `[batch, positions]`; returns `[batch, width]`.
pub fn attend_to_cache(
    query: Tensor<2>,
    keys: Tensor<4>,
    values: Tensor<4>,
    mask: Tensor<2>,
    matmul: ComputeDtype,
) -> Tensor<2> {
    let [batch, width] = query.dims();
    let [_, heads, positions, size] = keys.dims();
    let query = by_head(query, batch, heads);
    let scores = matmul.product(query, keys.transpose()).div_scalar((size as f32).sqrt());
    let scores = scores + mask.reshape([batch, 1, 1, positions]);
    matmul.product(softmax(scores, 3), values).swap_dims(1, 2).reshape([batch, width])
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;

    use super::super::testing::{close, plain, values};
    use super::*;

    #[test]
    fn attention_with_a_cache_equals_that_of_the_last_token_of_a_sequence() {
        let (batch, length, heads, width) = (2, 5, 2, 6);
        let drawn = |_| Tensor::<2>::random([batch * length, width], Distribution::Normal(0.0, 1.0), &plain());
        let [query, key, value] = [0, 1, 2].map(drawn);
        let layout = BatchLayout::new(batch, length, &plain());
        let whole = attend(query.clone(), key.clone(), value.clone(), heads, &layout, ComputeDtype::Float32);
        let last =
            |rows: Tensor<2>| rows.reshape([batch, length, width]).narrow(1, length - 1, 1).reshape([batch, width]);
        let cached = |rows: Tensor<2>| {
            let rows = by_head(rows, batch, heads);
            // Masked positions follow.
            Tensor::cat(vec![rows.clone(), rows.narrow(2, 0, 2).mul_scalar(50.0)], 2)
        };
        let mask = Tensor::from_data(padding_mask(&[length, length], 0..0, length + 2), &plain());
        let found = attend_to_cache(last(query), cached(key), cached(value), mask, ComputeDtype::Float32);
        close(&values(found), &values(last(whole)), 1e-5);
    }
}
