//! Norm of several tensors together: one kernel for each, and one that adds their sums.

use burn::tensor::Tensor;
use cubecl::prelude::*;

use super::{UNITS, cube_sum, cubes, empty, from_memory, inner_memory, launch};

/// Values that a unit adds, at least.
const VALUES: usize = 16;
/// Largest number of cubes for a tensor.
const CUBES: usize = 256;

/// Returns the root of the sum of all squares, `[1]`; `None` without tensors.
pub fn global_norm(tensors: Vec<Tensor<1>>) -> Option<Tensor<1>> {
    let tensors: Vec<_> = tensors.into_iter().map(inner_memory).collect();
    let shares = tensors.iter().map(|tensor| {
        let length = tensor.meta.num_elements();
        (length, length.div_ceil(UNITS as usize * VALUES).clamp(1, CUBES))
    });
    let shares: Vec<_> = shares.collect();
    let count: usize = shares.iter().map(|(_, cubes)| cubes).sum();
    let like = tensors.first()?;
    let (partial, norm) = (empty(like, [count]), empty(like, [1]));
    let mut offset = 0;
    for (tensor, (length, share)) in tensors.into_iter().zip(shares) {
        launch!(squares, cubes(share), [tensor, partial], [length as u32, offset as u32]);
        offset += share;
    }
    launch!(root_of_sum, cubes(1), [partial, norm], [count as u32]);
    Some(from_memory(norm))
}

#[cube(launch)]
fn squares(values: &[f32], partial: &mut [f32], length: u32, offset: u32) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    let mut sum = 0.0f32;
    let mut i = ABSOLUTE_POS as u32;
    while i < length {
        let value = values[i as usize];
        sum += value * value;
        i += CUBE_COUNT_X * UNITS;
    }
    sum = cube_sum(sum, &mut scratch);
    if UNIT_POS == 0 {
        partial[CUBE_POS + offset as usize] = sum;
    }
}

#[cube(launch)]
fn root_of_sum(partial: &[f32], norm: &mut [f32], count: u32) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    let mut sum = 0.0f32;
    let mut i = UNIT_POS;
    while i < count {
        sum += partial[i as usize];
        i += UNITS;
    }
    sum = cube_sum(sum, &mut scratch);
    if UNIT_POS == 0 {
        norm[0] = sum.sqrt();
    }
}
