//! Division of vectors by their Euclidean length.

use burn::tensor::Tensor;

use crate::cube::on_cube;

/// Number that is added to the squared length: the gradient is finite at zero.
pub(crate) const EPSILON: f32 = 1e-12;

/// Divides vectors along the last dimension by their length. The gradient is finite at zero.
pub fn normalise<const D: usize>(vectors: Tensor<D>) -> Tensor<D> {
    on_cube!(&vectors => crate::cube::unary(crate::cube::Normalise, (vectors,)));
    let length = (vectors.clone() * vectors.clone()).sum_dim(D - 1).add_scalar(EPSILON).sqrt();
    vectors / length
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn lengths_become_one_and_zero_stays_zero_with_a_finite_gradient() {
        let device = Device::flex().autodiff();
        let vectors = Tensor::<2>::from_floats([[3.0, 4.0], [0.0, 0.0]], &device).require_grad();
        let out = normalise(vectors.clone());
        let found: Vec<f32> = out.clone().into_data().iter().collect();
        for (found, expected) in found.iter().zip([0.6, 0.8, 0.0, 0.0]) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
        let gradients = out.sum().backward();
        assert!(vectors.grad(&gradients).unwrap().into_data().iter::<f32>().all(f32::is_finite));
    }
}
