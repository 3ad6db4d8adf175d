//! Multi-head attention (Vaswani et al. 2017), causal or not.
//!
//! `P = softmax(Q Kᵀ / √d)`, `O = P V`. Backward: `V' = Pᵀ O'`, `P' = O' Vᵀ`, `S' = P (P' − Σ P P') / √d`, `Q' = S' K`,
//! `K' = S'ᵀ Q`. Queries are taken in blocks; of a causal sequence, a block has only the keys up to its last query, so about half
//! of the products and of the probabilities that are saved are left out.

use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Shape, Tensor};
use burn_flex::FlexTensor;
use rayon::prelude::*;

use crate::choice::is_fused;
use crate::flex::{contiguous, shape, tensor};
use crate::matmul::Accumulate::{Add, Overwrite};
use crate::matmul::{Matrix, MatrixMut, multiply};
use crate::operation::{Operation, ternary, unary};
use crate::simd::{LANES, dot, exp, max, reduce, vectorize};

/// Queries of a block.
const BLOCK: usize = 64;

/// The keys that a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All keys of its sequence.
    None,
    /// Its own and those before it.
    Causal,
}

/// Attention of `heads` heads: queries `[batch, length, heads · size]`, keys and values `[batch, keys, heads · size]`, of any strides
/// between rows; the output is like the queries.
///
/// # Panics
/// The last dimension is no multiple of `heads`, shapes do not fit, or a causal sequence has not as many keys as queries.
pub fn attention(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>, heads: usize, mask: Mask) -> Tensor<3> {
    check(query.dims()[2], heads);
    let ([batch, length, width], [key_batch, keys, key_width]) = (query.dims(), key.dims());
    assert!(key.dims() == value.dims() && [batch, width] == [key_batch, key_width], "keys and values fit the queries");
    assert!(mask == Mask::None || length == keys, "a causal sequence has a key for each query");
    match is_fused(&query) {
        true => ternary(Attention { heads, mask }, (query, key, value)),
        false => plain([query, key, value], heads, mask),
    }
}

/// As [`attention`], of queries, keys and values beside each other: `[batch, length, 3 · width]` to `[batch, length, width]`. The
/// gradient comes in one piece, too.
///
/// # Panics
/// The width is no multiple of `heads`.
pub fn attention_packed(query_key_value: Tensor<3>, heads: usize, mask: Mask) -> Tensor<3> {
    let width = query_key_value.dims()[2] / 3;
    check(width, heads);
    match is_fused(&query_key_value) {
        true => unary(Attention { heads, mask }, query_key_value),
        false => plain([0, 1, 2].map(|part| query_key_value.clone().narrow(2, part * width, width)), heads, mask),
    }
}

fn check(width: usize, heads: usize) {
    assert!(
        heads > 0 && width.is_multiple_of(heads),
        "the width {width} is a multiple of the number of heads, {heads}"
    );
}

/// Plain body in Burn's operations.
fn plain(inputs: [Tensor<3>; 3], heads: usize, mask: Mask) -> Tensor<3> {
    let [batch, length, width] = inputs[0].dims();
    let by_head = |input: Tensor<3>| {
        let length = input.dims()[1];
        input.reshape([batch, length, heads, width / heads]).swap_dims(1, 2)
    };
    let [query, key, value] = inputs.map(by_head);
    let scores = query.matmul(key.transpose()).div_scalar(((width / heads) as f32).sqrt());
    let scores = match mask {
        Mask::None => scores,
        Mask::Causal => {
            let hidden = Tensor::<2, Bool>::tril_mask([length, length], 0, &scores.device());
            scores.mask_fill(hidden.reshape([1, 1, length, length]), -1e9)
        }
    };
    softmax(scores, 3).matmul(value).swap_dims(1, 2).reshape([batch, length, width])
}

#[derive(Clone, Copy, Debug)]
struct Attention {
    heads: usize,
    mask: Mask,
}

/// Queries, keys or values of all sequences.
#[derive(Clone, Copy, Debug)]
struct View<'a> {
    values: &'a [f32],
    /// Tokens of a sequence.
    length: usize,
    /// From a sequence to the next, and from a token to the next.
    strides: [usize; 2],
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: usize,
    /// Queries of a sequence.
    length: usize,
    /// Keys and values of a sequence.
    keys: usize,
    heads: usize,
    /// Columns of a head.
    size: usize,
    mask: Mask,
}

impl<'a> View<'a> {
    /// One head of one sequence, both by one number: `[length, size]`.
    fn head(self, number: usize, sizes: Sizes) -> Matrix<'a> {
        let (sequence, head) = (number / sizes.heads, number % sizes.heads);
        let from = sequence * self.strides[0] + head * sizes.size;
        Matrix::new(&self.values[from..], self.length, sizes.size, self.strides[1])
    }
}

impl Sizes {
    fn factor(self) -> f32 {
        1.0 / (self.size as f32).sqrt()
    }

    /// The first query of each block, how many it has, and how many keys they see.
    fn blocks(self) -> impl Iterator<Item = (usize, usize, usize)> {
        (0..self.length).step_by(BLOCK).map(move |first| {
            let queries = BLOCK.min(self.length - first);
            (first, queries, if self.mask == Mask::Causal { first + queries } else { self.keys })
        })
    }

    /// Pairs of a query and a key in all blocks of one head.
    fn pairs(self) -> usize {
        self.blocks().map(|(_, queries, keys)| queries * keys).sum()
    }

    /// Queries of one head, keys, and values, one after another: where each begins, and where the last ends.
    fn parts(self) -> [usize; 4] {
        let (queries, keys) = (self.length * self.size, self.keys * self.size);
        [0, queries, queries + keys, queries + 2 * keys]
    }

    /// Heads of all sequences.
    fn count(self) -> usize {
        self.batch * self.heads
    }
}

/// The output `[batch, length, width]`, and if `save` is set the probabilities, block by block of each head.
fn forward(views: [View<'_>; 3], sizes: Sizes, save: bool) -> (Vec<f32>, Vec<f32>) {
    let each = sizes.length * sizes.size;
    let mut by_head = vec![0.0; sizes.count() * each];
    let mut probabilities = vec![0.0; if save { sizes.count() * sizes.pairs() } else { 0 }];
    let heads = by_head.par_chunks_mut(each);
    let forward = |number, output: &mut [f32], probabilities: &mut [f32]| {
        forward_head(views.map(|view| view.head(number, sizes)), sizes, output, probabilities);
    };
    match save {
        true => heads
            .zip(probabilities.par_chunks_mut(sizes.pairs()))
            .enumerate()
            .for_each(|(number, (output, probabilities))| forward(number, output, probabilities)),
        false => heads.enumerate().for_each(|(number, output)| forward(number, output, &mut vec![0.0; sizes.pairs()])),
    }
    let mut output = vec![0.0; by_head.len()];
    join_heads(&by_head, &mut output, sizes, 1);
    (output, probabilities)
}

/// One head of one sequence: `[length, size]` each.
fn forward_head([query, key, value]: [Matrix<'_>; 3], sizes: Sizes, output: &mut [f32], mut probabilities: &mut [f32]) {
    let Sizes { size, .. } = sizes;
    for (first, queries, keys) in sizes.blocks() {
        let (scores, rest) = std::mem::take(&mut probabilities).split_at_mut(queries * keys);
        probabilities = rest;
        let to = MatrixMut::new(scores, queries, keys, keys);
        multiply(to, query.rows(first, queries), key.rows(0, keys).transposed(), Overwrite);
        softmax_rows(scores, keys, sizes.factor(), (sizes.mask == Mask::Causal).then_some(first));
        let to = MatrixMut::new(&mut output[first * size..], queries, size, size);
        multiply(to, Matrix::new(scores, queries, keys, keys), value.rows(0, keys), Overwrite);
    }
}

/// The gradients of queries, keys and values, one after another for each head.
fn backward([query, key, value]: [View<'_>; 3], probabilities: &[f32], gradient: View<'_>, sizes: Sizes) -> Vec<f32> {
    let Sizes { size, .. } = sizes;
    let largest = sizes.blocks().map(|(_, queries, keys)| queries * keys).max().unwrap_or(0);
    let [_, keys_at, values_at, end] = sizes.parts();
    let mut by_head = vec![0.0; sizes.count() * end];
    let heads = by_head.par_chunks_mut(end).zip(probabilities.par_chunks(sizes.pairs()));
    heads.enumerate().for_each(|(number, (found, mut probabilities))| {
        let [query, key, value, gradient] = [query, key, value, gradient].map(|view| view.head(number, sizes));
        let (by_query, rest) = found.split_at_mut(keys_at);
        let (by_key, by_value) = rest.split_at_mut(values_at - keys_at);
        let mut scores = vec![0.0; largest];
        for (first, queries, keys) in sizes.blocks() {
            let (chances, rest) = probabilities.split_at(queries * keys);
            probabilities = rest;
            let scores = &mut scores[..queries * keys];
            let gradient = gradient.rows(first, queries);
            let to = MatrixMut::new(by_value, keys, size, size);
            multiply(to, Matrix::new(chances, queries, keys, keys).transposed(), gradient, Add);
            let to = MatrixMut::new(scores, queries, keys, keys);
            multiply(to, gradient, value.rows(0, keys).transposed(), Overwrite);
            softmax_backward(scores, chances, keys, sizes.factor());
            let scores = Matrix::new(scores, queries, keys, keys);
            let to = MatrixMut::new(&mut by_query[first * size..], queries, size, size);
            multiply(to, scores, key.rows(0, keys), Overwrite);
            multiply(MatrixMut::new(by_key, keys, size, size), scores.transposed(), query.rows(first, queries), Add);
        }
    });
    by_head
}

/// Copies `[batch, heads, parts, length, size]` to `[batch, length, parts, heads, size]`.
fn join_heads(by_head: &[f32], output: &mut [f32], sizes: Sizes, parts: usize) {
    let Sizes { length, heads, size, .. } = sizes;
    let width = heads * size;
    let sequences =
        output.par_chunks_mut(length * parts * width).zip(by_head.par_chunks(heads * parts * length * size));
    sequences.for_each(|(output, by_head)| {
        for (number, from) in by_head.chunks_exact(length * size).enumerate() {
            let (head, part) = (number / parts, number % parts);
            let to = part * width + head * size;
            for (row, from) in output.chunks_exact_mut(parts * width).zip(from.chunks_exact(size)) {
                row[to..to + size].copy_from_slice(from);
            }
        }
    });
}

/// Copies the gradients of queries, keys or values to `[batch, length, heads, size]`.
fn join_part(by_head: &[f32], sizes: Sizes, part: usize) -> Vec<f32> {
    let Sizes { heads, size, .. } = sizes;
    let (parts, end) = (sizes.parts()[part]..sizes.parts()[part + 1], sizes.parts()[3]);
    let mut output = vec![0.0; sizes.count() * parts.len()];
    let sequences = output.par_chunks_mut(heads * parts.len()).zip(by_head.par_chunks(heads * end));
    sequences.for_each(|(output, by_head)| {
        for (head, from) in by_head.chunks_exact(end).enumerate() {
            for (row, from) in output.chunks_exact_mut(heads * size).zip(from[parts.clone()].chunks_exact(size)) {
                row[head * size..][..size].copy_from_slice(from);
            }
        }
    });
    output
}

/// Turns rows of scores, times a factor above zero, into probabilities. With `first`, the row of this query, and each after it,
/// has one key more; the others get zero.
fn softmax_rows(scores: &mut [f32], keys: usize, factor: f32, first: Option<usize>) {
    vectorize(
        #[inline(always)]
        || {
            for (number, row) in scores.chunks_exact_mut(keys).enumerate() {
                let seen = first.map_or(keys, |first| first + number + 1);
                let (row, future) = row.split_at_mut(seen);
                future.fill(0.0);
                let most = max(row);
                let mut lanes = [0.0f32; LANES];
                let (chunks, rest) = row.as_chunks_mut::<LANES>();
                for chunk in chunks {
                    for lane in 0..LANES {
                        chunk[lane] = exp((chunk[lane] - most) * factor);
                        lanes[lane] += chunk[lane];
                    }
                }
                for (lane, value) in lanes.iter_mut().zip(rest) {
                    *value = exp((*value - most) * factor);
                    *lane += *value;
                }
                let share = 1.0 / reduce(lanes);
                for value in row {
                    *value *= share;
                }
            }
        },
    )
}

/// Turns gradients of probabilities into those of scores.
fn softmax_backward(gradients: &mut [f32], probabilities: &[f32], keys: usize, factor: f32) {
    vectorize(
        #[inline(always)]
        || {
            for (gradients, chances) in gradients.chunks_exact_mut(keys).zip(probabilities.chunks_exact(keys)) {
                let mean = dot(&*gradients, chances);
                for (gradient, chance) in gradients.iter_mut().zip(chances) {
                    *gradient = (*gradient - mean) * chance * factor;
                }
            }
        },
    )
}

/// A tensor `[batch, length, …]` whose rows are contiguous.
fn with_rows(tensor: FlexTensor) -> FlexTensor {
    let strides = tensor.layout().strides();
    let rows = strides[2] == 1 && strides[..2].iter().all(|stride| *stride >= 0);
    if rows { tensor } else { contiguous(tensor) }
}

/// A view of columns from `column` on.
fn view(tensor: &FlexTensor, column: usize) -> View<'_> {
    let layout = tensor.layout();
    let strides = [0, 1].map(|dimension| layout.strides()[dimension] as usize);
    let values = &tensor.storage::<f32>()[layout.start_offset() + column..];
    View { values, length: layout.shape()[1], strides }
}

impl Attention {
    fn sizes(&self, queries: &Shape, keys: usize, width: usize) -> Sizes {
        let (batch, length) = (queries[0], queries[1]);
        Sizes { batch, length, keys, heads: self.heads, size: width / self.heads, mask: self.mask }
    }
}

impl Operation<3> for Attention {
    /// Queries, keys and values, and the probabilities.
    type Saved = ([FlexTensor; 3], Vec<f32>);

    fn forward(&self, inputs: [FlexTensor; 3], save: bool) -> (FlexTensor, Option<Self::Saved>) {
        let inputs = inputs.map(with_rows);
        let output_shape = shape(&inputs[0]);
        let sizes = self.sizes(&output_shape, shape(&inputs[1])[1], output_shape[2]);
        let (output, probabilities) = forward(inputs.each_ref().map(|input| view(input, 0)), sizes, save);
        (tensor(output, output_shape), save.then_some((inputs, probabilities)))
    }

    fn backward(&self, saved: Self::Saved, gradient: FlexTensor, wanted: [bool; 3]) -> [Option<FlexTensor>; 3] {
        let (inputs, probabilities) = saved;
        let sizes = self.sizes(&shape(&gradient), shape(&inputs[1])[1], shape(&gradient)[2]);
        let views = inputs.each_ref().map(|input| view(input, 0));
        let by_head = backward(views, &probabilities, view(&gradient, 0), sizes);
        [0, 1, 2].map(|part| wanted[part].then(|| tensor(join_part(&by_head, sizes, part), shape(&inputs[part]))))
    }
}

impl Operation<1> for Attention {
    /// Queries, keys and values beside each other, and the probabilities.
    type Saved = (FlexTensor, Vec<f32>);

    fn forward(&self, [input]: [FlexTensor; 1], save: bool) -> (FlexTensor, Option<Self::Saved>) {
        let input = with_rows(input);
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
