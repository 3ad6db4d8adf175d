//! Normalisation over the features of each token, in host memory: what [`super::transformer::LayerNorm`] computes, each way in
//! one pass over the rows.
//!
//! `y = n · scale + shift`, `n = (x − mean) / √(variance + ε)`. With `h = g · scale`, the gradient of x is
//! `(h − mean(h) − n · mean(h n)) / √(variance + ε)` (Ba et al. 2016).

use rayon::prelude::*;
use wide::f32x8;

use super::planes::{add, sum};
use super::rows::{PIECE, Rows, change, dot, in_order};
use super::transformer::EPSILON;

/// What the way back needs.
#[derive(Debug)]
pub struct Normal {
    /// Each row, of mean zero and variance one.
    rows: Rows,
    /// What each row was multiplied by.
    factors: Vec<f32>,
}

/// The gradients of what a normalisation multiplies by and adds.
#[derive(Debug, PartialEq)]
pub struct NormGradients {
    /// `[width]`
    pub scale: Vec<f32>,
    /// `[width]`
    pub shift: Vec<f32>,
}

/// Normalises each row; `scale` and `shift` are as long as a row.
pub fn forward(input: &Rows, scale: &[f32], shift: &[f32]) -> (Rows, Normal) {
    let width = input.width;
    let (mut rows, mut output) = (input.clone(), Rows::repeated(shift, input.count()));
    let mut factors = vec![0.0; input.count()];
    let pieces = rows.values.par_chunks_mut(PIECE * width).zip(output.values.par_chunks_mut(PIECE * width));
    pieces.zip(factors.par_chunks_mut(PIECE)).for_each(|((rows, output), factors)| {
        let both = rows.chunks_exact_mut(width).zip(output.chunks_exact_mut(width));
        for ((row, output), factor) in both.zip(factors) {
            let mean = sum(row) / width as f32;
            row.iter_mut().for_each(|value| *value -= mean);
            *factor = 1.0 / (dot(row, row) / width as f32 + EPSILON as f32).sqrt();
            row.iter_mut().for_each(|value| *value *= *factor);
            output.copy_from_slice(row);
            change(output, scale, |value, scale| value * scale);
            add(output, shift);
        }
    });
    (output, Normal { rows, factors })
}

/// The gradient of the input, and of the parameters if they are `trained`.
pub fn back(normal: &Normal, scale: &[f32], mut gradient: Rows, trained: bool) -> (Rows, Option<NormGradients>) {
    let width = gradient.width;
    let pieces = gradient.values.par_chunks_mut(PIECE * width).zip(normal.rows.values.par_chunks(PIECE * width));
    let sums = pieces.zip(normal.factors.par_chunks(PIECE)).map(|((gradient, rows), factors)| {
        let (mut of_scale, mut of_shift, mut product) = (vec![0.0; width], vec![0.0; width], vec![0.0; width]);
        let both = gradient.chunks_exact_mut(width).zip(rows.chunks_exact(width));
        for ((gradient, row), factor) in both.zip(factors) {
            if trained {
                product.copy_from_slice(gradient);
                change(&mut product, row, |gradient, value| gradient * value);
                add(&mut of_scale, &product);
                add(&mut of_shift, gradient);
            }
            change(gradient, scale, |gradient, scale| gradient * scale);
            let mean = f32x8::splat(sum(gradient) / width as f32);
            let crossed = f32x8::splat(dot(gradient, row) / width as f32);
            let factor = f32x8::splat(*factor);
            change(gradient, row, |gradient, value| (gradient - mean - value * crossed) * factor);
        }
        (of_scale, of_shift)
    });
    let (of_scale, of_shift): (Vec<_>, Vec<_>) = sums.collect::<Vec<_>>().into_iter().unzip();
    let found = trained.then(|| NormGradients { scale: in_order(of_scale, width), shift: in_order(of_shift, width) });
    (gradient, found)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{autodiff, close, values};
    use super::super::transformer::{LayerNorm, changed};
    use super::*;
    use crate::nn::Tensor;
    use crate::nn::fake_quantise::without_graph;
    use crate::nn::rows::numbers;

    #[test]
    fn values_and_gradients_are_those_of_burns_operations() {
        let (count, width) = (PIECE + 5, 13);
        let drawn = |seed: f32| Rows { values: (0..count * width).map(|at| (at as f32 * seed).sin()).collect(), width };
        let vector = |seed: f32| Tensor::<1>::from_floats(&drawn(seed).values[..width], &super::super::tests::plain());
        let (input, upstream) = (drawn(0.731), drawn(0.37));
        let mut norm = LayerNorm::new(width, &autodiff());
        norm.weight = changed(&norm.weight, |_| vector(0.9));
        norm.bias = changed(&norm.bias, |_| vector(0.3));
        let tensor = |rows: &Rows| Tensor::from_inner(rows.clone().tensor(&super::super::tests::plain()));
        let leaf = tensor(&input).require_grad();
        let expected = norm.forward(leaf.clone(), false);
        let gradients = (expected.clone() * tensor(&upstream)).sum().backward();
        let [scale, shift] = [&norm.weight, &norm.bias].map(|parameter| numbers(without_graph(&parameter.val())));
        let (found, normal) = forward(&input, &scale, &shift);
        close(&found.values, &values(expected), 1e-5);
        let (gradient, of_parameters) = back(&normal, &scale, upstream.clone(), true);
        close(&gradient.values, &values(leaf.grad(&gradients).unwrap()), 1e-5);
        let of_parameters = of_parameters.unwrap();
        close(&of_parameters.scale, &values(norm.weight.val().grad(&gradients).unwrap()), 1e-4);
        close(&of_parameters.shift, &values(norm.bias.val().grad(&gradients).unwrap()), 1e-4);
        assert_eq!(back(&normal, &scale, upstream, false), (gradient, None));
    }

    /// By hand: mean 2 and variance 1, but for epsilon.
    #[test]
    fn two_numbers_become_minus_one_and_one() {
        let (found, _) = forward(&Rows { values: vec![1.0, 3.0], width: 2 }, &[2.0, 3.0], &[0.5, 0.25]);
        close(&found.values, &[-1.5, 3.25], 1e-4);
    }
}
