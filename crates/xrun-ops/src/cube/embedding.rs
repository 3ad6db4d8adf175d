//! Rows of a table by their indices.
//!
//! The gradient of a row is the sum over the positions that have its index, in their order: a first kernel links each position to the
//! next one of the same index, a second follows the links from the first one.

use burn::tensor::{Int, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::in_place::clear_memory;
use super::{UNITS, cubes, each, empty, int_memory, launch, rows, unary};
use crate::operation::Operation;

/// Returns the rows `[batch, length, width]` of `table` `[rows, width]` at `indices` `[batch, length]`.
pub fn embedding(table: Tensor<2>, indices: Tensor<2, Int>) -> Tensor<3> {
    unary(Embedding { indices: int_memory(indices) }, (table,))
}

#[derive(Clone, Debug)]
struct Embedding {
    /// `[batch, length]`
    indices: CubeTensor,
}

impl Operation<CubeTensor, 1> for Embedding {
    /// Number of rows of the table.
    type Saved = usize;

    fn forward(&self, [table]: [CubeTensor; 1], _: bool) -> (CubeTensor, Option<usize>) {
        let table = into_contiguous(table);
        let (table_rows, width) = rows(&table);
        let shape = self.indices.meta.shape();
        let output = empty(&table, [shape[0], shape[1], width]);
        launch!(gather, each(&output), [table, self.indices, output], [width as u32]);
        (output, Some(table_rows))
    }

    fn backward(&self, table_rows: usize, gradient: CubeTensor, _: [bool; 1]) -> [Option<CubeTensor>; 1] {
        let (count, width) = rows(&gradient);
        let (output, links) = (empty(&gradient, [table_rows, width]), empty(&gradient, [count, 2]));
        clear_memory(std::slice::from_ref(&output));
        launch!(link, cubes(count), [self.indices, links], [count as u32]);
        launch!(follow, cubes(count), [gradient, self.indices, links, output], [count as u32, width as u32]);
        [Some(output)]
    }
}

#[cube(launch)]
fn gather(table: &[f32], indices: &[i32], output: &mut [f32], width: u32) {
    if ABSOLUTE_POS < output.len() {
        let row = indices[ABSOLUTE_POS / width as usize] as usize;
        output[ABSOLUTE_POS] = table[row * width as usize + ABSOLUTE_POS % width as usize];
    }
}

/// For each position: the next position of the same index (`count` if there is none), and 1 if none precedes it.
#[cube(launch)]
fn link(indices: &[i32], links: &mut [u32], count: u32) {
    let mut next = Shared::<[u32]>::new_slice(UNITS as usize);
    let mut earlier = Shared::<[u32]>::new_slice(UNITS as usize);
    if CUBE_POS < count as usize {
        let own = indices[CUBE_POS];
        let position = CUBE_POS as u32;
        let mut following = count;
        let mut precedes = 0u32;
        let mut i = UNIT_POS;
        while i < count {
            if indices[i as usize] == own {
                if i < position {
                    precedes = 1u32;
                }
                if i > position && i < following {
                    following = i;
                }
            }
            i += UNITS;
        }
        next[UNIT_POS as usize] = following;
        earlier[UNIT_POS as usize] = precedes;
        sync_cube();
        let mut half = CUBE_DIM / 2;
        while half > 0 {
            if UNIT_POS < half {
                let other = (UNIT_POS + half) as usize;
                next[UNIT_POS as usize] = min(next[UNIT_POS as usize], next[other]);
                earlier[UNIT_POS as usize] = max(earlier[UNIT_POS as usize], earlier[other]);
            }
            sync_cube();
            half /= 2;
        }
        if UNIT_POS == 0 {
            links[CUBE_POS * 2] = next[0];
            links[CUBE_POS * 2 + 1] = 1 - earlier[0];
        }
    }
}

#[cube(launch)]
fn follow(gradient: &[f32], indices: &[i32], links: &[u32], output: &mut [f32], count: u32, width: u32) {
    if CUBE_POS < count as usize && links[CUBE_POS * 2 + 1] == 1 {
        let start = indices[CUBE_POS] as usize * width as usize;
        let mut column = UNIT_POS;
        while column < width {
            let mut sum = 0.0f32;
            let mut position = CUBE_POS as u32;
            while position < count {
                sum += gradient[(position * width + column) as usize];
                position = links[(position * 2) as usize];
            }
            output[start + column as usize] = sum;
            column += UNITS;
        }
    }
}
