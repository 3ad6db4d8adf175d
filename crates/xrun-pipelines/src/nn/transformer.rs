//! The parts of GPT-2 (Radford et al. 2019) that its descendants share: embeddings, normalisation, attention, LoRA.
//!
//! Tokens stand one under the other, `[batch * length, width]`, between the parts. The names of the fields are those of
//! Hugging Face's files.

use burn::module::{Module, Param};
use burn::tensor::Device;
use burn::tensor::activation::softmax;
use burn::tensor::{Int, TensorData};
use xrun_ops::{AttentionMask, attention, attention_packed, layer_norm};

use super::Tensor;
use super::graph::beside;
use super::matmul::Factors;

/// GPT-2's constant.
pub const EPSILON: f64 = 1e-5;
/// GPT-2's deviation of first weights; what ends a residual branch is divided by the root of their number.
pub const DEVIATION: f64 = 0.02;
/// Added where a token may not look.
const HIDDEN: f32 = -1e9;

/// Token numbers.
pub type Tokens<const D: usize> = burn::tensor::Tensor<D, Int>;

/// A row for each token, or for each position.
#[derive(Module, Debug)]
pub struct Embedding {
    /// `[rows, width]`
    pub weight: Param<Tensor<2>>,
}

/// Normalisation over the features of a token.
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// Scale of each feature, `[width]`; one at first.
    pub weight: Param<Tensor<1>>,
    /// Shift of each feature, `[width]`; zero at first.
    pub bias: Param<Tensor<1>>,
}

/// A change of a linear layer, of low rank (Hu et al. 2021).
#[derive(Module, Debug)]
pub struct Lora {
    /// `[inputs, rank]`
    pub a: Param<Tensor<2>>,
    /// `[rank, outputs]`; zero at first.
    pub b: Param<Tensor<2>>,
}

/// A parameter of one value; matrices are drawn later.
pub fn parameter<const D: usize>(shape: [usize; D], value: f32, device: &Device) -> Param<Tensor<D>> {
    Param::from_tensor(Tensor::full(shape, value, device))
}

/// A parameter with a new value, still trained.
pub fn changed<const D: usize>(
    parameter: &Param<Tensor<D>>,
    change: impl FnOnce(Tensor<D>) -> Tensor<D>,
) -> Param<Tensor<D>> {
    parameter.clone().map(|old| beside(change(old.clone().inner()), &old).set_require_grad(old.is_autodiff()))
}

/// The values of a parameter; a constant where it is frozen.
pub fn value<const D: usize>(parameter: &Param<Tensor<D>>, frozen: bool) -> Tensor<D> {
    if frozen { parameter.val().detach() } else { parameter.val() }
}

/// Token numbers `[batch, length]`, row by row, on a device.
pub fn tokens(numbers: &[i32], batch: usize, length: usize, device: &Device) -> Tokens<2> {
    Tokens::from_data(TensorData::new(numbers.to_vec(), [batch, length]), device)
}

impl Embedding {
    /// Of zeros, to be drawn.
    pub fn new(rows: usize, width: usize, device: &Device) -> Self {
        Self { weight: parameter([rows, width], 0.0, device) }
    }
}

impl Lora {
    /// Of zeros, to be drawn.
    pub fn new(inputs: usize, rank: usize, outputs: usize, device: &Device) -> Self {
        Self { a: parameter([inputs, rank], 0.0, device), b: parameter([rank, outputs], 0.0, device) }
    }
}

impl LayerNorm {
    /// Scales of one and shifts of zero.
    pub fn new(width: usize, device: &Device) -> Self {
        Self { weight: parameter([width], 1.0, device), bias: parameter([width], 0.0, device) }
    }

    /// `[tokens, width]` to the same.
    pub fn forward(&self, input: Tensor<2>, frozen: bool) -> Tensor<2> {
        layer_norm(input, value(&self.weight, frozen), value(&self.bias, frozen), EPSILON)
    }
}

/// How a batch lies: `batch` sequences of `length` tokens, each of which sees those before it.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Sequences.
    pub batch: usize,
    /// Tokens of each sequence.
    pub length: usize,
    /// What hides the future, `[1, length * length]` on the plain device.
    future: Tensor<2>,
}

impl Layout {
    /// Makes what hides the future, on the device without autodiff.
    pub fn new(batch: usize, length: usize, plain: &Device) -> Self {
        let hidden = (0..length * length).map(|at| if at % length > at / length { HIDDEN } else { 0.0 });
        let hidden = TensorData::new(hidden.collect::<Vec<f32>>(), [1, length * length]);
        Self { batch, length, future: Tensor::from_data(hidden, plain) }
    }
}

/// `[batch * length, width]` by heads: `[batch, heads, length, width / heads]`.
pub fn by_head(rows: Tensor<2>, batch: usize, heads: usize) -> Tensor<4> {
    let [count, width] = rows.dims();
    rows.reshape([batch, count / batch, heads, width / heads]).swap_dims(1, 2)
}

/// Attention of each token to itself and those before it: three times `[batch * length, width]` to the same, once.
pub fn attend(
    query: Tensor<2>,
    key: Tensor<2>,
    value: Tensor<2>,
    heads: usize,
    at: &Layout,
    factors: Factors,
) -> Tensor<2> {
    let [count, width] = query.dims();
    if factors == Factors::Float32 {
        let sequences = |rows: Tensor<2>| rows.reshape([at.batch, at.length, width]);
        return attention(sequences(query), sequences(key), sequences(value), heads, AttentionMask::Causal)
            .reshape([count, width]);
    }
    let size = width / heads;
    let by_head = |rows: Tensor<2>| by_head(rows, at.batch, heads);
    let scores = factors.product(by_head(query), by_head(key).transpose()).div_scalar((size as f32).sqrt());
    // All of a sequence in a row: flex adds a shared row quickly, and what is shared between other dimensions one by one.
    let pairs = at.length * at.length;
    let scores = scores.reshape([at.batch * heads, pairs]) + at.future.clone();
    let shares = softmax(scores.reshape([at.batch, heads, at.length, at.length]), 3);
    let output = factors.product(shares, by_head(value));
    output.swap_dims(1, 2).reshape([at.batch * at.length, width])
}

/// As [`attend`], of queries, keys and values beside each other: `[batch * length, 3 * width]` to `[batch * length, width]`.
pub fn attend_packed(all: Tensor<2>, heads: usize, at: &Layout, factors: Factors) -> Tensor<2> {
    let [count, columns] = all.dims();
    let width = columns / 3;
    if factors == Factors::Float32 {
        let sequences = all.reshape([at.batch, at.length, columns]);
        return attention_packed(sequences, heads, AttentionMask::Causal).reshape([count, width]);
    }
    let [query, key, value] = [0, 1, 2].map(|part| all.clone().narrow(1, part * width, width));
    attend(query, key, value, heads, at, factors)
}

/// What hides all positions of each sequence but the first `visible`: `[batch, positions]`.
pub fn hidden_after(visible: &[usize], positions: usize, plain: &Device) -> Tensor<2> {
    let row = |visible: &usize| (0..positions).map(|at| if at < *visible { 0.0 } else { HIDDEN }).collect::<Vec<f32>>();
    let hidden: Vec<f32> = visible.iter().flat_map(row).collect();
    Tensor::from_data(TensorData::new(hidden, [visible.len(), positions]), plain)
}

/// Attention of one more token of each sequence, `[batch, width]`, to cached keys and values,
/// `[batch, heads, positions, width / heads]`, of which `hidden` `[batch, positions]` hides some.
pub fn attend_to_cache(
    query: Tensor<2>,
    keys: Tensor<4>,
    values: Tensor<4>,
    hidden: Tensor<2>,
    factors: Factors,
) -> Tensor<2> {
    let [batch, width] = query.dims();
    let [_, heads, positions, size] = keys.dims();
    let query = by_head(query, batch, heads);
    let scores = factors.product(query, keys.transpose()).div_scalar((size as f32).sqrt());
    let scores = scores + hidden.reshape([batch, 1, 1, positions]);
    factors.product(softmax(scores, 3), values).swap_dims(1, 2).reshape([batch, width])
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;

    use super::super::tests::{close, plain, values};
    use super::*;

    #[test]
    fn a_token_beside_kept_ones_sees_what_the_last_of_a_sequence_sees() {
        let (batch, length, heads, width) = (2, 5, 2, 6);
        let drawn = |_| Tensor::<2>::random([batch * length, width], Distribution::Normal(0.0, 1.0), &plain());
        let [query, key, value] = [0, 1, 2].map(drawn);
        let at = Layout::new(batch, length, &plain());
        let whole = attend(query.clone(), key.clone(), value.clone(), heads, &at, Factors::Float32);
        let last =
            |rows: Tensor<2>| rows.reshape([batch, length, width]).narrow(1, length - 1, 1).reshape([batch, width]);
        let kept = |rows: Tensor<2>| {
            let rows = by_head(rows, batch, heads);
            // Behind them lies what nobody may see.
            Tensor::cat(vec![rows.clone(), rows.narrow(2, 0, 2).mul_scalar(50.0)], 2)
        };
        let hidden = hidden_after(&[length, length], length + 2, &plain());
        let found = attend_to_cache(last(query), kept(key), kept(value), hidden, Factors::Float32);
        close(&values(found), &values(last(whole)), 1e-5);
    }
}
