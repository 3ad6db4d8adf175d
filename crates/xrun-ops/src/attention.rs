//! Multi-head attention (Vaswani et al. 2017), causal or not.
//!
//! `P = softmax(Q Kᵀ / √d)`, `O = P V`. Backward: `V' = Pᵀ O'`, `P' = O' Vᵀ`, `S' = P (P' − Σ P P') / √d`, `Q' = S' K`,
//! `K' = S'ᵀ Q`. Queries are processed in blocks. With a causal mask a block has only the keys up to its last query, which saves about
//! half of the products and of the saved probabilities.

use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Shape, Tensor};
use burn_flex::FlexTensor;
use rayon::prelude::*;

use crate::cpu_kernels::is_fused;
use crate::cube::on_cube;
use crate::flex::{contiguous, shape, tensor};
use crate::matmul::Accumulate::{Add, Overwrite};
use crate::matmul::{Matrix, MatrixMut, multiply};
use crate::operation::{Operation, ternary, unary};
use crate::simd::{LANES, dot, exp, max, reduce, vectorize};

/// Number of queries of a block.
const QUERY_BLOCK: usize = 64;

/// Attention mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionMask {
    /// A query attends to all keys of its sequence.
    None,
    /// A query attends to its own position and those before it.
    Causal,
}

/// Multi-head attention of queries `[batch, length, width]` to keys and values `[batch, keys, width]`; the output has the shape of the
/// queries. Rows may have any strides.
///
/// # Panics
/// The width is not a multiple of `heads`, shapes do not match, or the mask is causal and queries and keys differ in number.
pub fn attention(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>, heads: usize, mask: AttentionMask) -> Tensor<3> {
    check(query.dims()[2], heads);
    let ([batch, length, width], [key_batch, keys, key_width]) = (query.dims(), key.dims());
    assert!(
        key.dims() == value.dims() && [batch, width] == [key_batch, key_width],
        "the shapes of keys or values do not match the queries"
    );
    assert!(mask == AttentionMask::None || length == keys, "a causal mask needs one key for each query");
    match is_fused(&query) {
        true => ternary(Attention { heads, mask }, (query, key, value)),
        false => plain([query, key, value], heads, mask),
    }
}

/// Multi-head self-attention of queries, keys and values packed in one tensor: `[batch, length, 3 · width]` to
/// `[batch, length, width]`.
///
/// # Panics
/// The width is not a multiple of `heads`.
pub fn attention_packed(query_key_value: Tensor<3>, heads: usize, mask: AttentionMask) -> Tensor<3> {
    let width = query_key_value.dims()[2] / 3;
    check(width, heads);
    match is_fused(&query_key_value) {
        true => unary(Attention { heads, mask }, (query_key_value,)),
        false => plain([0, 1, 2].map(|part| query_key_value.clone().narrow(2, part * width, width)), heads, mask),
    }
}

fn check(width: usize, heads: usize) {
    assert!(
        heads > 0 && width.is_multiple_of(heads),
        "the width {width} is not a multiple of the number of heads, {heads}"
    );
}

/// Attention in Burn's operations.
fn plain(inputs: [Tensor<3>; 3], heads: usize, mask: AttentionMask) -> Tensor<3> {
    let [batch, length, width] = inputs[0].dims();
    let by_head = |input: Tensor<3>| {
        let length = input.dims()[1];
        input.reshape([batch, length, heads, width / heads]).swap_dims(1, 2)
    };
    let [query, key, value] = inputs.map(by_head);
    let (scores, root) = (query.matmul(key.transpose()), ((width / heads) as f32).sqrt());
    on_cube!(any &scores => {
        let probabilities = crate::cube::scaled_softmax(scores, root.recip(), mask == AttentionMask::Causal);
        probabilities.matmul(value).swap_dims(1, 2).reshape([batch, length, width])
    });
    let scores = scores.div_scalar(root);
    let scores = match mask {
        AttentionMask::None => scores,
        AttentionMask::Causal => {
            let hidden = Tensor::<2, Bool>::tril_mask([length, length], 0, &scores.device());
            scores.mask_fill(hidden.reshape([1, 1, length, length]), -1e9)
        }
    };
    softmax(scores, 3).matmul(value).swap_dims(1, 2).reshape([batch, length, width])
}

#[derive(Clone, Copy, Debug)]
struct Attention {
    heads: usize,
    mask: AttentionMask,
}

/// Queries, keys or values of all heads and sequences.
#[derive(Clone, Copy, Debug)]
struct HeadsView<'a> {
    values: &'a [f32],
    /// Number of tokens of a sequence.
    length: usize,
    /// Distances between sequences and between tokens, in values.
    strides: [usize; 2],
}

#[derive(Clone, Copy, Debug)]
struct AttentionSizes {
    batch: usize,
    /// Number of queries of a sequence.
    length: usize,
    /// Number of keys of a sequence.
    keys: usize,
    heads: usize,
    head_dim: usize,
    mask: AttentionMask,
}

impl<'a> HeadsView<'a> {
    /// Returns the matrix `[length, head_dim]` of head `number % heads` of sequence `number / heads`.
    fn head(self, number: usize, sizes: AttentionSizes) -> Matrix<'a> {
        let (sequence, head) = (number / sizes.heads, number % sizes.heads);
        let from = sequence * self.strides[0] + head * sizes.head_dim;
        Matrix::new(&self.values[from..], self.length, sizes.head_dim, self.strides[1])
    }
}

impl AttentionSizes {
    /// Returns `1 / √d`.
    fn scale(self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    /// Returns for each block its first query, its number of queries and its number of keys.
    fn blocks(self) -> impl Iterator<Item = (usize, usize, usize)> {
        (0..self.length).step_by(QUERY_BLOCK).map(move |first| {
            let queries = QUERY_BLOCK.min(self.length - first);
            (first, queries, if self.mask == AttentionMask::Causal { first + queries } else { self.keys })
        })
    }

    /// Returns the number of scores in all blocks of one head.
    fn scores(self) -> usize {
        self.blocks().map(|(_, queries, keys)| queries * keys).sum()
    }

    /// Returns the offsets of the gradients of queries, keys and values in the buffer of one head, and its length.
    fn gradient_offsets(self) -> [usize; 4] {
        let (queries, keys) = (self.length * self.head_dim, self.keys * self.head_dim);
        [0, queries, queries + keys, queries + 2 * keys]
    }

    /// Returns the number of heads of all sequences.
    fn all_heads(self) -> usize {
        self.batch * self.heads
    }
}

/// Returns the output `[batch, length, width]` and, if `save` is set, the probabilities of each head, block by block.
fn forward(views: [HeadsView<'_>; 3], sizes: AttentionSizes, save: bool) -> (Vec<f32>, Vec<f32>) {
    let head_values = sizes.length * sizes.head_dim;
    let mut by_head = vec![0.0; sizes.all_heads() * head_values];
    let mut probabilities = vec![0.0; if save { sizes.all_heads() * sizes.scores() } else { 0 }];
    let heads = by_head.par_chunks_mut(head_values);
    let forward = |number, output: &mut [f32], probabilities: &mut [f32]| {
        forward_head(views.map(|view| view.head(number, sizes)), sizes, output, probabilities);
    };
    match save {
        true => heads
            .zip(probabilities.par_chunks_mut(sizes.scores()))
            .enumerate()
            .for_each(|(number, (output, probabilities))| forward(number, output, probabilities)),
        false => heads.enumerate().for_each(|(number, output)| forward(number, output, &mut vec![0.0; sizes.scores()])),
    }
    let mut output = vec![0.0; by_head.len()];
    join_heads(&by_head, &mut output, sizes, 1);
    (output, probabilities)
}

/// Computes one head of one sequence, `[length, head_dim]` each.
fn forward_head(
    [query, key, value]: [Matrix<'_>; 3],
    sizes: AttentionSizes,
    output: &mut [f32],
    mut probabilities: &mut [f32],
) {
    let AttentionSizes { head_dim, .. } = sizes;
    for (first, queries, keys) in sizes.blocks() {
        let (scores, rest) = std::mem::take(&mut probabilities).split_at_mut(queries * keys);
        probabilities = rest;
        let to = MatrixMut::new(scores, queries, keys, keys);
        multiply(to, query.rows(first, queries), key.rows(0, keys).transposed(), Overwrite);
        softmax_rows(scores, keys, sizes.scale(), (sizes.mask == AttentionMask::Causal).then_some(first));
        let to = MatrixMut::new(&mut output[first * head_dim..], queries, head_dim, head_dim);
        multiply(to, Matrix::new(scores, queries, keys, keys), value.rows(0, keys), Overwrite);
    }
}

/// Returns for each head the gradients of its queries, keys and values, in this order.
fn backward(
    [query, key, value]: [HeadsView<'_>; 3],
    probabilities: &[f32],
    gradient: HeadsView<'_>,
    sizes: AttentionSizes,
) -> Vec<f32> {
    let AttentionSizes { head_dim, .. } = sizes;
    let largest_block = sizes.blocks().map(|(_, queries, keys)| queries * keys).max().unwrap_or(0);
    let [_, keys_at, values_at, end] = sizes.gradient_offsets();
    let mut by_head = vec![0.0; sizes.all_heads() * end];
    let heads = by_head.par_chunks_mut(end).zip(probabilities.par_chunks(sizes.scores()));
    heads.enumerate().for_each(|(number, (gradients, mut probabilities))| {
        let [query, key, value, gradient] = [query, key, value, gradient].map(|view| view.head(number, sizes));
        let (grad_query, rest) = gradients.split_at_mut(keys_at);
        let (grad_key, grad_value) = rest.split_at_mut(values_at - keys_at);
        let mut scores = vec![0.0; largest_block];
        for (first, queries, keys) in sizes.blocks() {
            let (block, rest) = probabilities.split_at(queries * keys);
            probabilities = rest;
            let scores = &mut scores[..queries * keys];
            let gradient = gradient.rows(first, queries);
            let to = MatrixMut::new(grad_value, keys, head_dim, head_dim);
            multiply(to, Matrix::new(block, queries, keys, keys).transposed(), gradient, Add);
            let to = MatrixMut::new(scores, queries, keys, keys);
            multiply(to, gradient, value.rows(0, keys).transposed(), Overwrite);
            softmax_backward(scores, block, keys, sizes.scale());
            let scores = Matrix::new(scores, queries, keys, keys);
            let to = MatrixMut::new(&mut grad_query[first * head_dim..], queries, head_dim, head_dim);
            multiply(to, scores, key.rows(0, keys), Overwrite);
            multiply(
                MatrixMut::new(grad_key, keys, head_dim, head_dim),
                scores.transposed(),
                query.rows(first, queries),
                Add,
            );
        }
    });
    by_head
}

/// Copies `[batch, heads, parts, length, head_dim]` to `[batch, length, parts, heads, head_dim]`.
fn join_heads(by_head: &[f32], output: &mut [f32], sizes: AttentionSizes, parts: usize) {
    let AttentionSizes { length, heads, head_dim, .. } = sizes;
    let width = heads * head_dim;
    let sequences =
        output.par_chunks_mut(length * parts * width).zip(by_head.par_chunks(heads * parts * length * head_dim));
    sequences.for_each(|(output, by_head)| {
        for (number, from) in by_head.chunks_exact(length * head_dim).enumerate() {
            let (head, part) = (number / parts, number % parts);
            let to = part * width + head * head_dim;
            for (row, from) in output.chunks_exact_mut(parts * width).zip(from.chunks_exact(head_dim)) {
                row[to..to + head_dim].copy_from_slice(from);
            }
        }
    });
}

/// Copies the gradients of queries, keys or values (`part` 0, 1 or 2) to `[batch, length, heads, head_dim]`.
fn join_gradient(by_head: &[f32], sizes: AttentionSizes, part: usize) -> Vec<f32> {
    let AttentionSizes { heads, head_dim, .. } = sizes;
    let offsets = sizes.gradient_offsets();
    let (range, end) = (offsets[part]..offsets[part + 1], offsets[3]);
    let mut output = vec![0.0; sizes.all_heads() * range.len()];
    let sequences = output.par_chunks_mut(heads * range.len()).zip(by_head.par_chunks(heads * end));
    sequences.for_each(|(output, by_head)| {
        for (head, from) in by_head.chunks_exact(end).enumerate() {
            for (row, from) in output.chunks_exact_mut(heads * head_dim).zip(from[range.clone()].chunks_exact(head_dim))
            {
                row[head * head_dim..][..head_dim].copy_from_slice(from);
            }
        }
    });
    output
}

/// Overwrites rows of scores by `softmax(factor · scores)`, for a factor above zero. With a causal mask, `first` is the query of the
/// first row; keys after a row's query get probability zero.
fn softmax_rows(scores: &mut [f32], keys: usize, factor: f32, first: Option<usize>) {
    vectorize(
        #[inline(always)]
        || {
            for (number, row) in scores.chunks_exact_mut(keys).enumerate() {
                let visible = first.map_or(keys, |first| first + number + 1);
                let (row, masked) = row.split_at_mut(visible);
                masked.fill(0.0);
                let max = max(row);
                let mut lanes = [0.0f32; LANES];
                let (chunks, rest) = row.as_chunks_mut::<LANES>();
                for chunk in chunks {
                    for lane in 0..LANES {
                        chunk[lane] = exp((chunk[lane] - max) * factor);
                        lanes[lane] += chunk[lane];
                    }
                }
                for (lane, value) in lanes.iter_mut().zip(rest) {
                    *value = exp((*value - max) * factor);
                    *lane += *value;
                }
                let normalizer = 1.0 / reduce(lanes);
                for value in row {
                    *value *= normalizer;
                }
            }
        },
    )
}

/// Overwrites gradients of probabilities by those of scores.
fn softmax_backward(gradients: &mut [f32], probabilities: &[f32], keys: usize, factor: f32) {
    vectorize(
        #[inline(always)]
        || {
            for (gradients, probabilities) in gradients.chunks_exact_mut(keys).zip(probabilities.chunks_exact(keys)) {
                let mean = dot(gradients, probabilities);
                for (gradient, probability) in gradients.iter_mut().zip(probabilities) {
                    *gradient = (*gradient - mean) * probability * factor;
                }
            }
        },
    )
}

/// Returns a tensor `[batch, length, …]` with contiguous rows, copied if necessary.
fn contiguous_rows(tensor: FlexTensor) -> FlexTensor {
    let strides = tensor.layout().strides();
    let is_row_contiguous = strides[2] == 1 && strides[..2].iter().all(|stride| *stride >= 0);
    if is_row_contiguous { tensor } else { contiguous(tensor) }
}

/// Returns a view of the columns from `column` on.
fn view(tensor: &FlexTensor, column: usize) -> HeadsView<'_> {
    let layout = tensor.layout();
    let strides = [0, 1].map(|dimension| layout.strides()[dimension] as usize);
    let values = &tensor.storage::<f32>()[layout.start_offset() + column..];
    HeadsView { values, length: layout.shape()[1], strides }
}

impl Attention {
    fn sizes(&self, queries: &Shape, keys: usize, width: usize) -> AttentionSizes {
        let (batch, length) = (queries[0], queries[1]);
        AttentionSizes { batch, length, keys, heads: self.heads, head_dim: width / self.heads, mask: self.mask }
    }
}

impl Operation<FlexTensor, 3> for Attention {
    /// Queries, keys and values; probabilities.
    type Saved = ([FlexTensor; 3], Vec<f32>);

    fn forward(&self, inputs: [FlexTensor; 3], save: bool) -> (FlexTensor, Option<Self::Saved>) {
        let inputs = inputs.map(contiguous_rows);
        let output_shape = shape(&inputs[0]);
        let sizes = self.sizes(&output_shape, shape(&inputs[1])[1], output_shape[2]);
        let (output, probabilities) = forward(inputs.each_ref().map(|input| view(input, 0)), sizes, save);
        (tensor(output, output_shape), save.then_some((inputs, probabilities)))
    }

    fn backward(&self, saved: Self::Saved, gradient: FlexTensor, needs_grad: [bool; 3]) -> [Option<FlexTensor>; 3] {
        let (inputs, probabilities) = saved;
        let sizes = self.sizes(&shape(&gradient), shape(&inputs[1])[1], shape(&gradient)[2]);
        let views = inputs.each_ref().map(|input| view(input, 0));
        let by_head = backward(views, &probabilities, view(&gradient, 0), sizes);
        [0, 1, 2]
            .map(|part| needs_grad[part].then(|| tensor(join_gradient(&by_head, sizes, part), shape(&inputs[part]))))
    }
}

impl Operation<FlexTensor, 1> for Attention {
    /// Packed queries, keys and values; probabilities.
    type Saved = (FlexTensor, Vec<f32>);

    fn forward(&self, [input]: [FlexTensor; 1], save: bool) -> (FlexTensor, Option<Self::Saved>) {
        let input = contiguous_rows(input);
        let mut shape = shape(&input);
        let width = shape[2] / 3;
        let sizes = self.sizes(&shape, shape[1], width);
        shape[2] = width;
        let (output, probabilities) = forward([0, 1, 2].map(|part| view(&input, part * width)), sizes, save);
        (tensor(output, shape), save.then_some((input, probabilities)))
    }

    fn backward(&self, saved: Self::Saved, gradient: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let (input, probabilities) = saved;
        let shape = shape(&input);
        let width = shape[2] / 3;
        let sizes = self.sizes(&shape, shape[1], width);
        let views = [0, 1, 2].map(|part| view(&input, part * width));
        let by_head = backward(views, &probabilities, view(&gradient, 0), sizes);
        let mut output = vec![0.0; by_head.len()];
        join_heads(&by_head, &mut output, sizes, 3);
        [Some(tensor(output, shape))]
    }
}
