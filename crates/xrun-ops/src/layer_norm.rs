//! Layer normalisation (Ba et al. 2016) over the last dimension.
//!
//! `y = n · gamma + beta`, `n = (x − mean) / √(variance + ε)`. With `h = g · gamma`, the gradient of x is
//! `(h − mean(h) − n · mean(h n)) / √(variance + ε)`. Saved are the input and two numbers for each row.

use burn::tensor::{Tensor, module};
use burn_flex::FlexTensor;
use rayon::prelude::*;

use crate::choice::is_fused;
use crate::flex::{contiguous, shape, tensor, values, width, writable};
use crate::operation::{Operation, ternary};
use crate::simd::{dot, lane_sum, sum, sum_in_order, vectorize};

/// Rows that one thread takes at a time.
const ROWS: usize = 64;

/// Normalises the last dimension: `input` `[…, width]`, `gamma` and `beta` `[width]`; the output is like the input.
pub fn layer_norm<const D: usize>(input: Tensor<D>, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> Tensor<D> {
    if is_fused(&input) {
        return ternary(LayerNorm { epsilon: epsilon as f32 }, (input, gamma, beta));
    }
    module::layer_norm(input, gamma, Some(beta), epsilon)
}

#[derive(Clone, Copy, Debug)]
struct LayerNorm {
    epsilon: f32,
}

/// Mean of a row, and one over its standard deviation.
type Moments = [f32; 2];

#[derive(Clone, Debug)]
struct Saved {
    input: FlexTensor,
    gamma: FlexTensor,
    /// One for each row.
    moments: Vec<Moments>,
}

impl Operation<3> for LayerNorm {
    type Saved = Saved;

    fn forward(&self, inputs: [FlexTensor; 3], save: bool) -> (FlexTensor, Option<Saved>) {
        let [input, gamma, beta] = inputs.map(contiguous);
        let (width, epsilon) = (width(&input), self.epsilon);
        let (input_values, gamma_values, beta_values) = (values(&input), values(&gamma), values(&beta));
        let mut output = vec![0.0; input_values.len()];
        let mut moments = vec![[0.0; 2]; input_values.len() / width];
        let pieces = output.par_chunks_mut(ROWS * width).zip(input_values.par_chunks(ROWS * width));
        pieces.zip(moments.par_chunks_mut(ROWS)).for_each(|((output, input), moments)| {
            normalize(input, [gamma_values, beta_values], epsilon, output, moments);
        });
        let output = tensor(output, shape(&input));
        (output, save.then_some(Saved { input, gamma, moments }))
    }

    fn backward(&self, saved: Saved, gradient: FlexTensor, wanted: [bool; 3]) -> [Option<FlexTensor>; 3] {
        let Saved { input, gamma, moments } = saved;
        let (width, train) = (width(&input), wanted[1] || wanted[2]);
        let mut gradient = writable(gradient);
        let gamma_values = values(&gamma);
        let pieces = gradient.storage_mut::<f32>().par_chunks_mut(ROWS * width);
        let pieces = pieces.zip(values(&input).par_chunks(ROWS * width)).zip(moments.par_chunks(ROWS));
        let sums = pieces.map(|((gradient, input), moments)| {
            let length = if train { width } else { 0 };
            let (mut by_gamma, mut by_beta) = (vec![0.0; length], vec![0.0; length]);
            backward(gradient, input, gamma_values, moments, [&mut by_gamma, &mut by_beta]);
            (by_gamma, by_beta)
        });
        let (by_gamma, by_beta): (Vec<_>, Vec<_>) = sums.collect::<Vec<_>>().into_iter().unzip();
        let parameter = |sums, wanted: bool| wanted.then(|| tensor(sum_in_order(sums, width), shape(&gamma)));
        [wanted[0].then_some(gradient), parameter(by_gamma, wanted[1]), parameter(by_beta, wanted[2])]
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

/// Turns gradients of the output into those of the input, and adds those of the parameters, unless `by` is empty.
fn backward(gradient: &mut [f32], input: &[f32], gamma: &[f32], moments: &[Moments], by: [&mut [f32]; 2]) {
    vectorize(
        #[inline(always)]
        || {
            let width = gamma.len();
            let [by_gamma, by_beta] = by;
            let mut normal = vec![0.0; width];
            let rows = gradient.chunks_exact_mut(width).zip(input.chunks_exact(width));
            for ((gradient, input), [mean, factor]) in rows.zip(moments) {
                for (normal, value) in normal.iter_mut().zip(input) {
                    *normal = (value - mean) * factor;
                }
                let sums = gradient.iter().zip(&normal).zip(by_gamma.iter_mut().zip(by_beta.iter_mut()));
                for ((gradient, normal), (by_gamma, by_beta)) in sums {
                    *by_gamma += gradient * normal;
                    *by_beta += gradient;
                }
                for (gradient, gamma) in gradient.iter_mut().zip(gamma) {
                    *gradient *= gamma;
                }
                let (all, normal) = (&*gradient, &*normal);
                let (mean, along) = (sum(all) / width as f32, dot(all, normal) / width as f32);
                for (gradient, normal) in gradient.iter_mut().zip(normal) {
                    *gradient = (*gradient - mean - normal * along) * factor;
                }
            }
        },
    )
}
