//! Softmax of attention scores, with scale and causal mask: one cube a row.

use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{UNITS, cube_max, cube_sum, cubes, float_type, launch, row_dot, rows, unary, writable};
use crate::operation::Operation;

/// Returns `softmax(scores · scale)` over the last dimension of `[…, queries, keys]`, computed in 32 bits and of the dtype of the scores.
/// With `causal`, query i has the keys up to i, and the other probabilities are 0.
pub fn scaled_softmax(scores: Tensor<4>, scale: f32, causal: bool) -> Tensor<4> {
    unary(ScaledSoftmax { scale, causal }, (scores,))
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
        launch!(
            forward,
            cubes(count),
            [scores, output],
            [self.scale, count as u32, width as u32, if self.causal { queries as u32 } else { 0 }, float_type(&output)]
        );
        let saved = save.then(|| output.clone());
        (output, saved)
    }

    fn backward(&self, probabilities: CubeTensor, gradient: CubeTensor, _: [bool; 1]) -> [Option<CubeTensor>; 1] {
        let (count, width) = rows(&gradient);
        let output = writable(&gradient);
        launch!(
            backward,
            cubes(count),
            [probabilities, gradient, output],
            [self.scale, count as u32, width as u32, float_type(&output)]
        );
        [Some(output)]
    }
}

/// `queries` is the number of rows of a causal mask; 0 without one.
#[cube(launch)]
fn forward<F: Float>(
    scores: &[F],
    output: &mut [F],
    scale: f32,
    count: u32,
    width: u32,
    queries: u32,
    #[define(F)] _dtype: ElemType,
) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    if CUBE_POS < count as usize {
        let start = CUBE_POS * width as usize;
        let mut end = width;
        if queries > 0 {
            end = CUBE_POS as u32 % queries + 1;
        }
        let mut largest = f32::cast_from(scores[start]) * scale;
        let mut i = UNIT_POS;
        while i < end {
            largest = max(largest, f32::cast_from(scores[start + i as usize]) * scale);
            i += UNITS;
        }
        largest = cube_max(largest, &mut scratch);
        let mut sum = 0.0f32;
        i = UNIT_POS;
        while i < end {
            sum += (f32::cast_from(scores[start + i as usize]) * scale - largest).exp();
            i += UNITS;
        }
        let factor = 1.0f32 / cube_sum(sum, &mut scratch);
        i = UNIT_POS;
        while i < width {
            let at = start + i as usize;
            let mut probability = 0.0f32;
            if i < end {
                probability = (f32::cast_from(scores[at]) * scale - largest).exp() * factor;
            }
            output[at] = F::cast_from(probability);
            i += UNITS;
        }
    }
}

#[cube(launch)]
fn backward<F: Float>(
    probabilities: &[F],
    gradient: &[F],
    output: &mut [F],
    scale: f32,
    count: u32,
    width: u32,
    #[define(F)] _dtype: ElemType,
) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    if CUBE_POS < count as usize {
        let start = CUBE_POS * width as usize;
        let projection = row_dot(probabilities, gradient, start, width, &mut scratch);
        let mut i = UNIT_POS;
        while i < width {
            let at = start + i as usize;
            let result = f32::cast_from(probabilities[at]) * (f32::cast_from(gradient[at]) - projection) * scale;
            output[at] = F::cast_from(result);
            i += UNITS;
        }
    }
}
