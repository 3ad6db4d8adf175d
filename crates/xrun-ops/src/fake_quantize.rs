//! Fake quantisation: values rounded to a grid and back, with a straight-through gradient.
//!
//! `q = clamp(round(x / s) + z, qmin, qmax)`, `x' = (q − z) s` (Jacob et al. 2018). The gradient is 1 inside the grid and 0 outside
//! (Bengio et al. 2013). The fused kernels give the same bits as the formula in Burn's operations.

use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::{Tensor, TensorData};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use crate::cpu_kernels::is_fused;
use crate::cube::on_cube;
use crate::flex::{contiguous, last_dim, values, writable};
use crate::operation::{Operation, unary};
use crate::simd::{range, vectorize};

/// Smallest scale, so that the division is finite where all values are zero.
pub(crate) const SCALE_MIN: f32 = 1e-12;
/// Number of values that a thread processes at a time.
const CHUNK: usize = 1 << 13;

/// Uniform quantisation scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantizer {
    /// Bits of a level, 2 to 16.
    pub bits: u32,
    /// `true`: zero point 0 and as many levels below zero as above. `false`: levels from the minimum to the maximum, zero included.
    pub symmetric: bool,
}

/// Range of values that a grid covers: `[1]` each, or `[channels]` with one grid for each index of the last dimension. Tensors
/// without autodiff.
#[derive(Clone, Debug)]
pub struct QuantRange {
    /// Minimum.
    pub low: Tensor<1>,
    /// Maximum.
    pub high: Tensor<1>,
}

impl QuantRange {
    /// Returns the range of a tensor's values, or of each index of the last dimension if `per_channel` is set.
    pub fn min_max<const D: usize>(values: &Tensor<D>, per_channel: bool) -> Self {
        let inner = detached(values);
        on_cube!(&inner => crate::cube::range(inner, per_channel));
        if is_fused(&inner) {
            let (device, channels) = (inner.device(), if per_channel { inner.dims()[D - 1] } else { 1 });
            let [low, high] = match per_channel {
                true => channel_ranges(inner, channels),
                false => tensor_range(inner).map(|bound| vec![bound]),
            };
            let tensor = |bound: Vec<f32>| Tensor::from_data(TensorData::new(bound, [channels]), &device);
            return Self { low: tensor(low), high: tensor(high) };
        }
        if !per_channel {
            return Self { low: inner.clone().min(), high: inner.max() };
        }
        let channels = inner.dims()[D - 1];
        let rows = inner.reshape([-1, channels as isize]);
        let flat = |bound: Tensor<2>| bound.reshape([channels]);
        Self { low: flat(rows.clone().min_dim(0)), high: flat(rows.max_dim(0)) }
    }
}

/// Returns the tensor without autodiff.
fn detached<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    if tensor.device().is_autodiff() { tensor.clone().inner() } else { tensor.clone() }
}

/// Returns a contiguous burn-flex tensor.
fn primitive<const D: usize>(inner: Tensor<D>) -> FlexTensor {
    let tensor = inner.try_into_primitive::<Flex>();
    contiguous(tensor.unwrap_or_else(|error| unreachable!("fused kernels run on the CPU: {error:?}")))
}

/// Returns minimum and maximum of each channel.
fn channel_ranges<const D: usize>(inner: Tensor<D>, channels: usize) -> [Vec<f32>; 2] {
    let tensor = primitive(inner);
    let rows = (CHUNK / channels).max(1) * channels;
    let chunks = values(&tensor).par_chunks(rows).map(|rows| {
        let mut bounds = [vec![f32::INFINITY; channels], vec![f32::NEG_INFINITY; channels]];
        let [low, high] = &mut bounds;
        widen_channel_ranges(rows, low, high);
        bounds
    });
    let chunks: Vec<[Vec<f32>; 2]> = chunks.collect();
    let mut chunks = chunks.into_iter();
    let [mut low, mut high] = chunks.next().unwrap_or_default();
    for [lows, highs] in chunks {
        low.iter_mut().zip(lows).for_each(|(low, other)| *low = low.min(other));
        high.iter_mut().zip(highs).for_each(|(high, other)| *high = high.max(other));
    }
    [low, high]
}

/// Returns minimum and maximum of all values.
fn tensor_range<const D: usize>(inner: Tensor<D>) -> [f32; 2] {
    let tensor = primitive(inner);
    let chunks: Vec<(f32, f32)> = values(&tensor).par_chunks(CHUNK).map(chunk_range).collect();
    chunks
        .into_iter()
        .fold([f32::INFINITY, f32::NEG_INFINITY], |[low, high], chunk| [low.min(chunk.0), high.max(chunk.1)])
}

impl Quantizer {
    /// Returns the lowest and the highest level.
    pub(crate) fn level_bounds(self) -> (f32, f32) {
        match self.symmetric {
            true => {
                let qmax = ((1u32 << (self.bits - 1)) - 1) as f32;
                (-qmax, qmax)
            }
            false => (0.0, ((1u32 << self.bits) - 1) as f32),
        }
    }

    /// Returns scale and zero point of each range.
    pub fn scale_and_zero<const D: usize>(self, low: Tensor<D>, high: Tensor<D>) -> (Tensor<D>, Tensor<D>) {
        let (_, qmax) = self.level_bounds();
        let (low, high) = (low.clamp_max(0.0), high.clamp_min(0.0));
        match self.symmetric {
            true => {
                let magnitude = low.neg().max_pair(high);
                let zero = magnitude.zeros_like();
                ((magnitude / qmax).clamp_min(SCALE_MIN), zero)
            }
            false => {
                let scale = ((high - low.clone()) / qmax).clamp_min(SCALE_MIN);
                let zero = (low.neg() / scale.clone()).round();
                (scale, zero)
            }
        }
    }

    /// [`Self::scale_and_zero`] for one range of numbers.
    fn scale_and_zero_of(self, low: f32, high: f32) -> (f32, f32) {
        let (_, qmax) = self.level_bounds();
        let (low, high) = (low.min(0.0), high.max(0.0));
        match self.symmetric {
            true => ((high.max(-low) / qmax).max(SCALE_MIN), 0.0),
            false => {
                let scale = ((high - low) / qmax).max(SCALE_MIN);
                (scale, (-low / scale).round_ties_even())
            }
        }
    }

    /// Rounds values to the grid of a range, with a straight-through gradient.
    pub fn fake_quantize<const D: usize>(self, values: Tensor<D>, range: &QuantRange) -> Tensor<D> {
        on_cube!(&values => crate::cube::fake_quantize(self, values, Some(range)));
        let (scale, zero) = self.scale_and_zero(range.low.clone(), range.high.clone());
        if is_fused(&values) {
            let to_vec = |tensor: Tensor<1>| tensor.into_data().iter::<f32>().collect::<Vec<f32>>();
            let grid = QuantGrid::Fixed { scale: to_vec(scale), zero: to_vec(zero) };
            return unary(FakeQuantize { quantizer: self, grid }, (values,));
        }
        let broadcastable = |values: Tensor<1>| {
            let mut shape = [1; D];
            shape[D - 1] = values.dims()[0];
            values.reshape(shape)
        };
        self.plain(values, broadcastable(scale), broadcastable(zero))
    }

    /// Rounds values to the grid of a range, without a gradient; the result is on the device of the values.
    pub fn quantize_dequantize<const D: usize>(self, values: &Tensor<D>, range: &QuantRange) -> Tensor<D> {
        let quantized = self.fake_quantize(detached(values), range);
        if values.device().is_autodiff() { Tensor::from_inner(quantized) } else { quantized }
    }

    /// Rounds each row of `[rows, features]` to the grid of its own range. Where rounding moves the zero point, a value can be one
    /// level outside of the grid; its gradient is 0.
    pub fn fake_quantize_rows(self, values: Tensor<2>) -> Tensor<2> {
        if is_fused(&values) {
            return unary(FakeQuantize { quantizer: self, grid: QuantGrid::PerRow }, (values,));
        }
        on_cube!(&values => crate::cube::fake_quantize(self, values, None));
        let rows = detached(&values);
        let (scale, zero) = self.scale_and_zero(rows.clone().min_dim(1), rows.max_dim(1));
        self.plain(values, scale, zero)
    }

    /// Fake quantisation in Burn's operations; scales and zero points broadcast to the values.
    fn plain<const D: usize>(self, values: Tensor<D>, scale: Tensor<D>, zero: Tensor<D>) -> Tensor<D> {
        let (qmin, qmax) = self.level_bounds();
        let inner = detached(&values);
        let steps = (inner.clone() / scale.clone()).round() + zero.clone();
        let level = steps.clone().clamp(qmin, qmax);
        let quantized = (level.clone() - zero) * scale;
        if !values.device().is_autodiff() {
            return quantized;
        }
        // Straight-through estimator: `values - inner` is exactly zero, so the result has the bits of `quantized`.
        let inside = Tensor::from_inner(steps.equal(level).float());
        let zero = (values - Tensor::from_inner(inner)) * inside;
        zero + Tensor::from_inner(quantized)
    }
}

/// Scales and zero points of a tensor.
#[derive(Clone, Debug)]
enum QuantGrid {
    /// One scale and zero point for all values, or one for each index of the last dimension.
    Fixed { scale: Vec<f32>, zero: Vec<f32> },
    /// One for each row, computed from its range.
    PerRow,
}

#[derive(Clone, Debug)]
struct FakeQuantize {
    quantizer: Quantizer,
    grid: QuantGrid,
}

impl Operation<FlexTensor, 1> for FakeQuantize {
    /// Gradient mask: 1 inside of the grid, 0 outside; `None` if all values are inside.
    type Saved = Option<Vec<u8>>;

    fn forward(&self, [input]: [FlexTensor; 1], save: bool) -> (FlexTensor, Option<Self::Saved>) {
        let width = last_dim(&input);
        let mut output = writable(input);
        let all = output.storage_mut::<f32>();
        let mut inside = vec![0u8; all.len()];
        let clipped = AtomicBool::new(false);
        let note = |all_inside: bool| {
            if !all_inside {
                clipped.store(true, Ordering::Relaxed);
            }
        };
        let level_bounds = self.quantizer.level_bounds();
        let rows = (CHUNK / width).max(1) * width;
        match &self.grid {
            QuantGrid::Fixed { scale, zero } if scale.len() == 1 => {
                let chunks = all.par_chunks_mut(CHUNK).zip(inside.par_chunks_mut(CHUNK));
                chunks.for_each(|(values, inside)| note(quantize(values, inside, level_bounds, (scale[0], zero[0]))));
            }
            QuantGrid::Fixed { scale, zero } => {
                assert_eq!(scale.len(), width, "a range has 1 value or one for each channel");
                let chunks = all.par_chunks_mut(rows).zip(inside.par_chunks_mut(rows));
                chunks.for_each(|(values, inside)| note(quantize_channels(values, inside, level_bounds, scale, zero)));
            }
            QuantGrid::PerRow => {
                let chunks = all.par_chunks_mut(rows).zip(inside.par_chunks_mut(rows));
                chunks.for_each(|(values, inside)| note(quantize_rows(values, inside, width, self.quantizer)));
            }
        }
        let inside = clipped.into_inner().then_some(inside);
        (output, save.then_some(inside))
    }

    fn backward(&self, inside: Self::Saved, gradient: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let Some(inside) = inside else { return [Some(gradient)] };
        let mut gradient = writable(gradient);
        let chunks = gradient.storage_mut::<f32>().par_chunks_mut(CHUNK).zip(inside.par_chunks(CHUNK));
        chunks.for_each(|(gradient, inside)| zero_outside(gradient, inside));
        [Some(gradient)]
    }
}

/// Returns a value rounded to a grid, and 1 if it is inside of the grid.
#[inline(always)]
fn round_to_grid(value: f32, (qmin, qmax): (f32, f32), scale: f32, zero: f32) -> (f32, u8) {
    let steps = (value / scale).round_ties_even() + zero;
    let level = if steps < qmin { qmin } else { steps };
    let level = if level > qmax { qmax } else { level };
    ((level - zero) * scale, u8::from(steps == level))
}

/// Rounds values to one grid; returns `true` if all are inside.
fn quantize(values: &mut [f32], inside: &mut [u8], level_bounds: (f32, f32), grid: (f32, f32)) -> bool {
    vectorize(
        #[inline(always)]
        || {
            for (value, inside) in values.iter_mut().zip(&mut *inside) {
                (*value, *inside) = round_to_grid(*value, level_bounds, grid.0, grid.1);
            }
            inside.iter().fold(1, |all, inside| all & inside) == 1
        },
    )
}

/// Rounds rows to one grid for each channel; returns `true` if all values are inside.
fn quantize_channels(
    values: &mut [f32],
    inside: &mut [u8],
    level_bounds: (f32, f32),
    scale: &[f32],
    zero: &[f32],
) -> bool {
    vectorize(
        #[inline(always)]
        || {
            let rows = values.chunks_exact_mut(scale.len()).zip(inside.chunks_exact_mut(scale.len()));
            for (values, inside) in rows {
                for ((value, inside), (scale, zero)) in values.iter_mut().zip(inside).zip(scale.iter().zip(zero)) {
                    (*value, *inside) = round_to_grid(*value, level_bounds, *scale, *zero);
                }
            }
            inside.iter().fold(1, |all, inside| all & inside) == 1
        },
    )
}

/// Rounds each row to the grid of its range; returns `true` if all values are inside.
fn quantize_rows(values: &mut [f32], inside: &mut [u8], width: usize, quantizer: Quantizer) -> bool {
    vectorize(
        #[inline(always)]
        || {
            let level_bounds = quantizer.level_bounds();
            for (values, inside) in values.chunks_exact_mut(width).zip(inside.chunks_exact_mut(width)) {
                let (low, high) = range(values);
                let (scale, zero) = quantizer.scale_and_zero_of(low, high);
                for (value, inside) in values.iter_mut().zip(inside) {
                    (*value, *inside) = round_to_grid(*value, level_bounds, scale, zero);
                }
            }
            inside.iter().fold(1, |all, inside| all & inside) == 1
        },
    )
}

/// Clears the gradients of values outside of the grid.
fn zero_outside(gradient: &mut [f32], inside: &[u8]) {
    vectorize(
        #[inline(always)]
        || {
            for (gradient, inside) in gradient.iter_mut().zip(inside) {
                *gradient = if *inside == 1 { *gradient } else { 0.0 };
            }
        },
    )
}

/// Widens the range of each channel to the values of some rows.
fn widen_channel_ranges(rows: &[f32], low: &mut [f32], high: &mut [f32]) {
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

fn chunk_range(values: &[f32]) -> (f32, f32) {
    vectorize(
        #[inline(always)]
        || range(values),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_row_has_a_finite_scale() {
        let quantizer = Quantizer { bits: 8, symmetric: false };
        assert_eq!(quantizer.scale_and_zero_of(0.0, 0.0), (SCALE_MIN, 0.0));
        let mut values = [0.0; 3];
        assert!(quantize_rows(&mut values, &mut [0; 3], 3, quantizer));
        assert_eq!(values, [0.0; 3]);
    }
}
