//! Focal loss and binary cross-entropy (Lin et al. 2017, "Focal Loss for Dense Object Detection").

use burn::tensor::activation::sigmoid;

use super::Tensor;

/// Element-wise focal loss of logits and targets in 0..=1. `gamma` 0 with `alpha` `None` is binary cross-entropy.
pub fn focal_loss<const D: usize>(logits: Tensor<D>, targets: Tensor<D>, gamma: f64, alpha: Option<f64>) -> Tensor<D> {
    let loss = cross_entropy(logits.clone(), targets.clone());
    let negative = targets.clone().neg().add_scalar(1.0);
    let weighted = match gamma {
        0.0 => loss,
        _ => {
            let probability = sigmoid(logits);
            // 1 - p for positives, p for negatives.
            let wrong = probability.clone() * negative.clone() + probability.neg().add_scalar(1.0) * targets.clone();
            let factor = if gamma == 2.0 {
                wrong.clone() * wrong
            } else {
                // An exponent below 1 has an infinite gradient at 0.
                wrong.clamp_min(1e-6).powf_scalar(gamma as f32)
            };
            loss * factor
        }
    };
    match alpha {
        None => weighted,
        Some(alpha) => weighted * (targets.mul_scalar(alpha as f32) + negative.mul_scalar(1.0 - alpha as f32)),
    }
}

/// Element-wise binary cross-entropy of logits, in the form that does not overflow.
pub fn cross_entropy<const D: usize>(logits: Tensor<D>, targets: Tensor<D>) -> Tensor<D> {
    let positive = logits.clone().clamp_min(0.0);
    let rest = logits.clone().abs().neg().exp().log1p();
    positive - logits * targets + rest
}

#[cfg(test)]
mod tests {
    use super::super::testing::{close, plain, values};
    use super::*;

    /// By hand: p = sigmoid(0) = 0.5, so -ln(0.5) * 0.5^2 * 0.25 for a positive, and * 0.75 for a negative.
    #[test]
    fn the_loss_of_a_logit_of_zero_is_that_of_the_paper() {
        let logits = Tensor::<1>::from_floats([0.0, 0.0], &plain());
        let targets = Tensor::<1>::from_floats([1.0, 0.0], &plain());
        let expected = 0.5f32.ln() * -0.25;
        close(&values(focal_loss(logits, targets, 2.0, Some(0.25))), &[expected * 0.25, expected * 0.75], 1e-6);
    }

    #[test]
    fn large_logits_stay_finite() {
        let logits = Tensor::<1>::from_floats([200.0, -200.0, 200.0], &plain());
        let targets = Tensor::<1>::from_floats([1.0, 0.0, 0.0], &plain());
        close(&values(cross_entropy(logits, targets)), &[0.0, 0.0, 200.0], 1e-4);
    }
}
