//! Softmax of attention scores, with scale and causal mask: one cube a row.

use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{UNITS, cube_max, cube_sum, cubes, rows, unary, writable};
use crate::operation::Operation;

/// Returns `softmax(scores · scale)` over the last dimension of `[…, queries, keys]`. With `causal`, query i has the keys up to i, and the
/// other probabilities are 0.
pub fn scaled_softmax(scores: Tensor<4>, scale: f32, causal: bool) -> Tensor<4> {
    unary(ScaledSoftmax { scale, causal }, scores)
}

#[derive(Clone, Copy, Debug)]
struct ScaledSoftmax {
    scale: f32,
    causal: bool,
}

impl Operation<CubeTensor, 1> for ScaledSoftmax {
    /// Probabilities.
    type Saved = CubeTensor;

    fn forward(&self, [scores]: [CubeTensor; 1], save: bool) -> (CubeTensor, Option<CubeTensor>) {
        let scores = into_contiguous(scores);
        let (count, width) = rows(&scores);
        let shape = scores.meta.shape();
        let queries = shape[shape.num_dims() - 2];
        let output = writable(&scores);
        forward::launch(
            &scores.client.clone(),
            cubes(count),
            CubeDim::new_1d(UNITS),
            scores.into_buffer_arg(),
            output.clone().into_buffer_arg(),
            self.scale,
            count as u32,
            width as u32,
            if self.causal { queries as u32 } else { 0 },
        );
        let saved = save.then(|| output.clone());
        (output, saved)
    }

    fn backward(&self, probabilities: CubeTensor, gradient: CubeTensor, _: [bool; 1]) -> [Option<CubeTensor>; 1] {
        let (count, width) = rows(&gradient);
        let output = writable(&gradient);
        backward::launch(
            &gradient.client.clone(),
            cubes(count),
            CubeDim::new_1d(UNITS),
            probabilities.into_buffer_arg(),
            gradient.into_buffer_arg(),
            output.clone().into_buffer_arg(),
            self.scale,
            count as u32,
            width as u32,
        );
        [Some(output)]
    }
}

/// `queries` is the number of rows of a causal mask; 0 without one.
#[cube(launch)]
fn forward(scores: &[f32], output: &mut [f32], scale: f32, count: u32, width: u32, queries: u32) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    if CUBE_POS < count as usize {
        let start = CUBE_POS * width as usize;
        let mut end = width;
        if queries > 0 {
            end = CUBE_POS as u32 % queries + 1;
        }
        let mut largest = scores[start] * scale;
        let mut i = UNIT_POS;
        while i < end {
            largest = max(largest, scores[start + i as usize] * scale);
            i += UNITS;
        }
        largest = cube_max(largest, &mut scratch);
        let mut sum = 0.0f32;
        i = UNIT_POS;
        while i < end {
            sum += (scores[start + i as usize] * scale - largest).exp();
            i += UNITS;
        }
        let factor = 1.0f32 / cube_sum(sum, &mut scratch);
        i = UNIT_POS;
        while i < width {
            let at = start + i as usize;
            let mut probability = 0.0f32;
            if i < end {
                probability = (scores[at] * scale - largest).exp() * factor;
            }
            output[at] = probability;
            i += UNITS;
        }
    }
}

#[cube(launch)]
fn backward(probabilities: &[f32], gradient: &[f32], output: &mut [f32], scale: f32, count: u32, width: u32) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    if CUBE_POS < count as usize {
        let start = CUBE_POS * width as usize;
        let mut dot = 0.0f32;
        let mut i = UNIT_POS;
        while i < width {
            dot += probabilities[start + i as usize] * gradient[start + i as usize];
            i += UNITS;
        }
        let projection = cube_sum(dot, &mut scratch);
        i = UNIT_POS;
        while i < width {
            let at = start + i as usize;
            output[at] = probabilities[at] * (gradient[at] - projection) * scale;
            i += UNITS;
        }
    }
}
