//! Fake quantisation: the range of a grid in two kernels, the rounding and its gradient in one each. Scales and zero points are computed
//! from the range on the device.

use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::sums::{Partials, column_partials_shape};
use super::{UNITS, cube_max, cubes, each, empty, from_memory, inner_memory, launch, rows, unary};
use crate::fake_quantize::{QuantRange, Quantizer, SCALE_MIN};
use crate::operation::Operation;

/// Cubes that compute the range of a whole tensor.
const RANGE_CUBES: usize = 256;

/// Returns the range of a tensor's values, or of each index of the last dimension if `per_channel` is set.
pub fn range<const D: usize>(values: Tensor<D>, per_channel: bool) -> QuantRange {
    let values = inner_memory(values);
    let (count, width) = rows(&values);
    let (partial, chunks, width) = match per_channel {
        true => {
            let Partials { cubes, chunk, chunks } = column_partials_shape(count, width);
            let partial = empty(&values, [chunks, 2, width]);
            launch!(column_ranges, cubes, [values, partial], [count as u32, width as u32, chunk as u32]);
            (partial, chunks, width)
        }
        false => {
            let length = values.meta.num_elements();
            let chunks = length.div_ceil(UNITS as usize).min(RANGE_CUBES);
            let partial = empty(&values, [chunks, 2]);
            launch!(whole_range, cubes(chunks), [values, partial], [length as u32]);
            (partial, chunks, 1)
        }
    };
    let [low, high] = [0, 1].map(|_| empty(&partial, [width]));
    launch!(join_ranges, each(&low), [partial, low, high], [chunks as u32, width as u32]);
    QuantRange { low: from_memory(low), high: from_memory(high) }
}

/// Rounds values to the grid of a range, or each row to the grid of its own range.
pub fn fake_quantize<const D: usize>(quantizer: Quantizer, values: Tensor<D>, range: Option<&QuantRange>) -> Tensor<D> {
    let range = range.map(|QuantRange { low, high }| [low, high].map(|bound| inner_memory(bound.clone())));
    unary(FakeQuantize { quantizer, range }, (values,))
}

#[derive(Clone, Debug)]
struct FakeQuantize {
    quantizer: Quantizer,
    /// Bounds of one grid, or of one for each index of the last dimension; `None` if each row has its own.
    range: Option<[CubeTensor; 2]>,
}

impl FakeQuantize {
    /// Rounds `values`; with a gradient, returns that of the values instead.
    fn launch(&self, values: &CubeTensor, gradient: Option<CubeTensor>, [low, high]: &[CubeTensor; 2]) -> CubeTensor {
        let (_, width) = rows(values);
        let output = match &gradient {
            Some(gradient) => super::writable(gradient),
            None => empty(values, values.meta.shape().clone()),
        };
        let by_row = self.range.is_none();
        let grids = if by_row { width } else { low.meta.num_elements() };
        assert!(by_row || grids == 1 || grids == width, "a range has 1 value or one for each channel");
        let (qmin, qmax) = self.quantizer.level_bounds();
        let has_gradient = gradient.is_some();
        launch!(
            round,
            each(&values),
            [values, gradient.unwrap_or_else(|| values.clone()), low, high, output],
            [qmin, qmax, grids as u32, self.quantizer.symmetric, by_row, has_gradient]
        );
        output
    }
}

impl Operation<CubeTensor, 1> for FakeQuantize {
    /// Values, and the bounds of their grids.
    type Saved = (CubeTensor, [CubeTensor; 2]);

    fn forward(&self, [values]: [CubeTensor; 1], save: bool) -> (CubeTensor, Option<Self::Saved>) {
        let values = into_contiguous(values);
        let bounds = self.range.clone().unwrap_or_else(|| {
            let (count, width) = rows(&values);
            let [low, high] = [0, 1].map(|_| empty(&values, [count]));
            launch!(row_ranges, cubes(count), [values, low, high], [count as u32, width as u32]);
            [low, high]
        });
        let output = self.launch(&values, None, &bounds);
        (output, save.then_some((values, bounds)))
    }

    fn backward(&self, saved: Self::Saved, gradient: CubeTensor, _: [bool; 1]) -> [Option<CubeTensor>; 1] {
        [Some(self.launch(&saved.0, Some(gradient), &saved.1))]
    }
}

/// Largest negated and largest value of each column in a chunk of rows, `[chunks, 2, width]`: one unit a column.
#[cube(launch)]
fn column_ranges(values: &[f32], partial: &mut [f32], count: u32, width: u32, chunk: u32) {
    let column = CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X;
    if column < width {
        let mut row = CUBE_POS_Y * chunk;
        let end = min(row + chunk, count);
        let mut highest = values[(row * width + column) as usize];
        let mut lowest = -highest;
        while row < end {
            let value = values[(row * width + column) as usize];
            lowest = max(lowest, -value);
            highest = max(highest, value);
            row += 1;
        }
        let at = (CUBE_POS_Y * 2 * width + column) as usize;
        partial[at] = lowest;
        partial[at + width as usize] = highest;
    }
}

/// Largest negated and largest value that each cube has seen, `[cubes, 2]`.
#[cube(launch)]
fn whole_range(values: &[f32], partial: &mut [f32], length: u32) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    let mut highest = values[0];
    let mut lowest = -highest;
    let mut i = ABSOLUTE_POS as u32;
    while i < length {
        let value = values[i as usize];
        lowest = max(lowest, -value);
        highest = max(highest, value);
        i += CUBE_COUNT_X * UNITS;
    }
    lowest = cube_max(lowest, &mut scratch);
    highest = cube_max(highest, &mut scratch);
    if UNIT_POS == 0 {
        partial[CUBE_POS * 2] = lowest;
        partial[CUBE_POS * 2 + 1] = highest;
    }
}

#[cube(launch)]
fn join_ranges(partial: &[f32], low: &mut [f32], high: &mut [f32], chunks: u32, width: u32) {
    let column = ABSOLUTE_POS as u32;
    if column < width {
        let mut lowest = partial[column as usize];
        let mut highest = partial[(width + column) as usize];
        let mut chunk = 1u32;
        while chunk < chunks {
            let at = (chunk * 2 * width + column) as usize;
            lowest = max(lowest, partial[at]);
            highest = max(highest, partial[at + width as usize]);
            chunk += 1;
        }
        low[column as usize] = -lowest;
        high[column as usize] = highest;
    }
}

/// One cube a row.
#[cube(launch)]
fn row_ranges(values: &[f32], low: &mut [f32], high: &mut [f32], count: u32, width: u32) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    if CUBE_POS < count as usize {
        let start = CUBE_POS * width as usize;
        let mut highest = values[start];
        let mut lowest = -highest;
        let mut i = UNIT_POS;
        while i < width {
            let value = values[start + i as usize];
            lowest = max(lowest, -value);
            highest = max(highest, value);
            i += UNITS;
        }
        lowest = cube_max(lowest, &mut scratch);
        highest = cube_max(highest, &mut scratch);
        if UNIT_POS == 0 {
            low[CUBE_POS] = -lowest;
            high[CUBE_POS] = highest;
        }
    }
}

/// `grids` is the number of grids that alternate along the values, or, with `by_row`, of consecutive values that share one.
#[cube(launch)]
fn round(
    values: &[f32],
    gradient: &[f32],
    low: &[f32],
    high: &[f32],
    output: &mut [f32],
    qmin: f32,
    qmax: f32,
    grids: u32,
    #[comptime] symmetric: bool,
    #[comptime] by_row: bool,
    #[comptime] has_gradient: bool,
) {
    if ABSOLUTE_POS < output.len() {
        let mut grid = ABSOLUTE_POS % grids as usize;
        if comptime![by_row] {
            grid = ABSOLUTE_POS / grids as usize;
        }
        let lowest = min(low[grid], 0.0f32);
        let highest = max(high[grid], 0.0f32);
        let mut span = highest - lowest;
        if comptime![symmetric] {
            span = max(highest, -lowest);
        }
        let scale = max(span / qmax, SCALE_MIN);
        let mut zero = 0.0f32;
        if comptime![!symmetric] {
            zero = (-lowest / scale).round();
        }
        let steps = (values[ABSOLUTE_POS] / scale).round() + zero;
        let level = min(max(steps, qmin), qmax);
        let mut result = (level - zero) * scale;
        if comptime![has_gradient] {
            result = 0.0f32;
            if steps == level {
                result = gradient[ABSOLUTE_POS];
            }
        }
        output[ABSOLUTE_POS] = result;
    }
}
