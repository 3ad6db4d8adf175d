//! LSQ, learned step size quantisation (Esser et al. 2020).
//!
//! `w' = round(clamp(w / s)) s` on a symmetric grid with the levels `-max_level..=max_level`. Rounding has a straight-through
//! gradient, which gives the scale one: `round(w / s) - w / s` inside the grid and the end of the grid outside, multiplied by
//! `1 / sqrt(n max_level)`. Under SGD that factor sets the learning rate of the scale. AdamW normalises each gradient, so there the
//! factor only reduces the scale's part of the norm that `clip_norm` bounds, and `scale_learning_rate_factor` sets the learning rate.
//!
//! The parameter is `l` in `s = initial exp(l)`, where `initial` is the initial scale of LSQ. An optimiser such as AdamW
//! moves each parameter by about the learning rate, whatever its magnitude: `s` itself, often 0.01, would become negative, where it
//! has no gradient. Its logarithm changes it by a fraction of its magnitude. `initial` is computed from the current weight: where the
//! base is trained it follows the weight, without a gradient of its own.

use super::Tensor;
use super::graph::to_inner;

/// Keeps the division finite where all weights are zero.
const SCALE_MIN: f32 = 1e-8;

/// Highest level of a symmetric grid.
pub fn max_level(bits: u32) -> f32 {
    ((1u32 << (bits - 1)) - 1) as f32
}

/// Initial scale, `2 mean(|w|) / sqrt(max_level)`: `[1]`, or one for each output of `weight` `[inputs, outputs]`. It is on the inner
/// device and has no gradient.
pub fn initial_scale(weight: &Tensor<2>, per_channel: bool, bits: u32) -> Tensor<1> {
    let magnitudes = to_inner(weight).abs();
    let mean = match per_channel {
        true => {
            let outputs = magnitudes.dims()[1];
            magnitudes.mean_dim(0).reshape([outputs])
        }
        false => magnitudes.mean(),
    };
    mean.mul_scalar(2.0 / max_level(bits).sqrt()).clamp_min(SCALE_MIN)
}

/// Quantised weight `[inputs, outputs]`. `logarithm`, `[1]` or `[outputs]`, is that of the scale over the initial one. Both have
/// gradients.
pub fn quantise(weight: Tensor<2>, logarithm: Tensor<1>, bits: u32) -> Tensor<2> {
    let max_level = max_level(bits);
    let channels = logarithm.dims()[0];
    let weights_per_scale = weight.shape().num_elements() / channels;
    let gradient_factor = 1.0 / (weights_per_scale as f32 * max_level).sqrt();
    let initial = initial_scale(&weight, channels > 1, bits);
    let scale = (initial * logarithm.exp()).reshape([1, channels]);
    // The same value, with a reduced gradient.
    let scaled = scale.clone().mul_scalar(gradient_factor);
    let scale = scaled.clone() + (scale - scaled).detach();
    let ratio = (weight / scale.clone()).clamp(-max_level, max_level);
    let rounded = ratio.clone() + (ratio.clone().round() - ratio).detach();
    rounded * scale
}

#[cfg(test)]
mod tests {
    use std::f32::consts::LN_2;

    use serde_json::Value;

    use super::super::testing::{autodiff, close, json_numbers, values};
    use super::*;

    /// The formulas of the paper, in `tests/reference/fake_quantise.py`.
    #[test]
    fn values_and_both_gradients_match_the_paper() {
        let text = include_str!("../../../../tests/reference/fake_quantise.json");
        let all: Value = serde_json::from_str(text).unwrap();
        let tensor = |name: &str| {
            Tensor::<2>::from_data(burn::tensor::TensorData::new(json_numbers(&all[name]), [4, 3]), &autodiff())
        };
        for case in all["learned"].as_array().unwrap() {
            let number = |name: &str| case[name].as_f64().unwrap() as f32;
            let bits = case["bits"].as_u64().unwrap() as u32;
            let weight = tensor("input").require_grad();
            let initial = initial_scale(&weight, false, bits);
            close(&values(initial.mul_scalar(number("logarithm").exp())), &[number("scale")], 1e-6);
            let logarithm = Tensor::<1>::from_floats([number("logarithm")], &autodiff()).require_grad();
            let output = quantise(weight.clone(), logarithm.clone(), bits);
            close(&values(output.clone()), &json_numbers(&case["values"]), 1e-5);
            let gradients = (output * tensor("upstream")).sum().backward();
            close(&values(weight.grad(&gradients).unwrap()), &json_numbers(&case["gradient"]), 1e-5);
            close(&values(logarithm.grad(&gradients).unwrap()), &[number("logarithm_gradient")], 1e-5);
        }
    }

    #[test]
    fn each_output_may_have_its_own_scale() {
        // By hand: 2 |w| / sqrt(127) is 0.177 |w|; w / s is 5.63, which is rounded to 6: 1.0648 w.
        let weight = Tensor::<2>::from_floats([[1.0, 10.0], [-1.0, -10.0]], &autodiff());
        let quantised = quantise(weight.clone(), Tensor::zeros([2], &autodiff()), 8);
        close(&values(quantised), &[1.0648, 10.648, -1.0648, -10.648], 1e-3);
        // The first scale halved, the second doubled: 11.27 and 2.82 levels.
        let logarithms = Tensor::<1>::from_floats([-LN_2, LN_2], &autodiff());
        close(&values(quantise(weight, logarithms, 8)), &[0.9761, 10.648, -0.9761, -10.648], 1e-3);
    }
}
