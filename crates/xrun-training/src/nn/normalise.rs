//! L2 normalisation.

use super::Tensor;

/// Divides vectors along `dimension` by their Euclidean length. The gradient is finite at zero.
pub fn normalise<const D: usize>(tensor: Tensor<D>, dimension: usize) -> Tensor<D> {
    const EPSILON: f32 = 1e-12;
    let length = (tensor.clone() * tensor.clone()).sum_dim(dimension).add_scalar(EPSILON).sqrt();
    tensor / length
}

#[cfg(test)]
mod tests {
    use super::super::testing::{autodiff, close, values};
    use super::*;

    #[test]
    fn lengths_become_one_and_zero_stays_zero_with_a_finite_gradient() {
        let vectors = Tensor::<2>::from_floats([[3.0, 4.0], [0.0, 0.0]], &autodiff()).require_grad();
        let out = normalise(vectors.clone(), 1);
        close(&values(out.clone()), &[0.6, 0.8, 0.0, 0.0], 1e-6);
        let gradients = out.sum().backward();
        assert!(values(vectors.grad(&gradients).unwrap()).iter().all(|value| value.is_finite()));
    }
}
