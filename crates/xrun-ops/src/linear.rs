//! Linear layer of rows: `Y = X W + b`. Backward: `X' = Y' Wᵀ`, `W' = Xᵀ Y'`, and `b'` is the sum of the rows of `Y'`, in order.
//!
//! Products are split into blocks of rows, one for each thread. A block is so large that the product takes the same path through
//! `gemm` as the whole one would, on which a value is a sum over the inner dimension in one order.

use std::mem::MaybeUninit;

use burn::tensor::{DType, FloatDType, Int, Shape, Tensor, module};
use burn_flex::FlexTensor;
use rayon::prelude::*;

use crate::cpu_kernels::is_fused;
use crate::cube::{has_gpu_kernels, on_cube};
use crate::flex::{contiguous, shape, tensor, values};
use crate::matmul::{Matrix, write_product};
use crate::operation::{Operation, binary, ternary};
use crate::simd::{accumulate, add, vectorize};

/// Maximum number of blocks.
const BLOCKS: usize = 16;
/// Number of multiplications from which a block of its own is worthwhile.
const BLOCK_WORK: usize = 1 << 18;
/// Rows of a block, of which [`BLOCKS`] leave more than 64 to the last: up to 64 rows and columns, `gemm` splits the inner dimension
/// in another way.
const LARGE_BLOCK: usize = 96;
/// Rows of a block where the number of columns alone decides, or the product is small in any case.
const SMALL_BLOCK: usize = 32;
/// Number of columns that a thread sums up at a time.
const BIAS_COLUMNS: usize = 64;

/// Linear layer: `input` `[rows, inputs]`, `weight` `[inputs, outputs]` and `bias` `[outputs]` give `[rows, outputs]`.
///
/// # Panics
/// Shapes do not match.
pub fn linear(input: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    let ([_, inputs], [weight_inputs, outputs]) = (input.dims(), weight.dims());
    assert!(inputs == weight_inputs, "{inputs} inputs do not match {weight_inputs} rows of the weight");
    assert!(bias.as_ref().is_none_or(|bias| bias.dims() == [outputs]), "the bias is not [{outputs}]");
    match (is_fused(&input) && is_fused(&weight), bias) {
        (true, Some(bias)) => ternary(Linear, (input, weight, bias)),
        (true, None) => binary(Linear, (input, weight)),
        (false, Some(bias)) if has_gpu_kernels(&input) => add_bias(input.matmul(weight), bias),
        (false, bias) => module::linear(input, weight, bias),
    }
}

/// Adds `bias` `[width]` to each row of a product `[rows, width]`, which may have 16 bits; the sum has 32.
pub fn add_bias(product: Tensor<2>, bias: Tensor<1>) -> Tensor<2> {
    on_cube!(any &product => crate::cube::add_bias(product, bias));
    let product = if product.dtype() == DType::F32 { product } else { product.cast(FloatDType::F32) };
    product + bias.unsqueeze_dim::<2>(0)
}

/// Returns the rows `[batch, length, width]` of `table` `[rows, width]` at `indices` `[batch, length]`, each below the number of rows.
pub fn embedding(table: Tensor<2>, indices: Tensor<2, Int>) -> Tensor<3> {
    on_cube!(&table => crate::cube::embedding(table, indices));
    module::embedding(table, indices)
}

#[derive(Clone, Copy, Debug)]
struct Linear;

/// Input and weight, each if the other one's gradient is needed.
type Saved = [Option<FlexTensor>; 2];

impl Operation<FlexTensor, 2> for Linear {
    type Saved = Saved;

    fn forward(&self, [input, weight]: [FlexTensor; 2], save: bool) -> (FlexTensor, Option<Saved>) {
        forward([input, weight], None, save)
    }

    fn backward(&self, saved: Saved, gradient: FlexTensor, _: [bool; 2]) -> [Option<FlexTensor>; 2] {
        backward(saved, &gradient)
    }

    fn needed([input, weight]: Saved, [needs_input, needs_weight]: [bool; 2]) -> Saved {
        [input.filter(|_| needs_weight), weight.filter(|_| needs_input)]
    }
}

impl Operation<FlexTensor, 3> for Linear {
    type Saved = Saved;

    fn forward(&self, [input, weight, bias]: [FlexTensor; 3], save: bool) -> (FlexTensor, Option<Saved>) {
        forward([input, weight], Some(contiguous(bias)), save)
    }

    fn backward(&self, saved: Saved, gradient: FlexTensor, needs_grad: [bool; 3]) -> [Option<FlexTensor>; 3] {
        let [grad_input, grad_weight] = backward(saved, &gradient);
        let outputs = shape(&gradient)[1];
        let grad_bias = needs_grad[2].then(|| tensor(sum_rows(values(&gradient), outputs), Shape::new([outputs])));
        [grad_input, grad_weight, grad_bias]
    }

    fn needed([input, weight]: Saved, [needs_input, needs_weight, _]: [bool; 3]) -> Saved {
        [input.filter(|_| needs_weight), weight.filter(|_| needs_input)]
    }
}

fn forward(factors: [FlexTensor; 2], bias: Option<FlexTensor>, save: bool) -> (FlexTensor, Option<Saved>) {
    let factors = factors.map(with_strides);
    let [input, weight] = factors.each_ref().map(matrix);
    let bias = bias.as_ref().map(values);
    let output = product(input, weight, |rows| {
        if let Some(bias) = bias {
            rows.chunks_exact_mut(bias.len().max(1)).for_each(|row| accumulate(row, bias));
        }
    });
    let shape = Shape::new([input.size()[0], weight.size()[1]]);
    (tensor(output, shape), save.then(|| factors.map(Some)))
}

fn backward([input, weight]: Saved, gradient: &FlexTensor) -> [Option<FlexTensor>; 2] {
    let gradient = matrix(gradient);
    let product = |left: Matrix<'_>, right: Matrix<'_>| {
        tensor(product(left, right, |_| {}), Shape::new([left.size()[0], right.size()[1]]))
    };
    let grad_input = weight.map(|weight| product(gradient, matrix(&weight).transposed()));
    let grad_weight = input.map(|input| product(matrix(&input).transposed(), gradient));
    [grad_input, grad_weight]
}

/// Returns `left · right`, row by row; `finish` is called with some rows of it at a time.
fn product(left: Matrix<'_>, right: Matrix<'_>, finish: impl Fn(&mut [f32]) + Sync) -> Vec<f32> {
    let ([rows, inner], [_, columns]) = (left.size(), right.size());
    let block = block_rows(rows, columns, inner);
    let mut output = Vec::with_capacity(rows * columns);
    let blocks = output.spare_capacity_mut()[..rows * columns].par_chunks_mut((block * columns).max(1));
    blocks.enumerate().for_each(|(number, to): (usize, &mut [MaybeUninit<f32>])| {
        finish(write_product(to, left.rows(number * block, to.len() / columns), right));
    });
    // SAFETY: the blocks are all `rows * columns` values, and `write_product` has written each of theirs.
    unsafe { output.set_len(rows * columns) };
    output
}

/// Returns the number of rows of a block of a product.
fn block_rows(rows: usize, columns: usize, inner: usize) -> usize {
    let smallest = match (rows, columns) {
        // Products of at most 256 values have a path of their own.
        (_, ..16) => return rows.max(1),
        (..=64, _) | (_, 65..) => SMALL_BLOCK,
        _ => LARGE_BLOCK,
    };
    let worthwhile = (rows * columns).saturating_mul(inner) / BLOCK_WORK;
    let blocks = rayon::current_num_threads().min(BLOCKS).min(rows / smallest).min(worthwhile).max(1);
    rows.div_ceil(blocks).max(1)
}

/// Returns the sum of rows of `columns` values, from the first to the last.
fn sum_rows(rows: &[f32], columns: usize) -> Vec<f32> {
    let mut sums = vec![0.0; columns];
    sums.par_chunks_mut(BIAS_COLUMNS).enumerate().for_each(|(number, sums)| {
        let width = sums.len();
        vectorize(
            #[inline(always)]
            || rows.chunks_exact(columns).for_each(|row| add(sums, &row[number * BIAS_COLUMNS..][..width])),
        );
    });
    sums
}

/// Returns a tensor that [`matrix`] can view, copied if its strides are negative.
fn with_strides(tensor: FlexTensor) -> FlexTensor {
    if tensor.layout().has_positive_strides() { tensor } else { contiguous(tensor) }
}

/// Returns a view of a tensor of two dimensions whose strides are not negative.
fn matrix(tensor: &FlexTensor) -> Matrix<'_> {
    let layout = tensor.layout();
    let ([rows, columns], strides) = ([0, 1].map(|at| layout.shape()[at]), [0, 1].map(|at| layout.strides()[at]));
    Matrix::strided(&tensor.storage::<f32>()[layout.start_offset()..], [rows, columns], strides.map(|one| one as usize))
}
