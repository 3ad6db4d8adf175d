//! Can the scale of a grid be learnt? LSQ, learned step size quantisation (Esser et al. 2020).
//!
//! `w' = round(clamp(w / s)) s` on a symmetric grid. Rounding passes the gradient straight through, so the scale has one:
//! `round(w / s) - w / s` inside the grid and its end outside, made smaller by `1 / sqrt(n most)`. Under SGD that factor
//! sets the scale's pace; AdamW divides each gradient by its own size, so there the factor does nothing but make the scale
//! small in the norm that `clip_norm` bounds, and `scale_learning_rate_factor` sets the pace.
//!
//! The parameter is `l` in `s = first exp(l)`, where `first` is the scale that LSQ begins with. An optimiser such as AdamW
//! moves each parameter by about the learning rate, whatever its size: that would carry `s` itself, often a hundredth,
//! past zero, where it has no gradient. Its logarithm moves it by a share of its size. `first` is of the weight as it is:
//! where the base is trained it follows the weight, without a gradient of its own.

use super::Tensor;
use super::graph::without_graph;

/// Keeps the division finite where all weights are zero.
const SCALE_MIN: f32 = 1e-8;

/// The greatest level of a symmetric grid.
pub fn most(bits: u32) -> f32 {
    ((1u32 << (bits - 1)) - 1) as f32
}

/// The scale to start with, `2 mean(|w|) / sqrt(most)`: `[1]`, or one for each output of `weight` `[inputs, outputs]`.
/// On the plain device: it has no gradient.
pub fn first_scale(weight: &Tensor<2>, per_channel: bool, bits: u32) -> Tensor<1> {
    let sizes = without_graph(weight).abs();
    let mean = match per_channel {
        true => {
            let outputs = sizes.dims()[1];
            sizes.mean_dim(0).reshape([outputs])
        }
        false => sizes.mean(),
    };
    mean.mul_scalar(2.0 / most(bits).sqrt()).clamp_min(SCALE_MIN)
}

/// The weight on the grid of a scale; `logarithm`, `[1]` or `[outputs]`, is of that scale over the first one. Both have a
/// gradient.
pub fn quantise(weight: Tensor<2>, logarithm: Tensor<1>, bits: u32) -> Tensor<2> {
    let most = most(bits);
    let channels = logarithm.dims()[0];
    let sharing = weight.shape().num_elements() / channels;
    let share = 1.0 / (sharing as f32 * most).sqrt();
    let first = first_scale(&weight, channels > 1, bits);
    let scale = (first * logarithm.exp()).reshape([1, channels]);
    // The same value, with a share of the gradient.
    let scaled = scale.clone().mul_scalar(share);
    let scale = scaled.clone() + (scale - scaled).detach();
    let ratio = (weight / scale.clone()).clamp(-most, most);
    let rounded = ratio.clone() + (ratio.clone().round() - ratio).detach();
    rounded * scale
}

#[cfg(test)]
mod tests {
    use std::f32::consts::LN_2;

    use serde_json::Value;

    use super::super::tests::{autodiff, close, values};
    use super::*;

    fn numbers(value: &Value) -> Vec<f32> {
        value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
    }

    /// The formulas of the paper, in `tests/reference/fake_quantise.py`.
    #[test]
    fn values_and_both_gradients_are_those_of_the_paper() {
        let text = include_str!("../../../../tests/reference/fake_quantise.json");
        let all: Value = serde_json::from_str(text).unwrap();
        let rows = |name: &str| -> Vec<f32> { all[name].as_array().unwrap().iter().flat_map(numbers).collect() };
        let tensor =
            |name: &str| Tensor::<2>::from_data(burn::tensor::TensorData::new(rows(name), [4, 3]), &autodiff());
        for case in all["learned"].as_array().unwrap() {
            let number = |name: &str| case[name].as_f64().unwrap() as f32;
            let bits = case["bits"].as_u64().unwrap() as u32;
            let weight = tensor("input").require_grad();
            let first = first_scale(&weight, false, bits);
            close(&values(first.mul_scalar(number("logarithm").exp())), &[number("scale")], 1e-6);
            let logarithm = Tensor::<1>::from_floats([number("logarithm")], &autodiff()).require_grad();
            let output = quantise(weight.clone(), logarithm.clone(), bits);
            close(&values(output.clone()), &numbers(&case["values"]), 1e-5);
            let gradients = (output * tensor("upstream")).sum().backward();
            close(&values(weight.grad(&gradients).unwrap()), &numbers(&case["gradient"]), 1e-5);
            close(&values(logarithm.grad(&gradients).unwrap()), &[number("logarithm_gradient")], 1e-5);
        }
    }

    #[test]
    fn each_output_may_have_its_own_scale() {
        // By hand: 2 |w| / sqrt(127) is 0.177 |w|; w / s is 5.63, which is rounded to 6: 1.0648 w.
        let weight = Tensor::<2>::from_floats([[1.0, 10.0], [-1.0, -10.0]], &autodiff());
        let quantised = quantise(weight.clone(), Tensor::zeros([2], &autodiff()), 8);
        close(&values(quantised), &[1.0648, 10.648, -1.0648, -10.648], 1e-3);
        // The first one halved, the second doubled: 11.27 and 2.82 steps.
        let logarithms = Tensor::<1>::from_floats([-LN_2, LN_2], &autodiff());
        close(&values(quantise(weight, logarithms, 8)), &[0.9761, 10.648, -0.9761, -10.648], 1e-3);
    }
}
