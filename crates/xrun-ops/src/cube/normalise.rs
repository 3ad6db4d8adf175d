//! Division of vectors by their length: one cube a vector.

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{UNITS, cubes, empty, launch, row_dot, rows, writable};
use crate::normalise::EPSILON;
use crate::operation::Operation;

/// Division by the length.
#[derive(Clone, Copy, Debug)]
pub struct Normalise;

impl Operation<CubeTensor, 1> for Normalise {
    /// Normalised vectors, and the length of each, `[rows]`.
    type Saved = (CubeTensor, CubeTensor);

    fn forward(&self, [vectors]: [CubeTensor; 1], save: bool) -> (CubeTensor, Option<Self::Saved>) {
        let vectors = into_contiguous(vectors);
        let (count, width) = rows(&vectors);
        let (output, lengths) = (empty(&vectors, vectors.meta.shape().clone()), empty(&vectors, [count]));
        launch!(forward, cubes(count), [vectors, output, lengths], [EPSILON, count as u32, width as u32]);
        (output.clone(), save.then_some((output, lengths)))
    }

    fn backward(&self, saved: Self::Saved, gradient: CubeTensor, _: [bool; 1]) -> [Option<CubeTensor>; 1] {
        let (normalised, lengths) = saved;
        let (count, width) = rows(&normalised);
        let output = writable(&gradient);
        launch!(backward, cubes(count), [gradient, normalised, lengths, output], [count as u32, width as u32]);
        [Some(output)]
    }
}

#[cube(launch)]
fn forward(vectors: &[f32], output: &mut [f32], lengths: &mut [f32], epsilon: f32, count: u32, width: u32) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    if CUBE_POS < count as usize {
        let start = CUBE_POS * width as usize;
        let length = (row_dot(vectors, vectors, start, width, &mut scratch) + epsilon).sqrt();
        let mut i = UNIT_POS;
        while i < width {
            output[start + i as usize] = vectors[start + i as usize] / length;
            i += UNITS;
        }
        if UNIT_POS == 0 {
            lengths[CUBE_POS] = length;
        }
    }
}

#[cube(launch)]
fn backward(gradient: &[f32], normalised: &[f32], lengths: &[f32], output: &mut [f32], count: u32, width: u32) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    if CUBE_POS < count as usize {
        let start = CUBE_POS * width as usize;
        let projection = row_dot(gradient, normalised, start, width, &mut scratch);
        let mut i = UNIT_POS;
        while i < width {
            let at = start + i as usize;
            output[at] = (gradient[at] - normalised[at] * projection) / lengths[CUBE_POS];
            i += UNITS;
        }
    }
}
