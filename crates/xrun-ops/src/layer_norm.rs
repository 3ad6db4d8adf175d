//! Layer normalisation (Ba et al. 2016) over the last dimension.
//!
//! `y = n · gamma + beta`, `n = (x − mean) / √(variance + ε)`. With `h = g · gamma`, the gradient of x is
//! `(h − mean(h) − n · mean(h n)) / √(variance + ε)`. The input and the moments of each row are saved.

use burn::tensor::{Tensor, module};
use burn_flex::FlexTensor;
use rayon::prelude::*;

use crate::cpu_kernels::is_fused;
use crate::cube::on_cube;
use crate::flex::{contiguous, last_dim, shape, tensor, values, writable};
use crate::operation::{Operation, ternary};
use crate::simd::{dot, lane_sum, sum, sum_in_order, vectorize};

/// Number of rows that a thread processes at a time.
const CHUNK_ROWS: usize = 64;

/// Normalises `input` `[…, width]` over its last dimension, then scales by `gamma` and shifts by `beta`, `[width]` each.
pub fn layer_norm<const D: usize>(input: Tensor<D>, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> Tensor<D> {
    if is_fused(&input) {
        return ternary(LayerNorm { epsilon: epsilon as f32 }, (input, gamma, beta));
    }
    on_cube!(&input => crate::cube::ternary(LayerNorm { epsilon: epsilon as f32 }, (input, gamma, beta)));
    module::layer_norm(input, gamma, Some(beta), epsilon)
}

/// Layer normalisation as an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerNorm {
    pub epsilon: f32,
}

/// Mean and inverse standard deviation of a row.
type Moments = [f32; 2];

#[derive(Clone, Debug)]
pub(crate) struct Saved {
    input: FlexTensor,
    gamma: FlexTensor,
    /// `[rows]`.
    moments: Vec<Moments>,
}

impl Operation<FlexTensor, 3> for LayerNorm {
    type Saved = Saved;

    fn forward(&self, inputs: [FlexTensor; 3], save: bool) -> (FlexTensor, Option<Saved>) {
        let [input, gamma, beta] = inputs.map(contiguous);
        let (width, epsilon) = (last_dim(&input), self.epsilon);
        let (input_values, gamma_values, beta_values) = (values(&input), values(&gamma), values(&beta));
        let mut output = vec![0.0; input_values.len()];
        let mut moments = vec![[0.0; 2]; input_values.len() / width];
        let chunks = output.par_chunks_mut(CHUNK_ROWS * width).zip(input_values.par_chunks(CHUNK_ROWS * width));
        chunks.zip(moments.par_chunks_mut(CHUNK_ROWS)).for_each(|((output, input), moments)| {
            normalize(input, [gamma_values, beta_values], epsilon, output, moments);
        });
        let output = tensor(output, shape(&input));
        (output, save.then_some(Saved { input, gamma, moments }))
    }

    fn backward(&self, saved: Saved, gradient: FlexTensor, needs_grad: [bool; 3]) -> [Option<FlexTensor>; 3] {
        let Saved { input, gamma, moments } = saved;
        let (width, trainable) = (last_dim(&input), needs_grad[1] || needs_grad[2]);
        let mut gradient = writable(gradient);
        let gamma_values = values(&gamma);
        let chunks = gradient.storage_mut::<f32>().par_chunks_mut(CHUNK_ROWS * width);
        let chunks = chunks.zip(values(&input).par_chunks(CHUNK_ROWS * width)).zip(moments.par_chunks(CHUNK_ROWS));
        let parameters = chunks.map(|((gradient, input), moments)| {
            let length = if trainable { width } else { 0 };
            let (mut grad_gamma, mut grad_beta) = (vec![0.0; length], vec![0.0; length]);
            backward(gradient, input, gamma_values, moments, [&mut grad_gamma, &mut grad_beta]);
            (grad_gamma, grad_beta)
        });
        let (grad_gamma, grad_beta): (Vec<_>, Vec<_>) = parameters.collect::<Vec<_>>().into_iter().unzip();
        let sum = |chunks, needs_grad: bool| needs_grad.then(|| tensor(sum_in_order(chunks, width), shape(&gamma)));
        [needs_grad[0].then_some(gradient), sum(grad_gamma, needs_grad[1]), sum(grad_beta, needs_grad[2])]
    }
}

fn normalize(input: &[f32], parameters: [&[f32]; 2], epsilon: f32, output: &mut [f32], moments: &mut [Moments]) {
    vectorize(
        #[inline(always)]
        || {
            let [gamma, beta] = parameters;
            let width = gamma.len();
            let rows = input.chunks_exact(width).zip(output.chunks_exact_mut(width));
            for ((input, output), moments) in rows.zip(moments) {
                let mean = sum(input) / width as f32;
                let variance = lane_sum!(input; |value: f32| (value - mean) * (value - mean)) / width as f32;
                let factor = 1.0 / (variance + epsilon).sqrt();
                for (((output, value), gamma), beta) in output.iter_mut().zip(input).zip(gamma).zip(beta) {
                    *output = (value - mean) * factor * gamma + beta;
                }
                *moments = [mean, factor];
            }
        },
    )
}

/// Overwrites the gradient of the output with that of the input, and adds to those of gamma and beta unless they are empty.
fn backward(
    gradient: &mut [f32],
    input: &[f32],
    gamma: &[f32],
    moments: &[Moments],
    [grad_gamma, grad_beta]: [&mut [f32]; 2],
) {
    vectorize(
        #[inline(always)]
        || {
            let width = gamma.len();
            let mut normalized = vec![0.0; width];
            let rows = gradient.chunks_exact_mut(width).zip(input.chunks_exact(width));
            for ((gradient, input), [mean, factor]) in rows.zip(moments) {
                for (normalized, value) in normalized.iter_mut().zip(input) {
                    *normalized = (value - mean) * factor;
                }
                let columns = gradient.iter().zip(&normalized).zip(grad_gamma.iter_mut().zip(grad_beta.iter_mut()));
                for ((gradient, normalized), (grad_gamma, grad_beta)) in columns {
                    *grad_gamma += gradient * normalized;
                    *grad_beta += gradient;
                }
                for (gradient, gamma) in gradient.iter_mut().zip(gamma) {
                    *gradient *= gamma;
                }
                let (mean, projection) = (sum(gradient) / width as f32, dot(gradient, &normalized) / width as f32);
                for (gradient, normalized) in gradient.iter_mut().zip(&normalized) {
                    *gradient = (*gradient - mean - normalized * projection) * factor;
                }
            }
        },
    )
}
