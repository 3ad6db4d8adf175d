//! GELU (Hendrycks and Gimpel 2016).
//!
//! Exact: `x Φ(x)` with the normal CDF `Φ(x) = (1 + erf(x / √2)) / 2`; the derivative is `Φ(x) + x φ(x)`. With tanh, as in GPT-2:
//! `x / 2 (1 + tanh(u)) = x σ(2u)`, `u = √(2/π) (x + 0.044715 x³)`; the derivative is `σ + 2 u' x σ (1 − σ)`. Only the
//! derivatives are saved for the backward pass.

use burn::tensor::{Tensor, activation};
use burn_flex::FlexTensor;
use rayon::prelude::*;

use crate::cpu_kernels::is_fused;
use crate::cube::on_cube;
use crate::flex::{self, contiguous, shape, tensor, writable};
use crate::operation::{Operation, unary};
use crate::simd::{erf, exp, vectorize};

/// Number of values that a thread processes at a time.
const CHUNK: usize = 1 << 13;

/// Form of GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gelu {
    /// Exact, with the error function: ViT, Audio Spectrogram Transformer.
    Erf,
    /// Approximation with tanh: GPT-2.
    Tanh,
}

/// Applies GELU elementwise.
pub fn gelu<const D: usize>(input: Tensor<D>, form: Gelu) -> Tensor<D> {
    on_cube!(&input => crate::cube::unary(form, (input,)));
    match (is_fused(&input), form) {
        (true, _) => unary(form, (input,)),
        (false, Gelu::Erf) => activation::gelu(input),
        (false, Gelu::Tanh) => activation::gelu_approximate(input),
    }
}

impl Operation<FlexTensor, 1> for Gelu {
    /// Derivative at each value.
    type Saved = FlexTensor;

    fn forward(&self, [input]: [FlexTensor; 1], save: bool) -> (FlexTensor, Option<FlexTensor>) {
        let mut output = writable(input);
        let shape = shape(&output);
        let values = output.storage_mut::<f32>();
        if !save {
            values.par_chunks_mut(CHUNK).for_each(|chunk| match self {
                Self::Erf => erf_in_place(chunk),
                Self::Tanh => tanh_in_place(chunk),
            });
            return (output, None);
        }
        let mut derivatives = vec![0.0; values.len()];
        values.par_chunks_mut(CHUNK).zip(derivatives.par_chunks_mut(CHUNK)).for_each(
            |(chunk, derivatives)| match self {
                Self::Erf => erf_with_derivatives(chunk, derivatives),
                Self::Tanh => tanh_with_derivatives(chunk, derivatives),
            },
        );
        (output, Some(tensor(derivatives, shape)))
    }

    fn backward(&self, derivatives: FlexTensor, gradient: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let (mut gradient, derivatives) = (writable(gradient), contiguous(derivatives));
        let chunks =
            gradient.storage_mut::<f32>().par_chunks_mut(CHUNK).zip(flex::values(&derivatives).par_chunks(CHUNK));
        chunks.for_each(|(gradient, derivatives)| multiply(gradient, derivatives));
        [Some(gradient)]
    }
}

fn erf_in_place(values: &mut [f32]) {
    vectorize(
        #[inline(always)]
        || {
            for value in values {
                *value *= normal_cdf(*value);
            }
        },
    )
}

fn erf_with_derivatives(values: &mut [f32], derivatives: &mut [f32]) {
    vectorize(
        #[inline(always)]
        || {
            /// `1 / √(2π)`
            const INV_SQRT_2PI: f32 = 0.398_942_3;
            for (value, derivative) in values.iter_mut().zip(derivatives) {
                let (x, cdf) = (*value, normal_cdf(*value));
                *value = x * cdf;
                *derivative = cdf + x * INV_SQRT_2PI * exp(-0.5 * x * x);
            }
        },
    )
}

fn tanh_in_place(values: &mut [f32]) {
    vectorize(
        #[inline(always)]
        || {
            for value in values {
                // The same bits as with derivatives, so that recomputed activations equal the first ones.
                *value *= 1.0 / (1.0 + exp_minus_2u(clamp(*value)));
            }
        },
    )
}

fn tanh_with_derivatives(values: &mut [f32], derivatives: &mut [f32]) {
    vectorize(
        #[inline(always)]
        || {
            for (value, derivative) in values.iter_mut().zip(derivatives) {
                let x = *value;
                let clamped = clamp(x);
                let exp_minus_2u = exp_minus_2u(clamped);
                let sigmoid = 1.0 / (1.0 + exp_minus_2u);
                let inner = 2.0 * SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * clamped * clamped);
                *value = x * sigmoid;
                // 1 - σ as σ exp(-2u), which does not cancel where σ is almost 1.
                *derivative = sigmoid + x * sigmoid * sigmoid * exp_minus_2u * inner;
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

/// Returns the CDF of the normal distribution.
#[inline(always)]
fn normal_cdf(x: f32) -> f32 {
    0.5 + 0.5 * erf(x * std::f32::consts::FRAC_1_SQRT_2)
}

/// `√(2/π)`
const SQRT_2_OVER_PI: f32 = 0.797_884_6;
const CUBIC: f32 = 0.044_715;

/// Clamps to ±10, beyond which σ rounds to 0 or 1; keeps NaN.
#[inline(always)]
fn clamp(x: f32) -> f32 {
    let x = if x < -10.0 { -10.0 } else { x };
    if x > 10.0 { 10.0 } else { x }
}

/// Returns `exp(-2u)`.
#[inline(always)]
fn exp_minus_2u(x: f32) -> f32 {
    exp(-2.0 * SQRT_2_OVER_PI * x * (1.0 + CUBIC * x * x))
}
