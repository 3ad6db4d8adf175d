//! Fake quantisation: values rounded to a grid and back, with a straight-through gradient.
//!
//! `q = clamp(round(x / s) + z, least, most)`, `x' = (q − z) s` (Jacob et al. 2018). The gradient is one inside the grid and
//! zero outside (Bengio et al. 2013). The fused kernels give the bits of the same formula in Burn's operations.

use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::{Tensor, TensorData};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use crate::choice::is_fused;
use crate::flex::{contiguous, values, width, writable};
use crate::operation::{Operation, unary};
use crate::simd::{range, vectorize};

/// Keeps the division finite where all values are zero.
const SCALE_MIN: f32 = 1e-12;
/// Values that one thread takes at a time.
const PIECE: usize = 1 << 13;

/// A kind of grid: how many levels it has, and where they lie between the least and the greatest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantizer {
    /// 2 to 16.
    pub bits: u32,
    /// As many levels below zero as above; or from the least value to the greatest, zero among them.
    pub symmetric: bool,
}

/// The values that a grid spans: `[1]` each, or `[channels]` for a grid of its own for each index of the last dimension. Without
/// autodiff: they have no gradient.
#[derive(Clone, Debug)]
pub struct Range {
    /// The least value that is represented.
    pub low: Tensor<1>,
    /// The greatest.
    pub high: Tensor<1>,
}

impl Range {
    /// The least and the greatest of a tensor's values; with `per_channel`, of each index of the last dimension.
    pub fn of<const D: usize>(values: &Tensor<D>, per_channel: bool) -> Self {
        let inner = inner(values);
        if !per_channel && is_fused(&inner) {
            let device = inner.device();
            let (low, high) = range_of(inner);
            return Self { low: Tensor::from_floats([low], &device), high: Tensor::from_floats([high], &device) };
        }
        if !per_channel {
            return Self { low: inner.clone().min(), high: inner.max() };
        }
        let channels = inner.dims()[D - 1];
        if is_fused(&inner) {
            let device = inner.device();
            let [low, high] = channel_ranges_of(inner, channels);
            let tensor = |edge: Vec<f32>| Tensor::from_data(TensorData::new(edge, [channels]), &device);
            return Self { low: tensor(low), high: tensor(high) };
        }
        let rows = inner.reshape([-1, channels as isize]);
        let flat = |edge: Tensor<2>| edge.reshape([channels]);
        Self { low: flat(rows.clone().min_dim(0)), high: flat(rows.max_dim(0)) }
    }
}

/// The values without autodiff.
fn inner<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    if tensor.device().is_autodiff() { tensor.clone().inner() } else { tensor.clone() }
}

fn primitive<const D: usize>(inner: Tensor<D>) -> FlexTensor {
    let tensor = inner.try_into_primitive::<Flex>();
    contiguous(tensor.unwrap_or_else(|error| unreachable!("it is on the CPU: {error:?}")))
}

/// The least and the greatest of each channel.
fn channel_ranges_of<const D: usize>(inner: Tensor<D>, channels: usize) -> [Vec<f32>; 2] {
    let tensor = primitive(inner);
    let rows = (PIECE / channels).max(1) * channels;
    let pieces = values(&tensor).par_chunks(rows).map(|rows| {
        let mut edges = [vec![f32::INFINITY; channels], vec![f32::NEG_INFINITY; channels]];
        let [low, high] = &mut edges;
        channel_ranges(rows, low, high);
        edges
    });
    let pieces: Vec<[Vec<f32>; 2]> = pieces.collect();
    let mut pieces = pieces.into_iter();
    let [mut low, mut high] = pieces.next().unwrap_or_default();
    for [lows, highs] in pieces {
        low.iter_mut().zip(lows).for_each(|(low, other)| *low = low.min(other));
        high.iter_mut().zip(highs).for_each(|(high, other)| *high = high.max(other));
    }
    [low, high]
}

fn range_of<const D: usize>(inner: Tensor<D>) -> (f32, f32) {
    let tensor = primitive(inner);
    let pieces: Vec<(f32, f32)> = values(&tensor).par_chunks(PIECE).map(piece_range).collect();
    pieces.into_iter().fold((f32::INFINITY, f32::NEG_INFINITY), |all, piece| (all.0.min(piece.0), all.1.max(piece.1)))
}

impl Quantizer {
    /// The lowest and the highest level.
    fn levels(self) -> (f32, f32) {
        match self.symmetric {
            true => {
                let most = ((1u32 << (self.bits - 1)) - 1) as f32;
                (-most, most)
            }
            false => (0.0, ((1u32 << self.bits) - 1) as f32),
        }
    }

    /// Scale and zero point of ranges; any shape.
    pub fn scale_and_zero<const D: usize>(self, low: Tensor<D>, high: Tensor<D>) -> (Tensor<D>, Tensor<D>) {
        let (_, most) = self.levels();
        let (low, high) = (low.clamp_max(0.0), high.clamp_min(0.0));
        match self.symmetric {
            true => {
                let reach = low.neg().max_pair(high);
                let zero = reach.zeros_like();
                ((reach / most).clamp_min(SCALE_MIN), zero)
            }
            false => {
                let scale = ((high - low.clone()) / most).clamp_min(SCALE_MIN);
                let zero = (low.neg() / scale.clone()).round();
                (scale, zero)
            }
        }
    }

    /// [`Self::scale_and_zero`] of one pair.
    fn scale_and_zero_of(self, low: f32, high: f32) -> (f32, f32) {
        let (_, most) = self.levels();
        let (low, high) = (low.min(0.0), high.max(0.0));
        match self.symmetric {
            true => ((high.max(-low) / most).max(SCALE_MIN), 0.0),
            false => {
                let scale = ((high - low) / most).max(SCALE_MIN);
                (scale, (-low / scale).round_ties_even())
            }
        }
    }

    /// Values on the grid of a range, with a straight-through gradient; any shape.
    pub fn fake_quantize<const D: usize>(self, values: Tensor<D>, range: &Range) -> Tensor<D> {
        let (scale, zero) = self.scale_and_zero(range.low.clone(), range.high.clone());
        if is_fused(&values) {
            let numbers = |tensor: Tensor<1>| tensor.into_data().iter::<f32>().collect::<Vec<f32>>();
            let grid = Grid::Given { scale: numbers(scale), zero: numbers(zero) };
            return unary(FakeQuantize { quantizer: self, grid }, values);
        }
        let spread = |values: Tensor<1>| {
            let mut shape = [1; D];
            shape[D - 1] = values.dims()[0];
            values.reshape(shape)
        };
        self.plain(values, spread(scale), spread(zero))
    }

    /// Values on the grid of a range, without a gradient; on the device of the values.
    pub fn quantize_dequantize<const D: usize>(self, values: &Tensor<D>, range: &Range) -> Tensor<D> {
        let quantized = self.fake_quantize(inner(values), range);
        if values.device().is_autodiff() { Tensor::from_inner(quantized) } else { quantized }
    }

    /// `[rows, features]`, each row on the grid from its own least to its greatest value. Where rounding moves the zero point, a
    /// value can be one level outside; it has no gradient.
    pub fn fake_quantize_rows(self, values: Tensor<2>) -> Tensor<2> {
        if is_fused(&values) {
            return unary(FakeQuantize { quantizer: self, grid: Grid::Rows }, values);
        }
        let rows = inner(&values);
        let (scale, zero) = self.scale_and_zero(rows.clone().min_dim(1), rows.max_dim(1));
        self.plain(values, scale, zero)
    }

    /// Plain body in Burn's operations, for scales and zero points that fit the values.
    fn plain<const D: usize>(self, values: Tensor<D>, scale: Tensor<D>, zero: Tensor<D>) -> Tensor<D> {
        let (least, most) = self.levels();
        let fixed = inner(&values);
        let steps = (fixed.clone() / scale.clone()).round() + zero.clone();
        let level = steps.clone().clamp(least, most);
        let quantized = (level.clone() - zero) * scale;
        if !values.device().is_autodiff() {
            return quantized;
        }
        // The value is `quantized` to the bit: a number less itself is zero.
        let inside = Tensor::from_inner(steps.equal(level).float());
        let zero = (values - Tensor::from_inner(fixed)) * inside;
        zero + Tensor::from_inner(quantized)
    }
}

#[derive(Clone, Debug)]
enum Grid {
    /// One scale and zero point for all values, or one for each index of the last dimension.
    Given { scale: Vec<f32>, zero: Vec<f32> },
    /// One for each row.
    Rows,
}

#[derive(Clone, Debug)]
struct FakeQuantize {
    quantizer: Quantizer,
    grid: Grid,
}

impl Operation<1> for FakeQuantize {
    /// One for each value inside its grid and zero for others; `None` if all are inside.
    type Saved = Option<Vec<u8>>;

    fn forward(&self, [input]: [FlexTensor; 1], save: bool) -> (FlexTensor, Option<Self::Saved>) {
        let width = width(&input);
        let mut output = writable(input);
        let all = output.storage_mut::<f32>();
        let mut inside = vec![0u8; all.len()];
        let outside = AtomicBool::new(false);
        let note = |all_inside: bool| {
            if !all_inside {
                outside.store(true, Ordering::Relaxed);
            }
        };
        let levels = self.quantizer.levels();
        let rows = (PIECE / width).max(1) * width;
        match &self.grid {
            Grid::Given { scale, zero } if scale.len() == 1 => {
                let pieces = all.par_chunks_mut(PIECE).zip(inside.par_chunks_mut(PIECE));
                pieces.for_each(|(values, inside)| note(on_grid(values, inside, levels, (scale[0], zero[0]))));
            }
            Grid::Given { scale, zero } => {
                assert_eq!(scale.len(), width, "a range has one value, or one for each channel");
                let pieces = all.par_chunks_mut(rows).zip(inside.par_chunks_mut(rows));
                pieces.for_each(|(values, inside)| note(on_channel_grids(values, inside, levels, scale, zero)));
            }
            Grid::Rows => {
                let pieces = all.par_chunks_mut(rows).zip(inside.par_chunks_mut(rows));
                pieces.for_each(|(values, inside)| note(on_row_grids(values, inside, width, self.quantizer)));
            }
        }
        let inside = outside.into_inner().then_some(inside);
        (output, save.then_some(inside))
    }

    fn backward(&self, inside: Self::Saved, gradient: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let Some(inside) = inside else { return [Some(gradient)] };
        let mut gradient = writable(gradient);
        let pieces = gradient.storage_mut::<f32>().par_chunks_mut(PIECE).zip(inside.par_chunks(PIECE));
        pieces.for_each(|(gradient, inside)| mask(gradient, inside));
        [Some(gradient)]
    }
}

/// A value on a grid, and 1 where the grid reaches.
#[inline(always)]
fn level(value: f32, (least, most): (f32, f32), scale: f32, zero: f32) -> (f32, u8) {
    let steps = (value / scale).round_ties_even() + zero;
    let level = if steps < least { least } else { steps };
    let level = if level > most { most } else { level };
    ((level - zero) * scale, u8::from(steps == level))
}

/// Puts values on one grid; returns whether it reaches them all.
fn on_grid(values: &mut [f32], inside: &mut [u8], levels: (f32, f32), grid: (f32, f32)) -> bool {
    vectorize(
        #[inline(always)]
        || {
            for (value, inside) in values.iter_mut().zip(&mut *inside) {
                (*value, *inside) = level(*value, levels, grid.0, grid.1);
            }
            inside.iter().fold(1, |all, inside| all & inside) == 1
        },
    )
}

fn on_channel_grids(values: &mut [f32], inside: &mut [u8], levels: (f32, f32), scale: &[f32], zero: &[f32]) -> bool {
    vectorize(
        #[inline(always)]
        || {
            let rows = values.chunks_exact_mut(scale.len()).zip(inside.chunks_exact_mut(scale.len()));
            for (values, inside) in rows {
                for ((value, inside), (scale, zero)) in values.iter_mut().zip(inside).zip(scale.iter().zip(zero)) {
                    (*value, *inside) = level(*value, levels, *scale, *zero);
                }
            }
            inside.iter().fold(1, |all, inside| all & inside) == 1
        },
    )
}

fn on_row_grids(values: &mut [f32], inside: &mut [u8], width: usize, quantizer: Quantizer) -> bool {
    vectorize(
        #[inline(always)]
        || {
            let levels = quantizer.levels();
            for (values, inside) in values.chunks_exact_mut(width).zip(inside.chunks_exact_mut(width)) {
                let (low, high) = range(values);
                let (scale, zero) = quantizer.scale_and_zero_of(low, high);
                for (value, inside) in values.iter_mut().zip(inside) {
                    (*value, *inside) = level(*value, levels, scale, zero);
                }
            }
            inside.iter().fold(1, |all, inside| all & inside) == 1
        },
    )
}

fn mask(gradient: &mut [f32], inside: &[u8]) {
    vectorize(
        #[inline(always)]
        || {
            for (gradient, inside) in gradient.iter_mut().zip(inside) {
                *gradient = if *inside == 1 { *gradient } else { 0.0 };
            }
        },
    )
}

/// Moves the ends of each channel's range to the values of some rows.
fn channel_ranges(rows: &[f32], low: &mut [f32], high: &mut [f32]) {
    vectorize(
        #[inline(always)]
        || {
            for row in rows.chunks_exact(low.len()) {
                for ((value, low), high) in row.iter().zip(&mut *low).zip(&mut *high) {
                    *low = if *value < *low { *value } else { *low };
                    *high = if *value > *high { *value } else { *high };
                }
            }
        },
    )
}

fn piece_range(values: &[f32]) -> (f32, f32) {
    vectorize(
        #[inline(always)]
        || range(values),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Least values are kept where nobody asks for a gradient.
    #[test]
    fn a_zero_row_has_a_finite_scale() {
        let quantizer = Quantizer { bits: 8, symmetric: false };
        assert_eq!(quantizer.scale_and_zero_of(0.0, 0.0), (SCALE_MIN, 0.0));
        let mut values = [0.0; 3];
        assert!(on_row_grids(&mut values, &mut [0; 3], 3, quantizer));
        assert_eq!(values, [0.0; 3]);
    }
}
