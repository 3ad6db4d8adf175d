//! Losses between outputs and targets, summed over the clips of a batch.

use super::settings::Loss;
use xrun_ops::normalise;
use xrun_training::nn::Tensor;

/// Sum over rows of the loss between `output` and `target`, both `[clips, elements]`; `[1]`.
pub fn loss(output: Tensor<2>, target: Tensor<2>, kind: Loss) -> Tensor<1> {
    match kind {
        Loss::Mse => mse(output, target),
        Loss::Cosine => cosine(output, target),
        Loss::MseAndCosine => mse(output.clone(), target.clone()) + cosine(output, target),
    }
}

/// Sum over rows of the mean squared difference.
fn mse(output: Tensor<2>, target: Tensor<2>) -> Tensor<1> {
    let difference = output - target;
    (difference.clone() * difference).mean_dim(1).sum()
}

/// Sum over rows of one minus the cosine similarity.
fn cosine(output: Tensor<2>, target: Tensor<2>) -> Tensor<1> {
    let similarity = (normalise(output) * normalise(target)).sum_dim(1);
    similarity.neg().add_scalar(1.0).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_training::nn::testing::{close, plain, values};

    #[test]
    fn losses_by_hand() {
        let output = || Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 0.0]], &plain());
        let target = || Tensor::<2>::from_floats([[1.0, 0.0], [0.0, 4.0]], &plain());
        let of = |kind| values(loss(output(), target(), kind));
        let cosine = 1.0 - 1.0 / 5f32.sqrt() + 1.0;
        close(&of(Loss::Mse), &[4.0 / 2.0 + (9.0 + 16.0) / 2.0], 1e-5);
        close(&of(Loss::Cosine), &[cosine], 1e-5);
        close(&of(Loss::MseAndCosine), &[14.5 + cosine], 1e-5);
    }
}
