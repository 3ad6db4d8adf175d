//! GELU (Hendrycks and Gimpel 2016).
//!
//! Exact: `x Φ(x)` with the normal distribution's `Φ(x) = (1 + erf(x / √2)) / 2`; the slope is `Φ(x) + x φ(x)`. With tanh, as
//! GPT-2 has it: `x / 2 (1 + tanh(u)) = x σ(2u)`, `u = √(2/π) (x + 0.044715 x³)`; the slope is `σ + 2 u' x σ (1 − σ)`. Saved for
//! the backward pass are the slopes alone.

use burn::tensor::{Tensor, activation};
use burn_flex::FlexTensor;
use rayon::prelude::*;

use crate::choice::is_fused;
use crate::flex::{contiguous, shape, tensor, values, writable};
use crate::operation::{Operation, unary};
use crate::simd::{erf, exp, vectorize};

/// Values that one thread takes at a time.
const PIECE: usize = 1 << 13;

/// The form of GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gelu {
    /// With the error function, as ViT and the Audio Spectrogram Transformer have it.
    Erf,
    /// With tanh, as GPT-2 has it.
    Tanh,
}

/// GELU of each value; any shape.
pub fn gelu<const D: usize>(input: Tensor<D>, form: Gelu) -> Tensor<D> {
    match (is_fused(&input), form) {
        (true, _) => unary(form, input),
        (false, Gelu::Erf) => activation::gelu(input),
        (false, Gelu::Tanh) => activation::gelu_approximate(input),
    }
}

impl Operation<1> for Gelu {
    /// The slope of each value.
    type Saved = FlexTensor;

    fn forward(&self, [input]: [FlexTensor; 1], save: bool) -> (FlexTensor, Option<FlexTensor>) {
        let mut output = writable(input);
        let shape = shape(&output);
        let all = output.storage_mut::<f32>();
        if !save {
            all.par_chunks_mut(PIECE).for_each(|piece| match self {
                Self::Erf => erf_values(piece),
                Self::Tanh => tanh_values(piece),
            });
            return (output, None);
        }
        let mut slopes = vec![0.0; all.len()];
        all.par_chunks_mut(PIECE).zip(slopes.par_chunks_mut(PIECE)).for_each(|(piece, slopes)| match self {
            Self::Erf => erf_values_and_slopes(piece, slopes),
            Self::Tanh => tanh_values_and_slopes(piece, slopes),
        });
        (output, Some(tensor(slopes, shape)))
    }

    fn backward(&self, slopes: FlexTensor, gradient: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let (mut gradient, slopes) = (writable(gradient), contiguous(slopes));
        let pieces = gradient.storage_mut::<f32>().par_chunks_mut(PIECE).zip(values(&slopes).par_chunks(PIECE));
        pieces.for_each(|(gradient, slopes)| multiply(gradient, slopes));
        [Some(gradient)]
    }
}

fn erf_values(values: &mut [f32]) {
    vectorize(
        #[inline(always)]
        || {
            for value in values {
                *value *= normal(*value);
            }
        },
    )
}

fn erf_values_and_slopes(values: &mut [f32], slopes: &mut [f32]) {
    vectorize(
        #[inline(always)]
        || {
            /// `1 / √(2π)`
            const DENSITY: f32 = 0.398_942_3;
            for (value, slope) in values.iter_mut().zip(slopes) {
                let (x, share) = (*value, normal(*value));
                *value = x * share;
                *slope = share + x * DENSITY * exp(-0.5 * x * x);
            }
        },
    )
}

fn tanh_values(values: &mut [f32]) {
    vectorize(
        #[inline(always)]
        || {
            for value in values {
                // As with slopes, to the bit: what is computed again for a backward pass is what it was.
                *value *= 1.0 / (1.0 + power(near(*value)));
            }
        },
    )
}

fn tanh_values_and_slopes(values: &mut [f32], slopes: &mut [f32]) {
    vectorize(
        #[inline(always)]
        || {
            for (value, slope) in values.iter_mut().zip(slopes) {
                let (x, near) = (*value, near(*value));
                let power = power(near);
                let share = 1.0 / (1.0 + power);
                let inner = 2.0 * ROOT * (1.0 + 3.0 * CUBIC * near * near);
                *value = x * share;
                // 1 - σ as σ exp(-2u), which keeps its digits where σ is almost one.
                *slope = share + x * share * share * power * inner;
            }
        },
    )
}

fn multiply(values: &mut [f32], factors: &[f32]) {
    vectorize(
        #[inline(always)]
        || {
            for (value, factor) in values.iter_mut().zip(factors) {
                *value *= factor;
            }
        },
    )
}

/// The normal distribution up to `x`.
#[inline(always)]
fn normal(x: f32) -> f32 {
    0.5 + 0.5 * erf(x * std::f32::consts::FRAC_1_SQRT_2)
}

/// `√(2/π)`
const ROOT: f32 = 0.797_884_6;
const CUBIC: f32 = 0.044_715;

/// Beyond 10 either way σ is 0 or 1 to the last bit.
#[inline(always)]
fn near(x: f32) -> f32 {
    let x = if x < -10.0 { -10.0 } else { x };
    if x > 10.0 { 10.0 } else { x }
}

/// `exp(-2u)`
#[inline(always)]
fn power(near: f32) -> f32 {
    exp(-2.0 * ROOT * near * (1.0 + CUBIC * near * near))
}
