//! Norm of several tensors together: one kernel for many of them, and one that adds their sums.

use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{UNITS, buffers, cube_sum, cubes, dim, empty, from_memory, group_size, inner_memory, launch};

/// Values that a unit adds, at least.
const VALUES: usize = 16;
/// Largest number of cubes for a tensor.
const CUBES: usize = 256;

/// Returns the root of the sum of all squares, `[1]`; `None` without tensors.
pub fn global_norm(tensors: Vec<Tensor<1>>) -> Option<Tensor<1>> {
    let tensors: Vec<_> = tensors.into_iter().map(inner_memory).collect();
    let share = |tensor: &CubeTensor| tensor.meta.num_elements().div_ceil(UNITS as usize * VALUES).clamp(1, CUBES);
    let count: usize = tensors.iter().map(share).sum();
    let like = tensors.first()?;
    let (partial, norm) = (empty(like, [count]), empty(like, [1]));
    let mut offset = 0;
    for group in tensors.chunks(group_size(&tensors, 1)) {
        let most = group.iter().map(share).max().unwrap_or(1);
        let (client, output) = (like.client.clone(), partial.clone().into_buffer_arg());
        squares::launch(&client, CubeCount::new_1d(most as u32), dim(), buffers(group), output, offset as u32);
        offset += group.iter().map(share).sum::<usize>();
    }
    launch!(root_of_sum, cubes(1), [partial, norm], [count as u32]);
    Some(from_memory(norm))
}

/// Each tensor has [`CUBES`] cubes at most, one for [`VALUES`] values of each unit.
#[cube(launch)]
fn squares(tensors: &Sequence<Box<[f32]>>, partial: &mut [f32], offset: u32) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    let mut first = offset as usize;
    #[unroll]
    for i in 0..tensors.len() {
        let length = tensors[i].len();
        let each = UNITS as usize * comptime![VALUES];
        let share = min(max((length + each - 1) / each, 1), comptime![CUBES]);
        if CUBE_POS < share {
            let mut sum = 0.0f32;
            let mut at = ABSOLUTE_POS;
            while at < length {
                let value = tensors[i][at];
                sum += value * value;
                at += share * UNITS as usize;
            }
            sum = cube_sum(sum, &mut scratch);
            if UNIT_POS == 0 {
                partial[first + CUBE_POS] = sum;
            }
        }
        first += share;
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
