//! Sums over the rows of a matrix, and the addition of a bias, whose gradient is such a sum.
//!
//! A row of cubes sums a chunk of rows, one unit a column; a second kernel adds the chunks in order.

use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{UNITS, binary, buffers, dim, each, each_of, empty, float_type, launch, rows};
use crate::operation::Operation;

/// Rows of a chunk.
const CHUNK_ROWS: usize = 64;

/// Largest number of chunks, which one unit a column adds.
const MAX_CHUNKS: usize = 256;

/// Launch of a kernel that sums chunks of rows.
pub struct Partials {
    /// Cubes: columns in x, chunks in y.
    pub cubes: CubeCount,
    /// Rows of a chunk.
    pub chunk: usize,
    /// Number of chunks.
    pub chunks: usize,
}

/// Returns the launch of a kernel that sums `count` rows.
pub fn column_partials_shape(count: usize, width: usize) -> Partials {
    let chunks = count.div_ceil(CHUNK_ROWS).clamp(1, MAX_CHUNKS);
    let chunk = count.div_ceil(chunks);
    let cubes = CubeCount::Static((width as u32).div_ceil(UNITS), chunks as u32, 1);
    Partials { cubes, chunk, chunks }
}

/// Returns the sums over the `count` rows of contiguous matrices, each `[columns]`.
pub fn column_sums<const N: usize>(matrices: [&CubeTensor; N], count: usize) -> [CubeTensor; N] {
    if count <= CHUNK_ROWS {
        return add_in_order(matrices, count);
    }
    let chunks = matrices.map(|matrix| {
        let width = matrix.meta.num_elements() / count;
        let Partials { cubes, chunk, chunks } = column_partials_shape(count, width);
        let partial = empty(matrix, [chunks, width]);
        launch!(add_rows, cubes, [matrix, partial], [count as u32, width as u32, chunk as u32]);
        partial
    });
    add_in_order(chunks.each_ref(), column_partials_shape(count, 1).chunks)
}

/// Returns the sums over the `count` rows of contiguous matrices, one unit a column, in one launch.
pub fn add_in_order<const N: usize>(matrices: [&CubeTensor; N], count: usize) -> [CubeTensor; N] {
    let outputs = matrices.map(|matrix| empty(matrix, [matrix.meta.num_elements() / count]));
    let client = outputs[0].client.clone();
    let matrices = buffers(&matrices.map(Clone::clone));
    add_chunks::launch(&client, each_of(&outputs), dim(), matrices, buffers(&outputs), count as u32);
    outputs
}

#[cube(launch)]
fn add_rows(matrix: &[f32], partial: &mut [f32], count: u32, width: u32, chunk: u32) {
    let column = CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X;
    if column < width {
        let mut row = CUBE_POS_Y * chunk;
        let end = min(row + chunk, count);
        let mut sum = 0.0f32;
        while row < end {
            sum += matrix[(row * width + column) as usize];
            row += 1;
        }
        partial[(CUBE_POS_Y * width + column) as usize] = sum;
    }
}

#[cube(launch)]
fn add_chunks(partials: &Sequence<Box<[f32]>>, outputs: &mut Sequence<Box<[f32]>>, chunks: u32) {
    let column = ABSOLUTE_POS;
    #[unroll]
    for i in 0..outputs.len() {
        let output = &mut outputs[i];
        let width = output.len();
        if column < width {
            let mut sum = 0.0f32;
            let mut chunk = 0u32;
            while chunk < chunks {
                sum += partials[i][chunk as usize * width + column];
                chunk += 1;
            }
            output[column] = sum;
        }
    }
}

/// Adds `bias` `[width]` to each row of `input` `[…, width]` of any dtype; the result has 32 bits.
pub fn add_bias<const D: usize>(input: Tensor<D>, bias: Tensor<1>) -> Tensor<D> {
    binary(AddBias, (input, bias))
}

#[derive(Clone, Copy, Debug)]
struct AddBias;

impl Operation<CubeTensor, 2> for AddBias {
    /// Width of the bias and dtype of the input.
    type Saved = (usize, DType);

    fn forward(&self, inputs: [CubeTensor; 2], _: bool) -> (CubeTensor, Option<Self::Saved>) {
        let [input, bias] = inputs.map(into_contiguous);
        let ((_, width), dtype) = (rows(&input), input.dtype);
        let output = match dtype {
            DType::F32 => super::writable(&input),
            _ => empty(&input, input.meta.shape().clone()),
        };
        launch!(add_bias_kernel, each(&input), [input, bias, output], [width as u32, float_type(&input)]);
        (output, Some((width, dtype)))
    }

    fn backward(&self, saved: Self::Saved, gradient: CubeTensor, needs_grad: [bool; 2]) -> [Option<CubeTensor>; 2] {
        let bias = needs_grad[1].then(|| column_sums([&gradient], gradient.meta.num_elements() / saved.0));
        let bias = bias.map(|[bias]| bias);
        [needs_grad[0].then(|| cast(gradient, saved.1)), bias]
    }
}

#[cube(launch)]
fn add_bias_kernel<F: Float>(input: &[F], bias: &[f32], output: &mut [f32], width: u32, #[define(F)] _dtype: ElemType) {
    if ABSOLUTE_POS < output.len() {
        output[ABSOLUTE_POS] = f32::cast_from(input[ABSOLUTE_POS]) + bias[ABSOLUTE_POS % width as usize];
    }
}
