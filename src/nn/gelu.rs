//! GELU as GPT-2 has it, with tanh (Hendrycks and Gimpel 2016).
//!
//! `gelu(x) = x / 2 (1 + tanh(u)) = x σ(2u)`, `u = √(2/π) (x + 0.044715 x³)`, and its slope `σ + 2 u' x σ (1 − σ)`. On the
//! CPU the graph keeps one tensor, the slopes; of Burn's formula it keeps three: the input, tanh, and one more than that.

use burn::tensor::activation::gelu_approximate;
use wide::f32x8;

use super::fake_quantise::has_graph;
use super::{Tensor, one_pass};

/// √(2/π)
const ROOT: f32 = 0.797_884_6;
const CUBIC: f32 = 0.044_715;

/// GELU of each value.
pub fn gelu<const D: usize>(input: Tensor<D>) -> Tensor<D> {
    if !one_pass::is_for(&input) {
        return gelu_approximate(input);
    }
    if !has_graph(&input) {
        return one_pass::map(input, |x| x * (f32x8::ONE / (f32x8::ONE + power(near(x)))));
    }
    let (values, slopes) = one_pass::map_to_two(input.clone().inner(), value_and_slope);
    one_pass::with_slopes(input, values, slopes)
}

/// GELU in the place of each value in host memory; returns the slopes.
pub fn in_place(values: &mut [f32]) -> Vec<f32> {
    one_pass::change_to_two(values, value_and_slope)
}

fn value_and_slope(x: f32x8) -> (f32x8, f32x8) {
    let near = near(x);
    let power = power(near);
    let share = f32x8::ONE / (f32x8::ONE + power);
    let slope = f32x8::splat(2.0 * ROOT) * (f32x8::ONE + f32x8::splat(3.0 * CUBIC) * near * near);
    // 1 - σ as σ exp(-2u), which keeps its digits where σ is almost one.
    (x * share, share + x * share * share * power * slope)
}

/// Beyond 10 either way the share is 0 or 1 to the last bit, and the power would soon be infinite.
fn near(x: f32x8) -> f32x8 {
    x.max(f32x8::splat(-10.0)).min(f32x8::splat(10.0))
}

/// `exp(-2u)`
fn power(near: f32x8) -> f32x8 {
    (f32x8::splat(-2.0 * ROOT) * near * (f32x8::ONE + f32x8::splat(CUBIC) * near * near)).exp()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{close, plain, values};
    use super::*;

    /// Burn's own formula and its derived gradient.
    #[test]
    fn values_and_gradients_are_those_of_burn() {
        let numbers: Vec<f32> = (-1200..=1200).map(|number| number as f32 / 100.0).collect();
        let given = Tensor::<1>::from_floats(numbers.as_slice(), &plain());
        let run = |function: fn(Tensor<1>) -> Tensor<1>| {
            let input = Tensor::from_inner(given.clone()).require_grad();
            let output = function(input.clone());
            let gradients = output.clone().sum().backward();
            (values(output.inner()), values(input.grad(&gradients).unwrap()))
        };
        let (ours, burns) = (run(gelu), run(gelu_approximate));
        close(&ours.0, &burns.0, 4e-6);
        close(&ours.1, &burns.1, 4e-6);
        close(&values(gelu(given)), &ours.0, 0.0);
        // The formula in twice as many bits.
        let exact = |x: f64| {
            let twice = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            x / (1.0 + (-twice).exp())
        };
        let values: Vec<f32> = numbers.iter().map(|x| exact(f64::from(*x)) as f32).collect();
        let slope = |x: f64| (exact(x + 1e-5) - exact(x - 1e-5)) / 2e-5;
        let slopes: Vec<f32> = numbers.iter().map(|x| slope(f64::from(*x)) as f32).collect();
        close(&ours.0, &values, 1e-6);
        close(&ours.1, &slopes, 1e-6);
    }

    /// `torch.nn.functional.gelu(x, approximate="tanh")` and its gradient, PyTorch 2.15.
    #[test]
    fn values_and_gradients_are_those_of_pytorch() {
        let input = Tensor::<1>::from_floats([-3.0, -1.0, 0.0, 0.5, 2.0], &super::super::tests::autodiff());
        let input = input.require_grad();
        let output = gelu(input.clone());
        close(&values(output.clone()), &[-0.0036374, -0.158808, 0.0, 0.345714, 1.9545977], 1e-6);
        let gradients = output.sum().backward();
        close(&values(input.grad(&gradients).unwrap()), &[-0.0115842, -0.0829641, 0.5, 0.8673699, 1.0860993], 1e-6);
    }

    #[test]
    fn what_is_far_out_is_still_a_number() {
        let input = Tensor::<1>::from_floats([-1e30, -60.0, 60.0, 1e30], &plain());
        close(&values(gelu(input.clone())), &[0.0, 0.0, 60.0, 1e30], 1e-6);
        let input = Tensor::from_inner(input).require_grad();
        let gradients = gelu(input.clone()).sum().backward();
        assert!(values(input.grad(&gradients).unwrap()).iter().all(|slope| slope.is_finite()));
    }
}
