//! Layer normalisation: one cube a row.

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::reshape;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::sums::{Partials, add_in_order, column_partials_shape};
use super::{UNITS, cube_sum, cubes, empty, launch, rows, writable};
use crate::layer_norm::LayerNorm;
use crate::operation::Operation;

/// Values saved for the backward pass.
#[derive(Clone, Debug)]
pub struct Saved {
    input: CubeTensor,
    gamma: CubeTensor,
    /// Mean and inverse standard deviation of each row, `[rows, 2]`.
    moments: CubeTensor,
}

impl Operation<CubeTensor, 3> for LayerNorm {
    type Saved = Saved;

    fn forward(&self, inputs: [CubeTensor; 3], save: bool) -> (CubeTensor, Option<Saved>) {
        let [input, gamma, beta] = inputs.map(into_contiguous);
        let (count, width) = rows(&input);
        let (output, moments) = (empty(&input, input.meta.shape().clone()), empty(&input, [count, 2]));
        launch!(
            forward,
            cubes(count),
            [input, gamma, beta, output, moments],
            [self.epsilon, count as u32, width as u32]
        );
        (output, save.then_some(Saved { input, gamma, moments }))
    }

    fn backward(&self, saved: Saved, gradient: CubeTensor, needs_grad: [bool; 3]) -> [Option<CubeTensor>; 3] {
        let Saved { input, gamma, moments } = saved;
        let (count, width) = rows(&input);
        let parameters = (needs_grad[1] || needs_grad[2]).then(|| {
            let Partials { cubes, chunk, chunks } = column_partials_shape(count, width);
            let [gamma, beta] = [0, 1].map(|_| empty(&input, [chunks, width]));
            let scalars = [count, width, chunk].map(|size| size as u32);
            launch!(parameters, cubes, [gradient, input, moments, gamma, beta], [scalars[0], scalars[1], scalars[2]]);
            if chunks == 1 {
                [gamma, beta].map(|sums| reshape(sums, [width].into()))
            } else {
                add_in_order([&gamma, &beta], chunks)
            }
        });
        let input_gradient = needs_grad[0].then(|| {
            let output = writable(&gradient);
            launch!(backward, cubes(count), [gradient, input, gamma, moments, output], [count as u32, width as u32]);
            output
        });
        let [grad_gamma, grad_beta] = parameters.map_or([None, None], |[gamma, beta]| [Some(gamma), Some(beta)]);
        [input_gradient, grad_gamma.filter(|_| needs_grad[1]), grad_beta.filter(|_| needs_grad[2])]
    }
}

#[cube(launch)]
fn forward(
    input: &[f32],
    gamma: &[f32],
    beta: &[f32],
    output: &mut [f32],
    moments: &mut [f32],
    epsilon: f32,
    count: u32,
    width: u32,
) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    if CUBE_POS < count as usize {
        let start = CUBE_POS * width as usize;
        let mut sum = 0.0f32;
        let mut i = UNIT_POS;
        while i < width {
            sum += input[start + i as usize];
            i += UNITS;
        }
        let mean = cube_sum(sum, &mut scratch) / width as f32;
        let mut squares = 0.0f32;
        i = UNIT_POS;
        while i < width {
            let centered = input[start + i as usize] - mean;
            squares += centered * centered;
            i += UNITS;
        }
        let factor = 1.0f32 / (cube_sum(squares, &mut scratch) / width as f32 + epsilon).sqrt();
        i = UNIT_POS;
        while i < width {
            let at = start + i as usize;
            output[at] = (input[at] - mean) * factor * gamma[i as usize] + beta[i as usize];
            i += UNITS;
        }
        if UNIT_POS == 0 {
            moments[CUBE_POS * 2] = mean;
            moments[CUBE_POS * 2 + 1] = factor;
        }
    }
}

#[cube(launch)]
fn backward(
    gradient: &[f32],
    input: &[f32],
    gamma: &[f32],
    moments: &[f32],
    output: &mut [f32],
    count: u32,
    width: u32,
) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    if CUBE_POS < count as usize {
        let start = CUBE_POS * width as usize;
        let mean = moments[CUBE_POS * 2];
        let factor = moments[CUBE_POS * 2 + 1];
        let mut sum = 0.0f32;
        let mut dot = 0.0f32;
        let mut i = UNIT_POS;
        while i < width {
            let at = start + i as usize;
            let scaled = gradient[at] * gamma[i as usize];
            sum += scaled;
            dot += scaled * (input[at] - mean) * factor;
            i += UNITS;
        }
        let mean_scaled = cube_sum(sum, &mut scratch) / width as f32;
        let projection = cube_sum(dot, &mut scratch) / width as f32;
        i = UNIT_POS;
        while i < width {
            let at = start + i as usize;
            let normalized = (input[at] - mean) * factor;
            output[at] = (gradient[at] * gamma[i as usize] - mean_scaled - normalized * projection) * factor;
            i += UNITS;
        }
    }
}

/// Sums over `chunk` rows of the gradients of gamma and beta, each `[chunks, width]`: one unit a column, `CUBE_POS_Y` the chunk.
#[cube(launch)]
fn parameters(
    gradient: &[f32],
    input: &[f32],
    moments: &[f32],
    gamma: &mut [f32],
    beta: &mut [f32],
    count: u32,
    width: u32,
    chunk: u32,
) {
    let column = CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X;
    if column < width {
        let mut row = CUBE_POS_Y * chunk;
        let end = min(row + chunk, count);
        let mut grad_gamma = 0.0f32;
        let mut grad_beta = 0.0f32;
        while row < end {
            let at = (row * width + column) as usize;
            let value = gradient[at];
            grad_gamma += value * (input[at] - moments[(row * 2) as usize]) * moments[(row * 2 + 1) as usize];
            grad_beta += value;
            row += 1;
        }
        let at = (CUBE_POS_Y * width + column) as usize;
        gamma[at] = grad_gamma;
        beta[at] = grad_beta;
    }
}
