//! How far is a language model from the text, and from a teacher? Cross-entropy and the divergence of its distribution.
//!
//! The divergence is KL(teacher || model) over the whole vocabulary at temperature one, LLM-QAT's loss (Liu et al. 2023).

use burn::tensor::Int;
use burn::tensor::activation::log_softmax;

use super::fake_quantise::beside;
use super::{Backend, Tensor};

/// What is minimised, and its parts, `[1]` each.
#[derive(Clone, Debug)]
pub struct NextTokenLoss {
    pub total: Tensor<1>,
    pub cross_entropy: Tensor<1>,
    pub divergence: Option<Tensor<1>>,
}

/// `logits` `[n, vocabulary]`, `targets` `[n]`; `weights` `[n]` sum up to one. The teacher is its logits, on the plain
/// device, and the share of the divergence in the total.
pub fn next_token_loss(
    logits: Tensor<2>,
    targets: burn::tensor::Tensor<Backend, 1, Int>,
    weights: Tensor<1>,
    teacher: Option<(Tensor<2>, f64)>,
) -> NextTokenLoss {
    let count = logits.dims()[0];
    let logarithms = log_softmax(logits, 1);
    let said = logarithms.clone().gather(1, targets.reshape([count, 1])).reshape([count]);
    let cross_entropy = (said * weights.clone()).sum().neg();
    let Some((teacher, share)) = teacher else {
        return NextTokenLoss { total: cross_entropy.clone(), cross_entropy, divergence: None };
    };
    let wanted = log_softmax(teacher, 1);
    let chance = wanted.clone().exp();
    // The part without the model has no gradient; it makes the divergence zero where both agree.
    let own = (chance.clone() * wanted).sum_dim(1).reshape([count]);
    let own = (beside(own, &logarithms) * weights.clone()).sum();
    let crossed = (logarithms.clone() * beside(chance, &logarithms)).sum_dim(1).reshape([count]);
    let divergence = own - (crossed * weights).sum();
    let share = share as f32;
    let total = cross_entropy.clone().mul_scalar(1.0 - share) + divergence.clone().mul_scalar(share);
    NextTokenLoss { total, cross_entropy, divergence: Some(divergence) }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use serde_json::Value;

    use super::super::tests::{autodiff, close, plain, values};
    use super::*;

    fn numbers(value: &Value) -> Vec<f32> {
        match value.as_array() {
            Some(list) => list.iter().flat_map(numbers).collect(),
            None => vec![value.as_f64().unwrap() as f32],
        }
    }

    /// PyTorch's `cross_entropy` and `kl_div`, `tests/reference/fake_quantise.py`.
    #[test]
    fn both_parts_and_the_gradient_are_those_of_pytorch() {
        let all: Value = serde_json::from_str(include_str!("../../tests/reference/fake_quantise.json")).unwrap();
        let case = &all["distillation"];
        let logits =
            Tensor::<2>::from_data(TensorData::new(numbers(&case["logits"]), [5, 7]), &autodiff()).require_grad();
        let teacher = Tensor::<2>::from_data(TensorData::new(numbers(&case["teacher"]), [5, 7]), &plain());
        let targets: Vec<i32> = numbers(&case["targets"]).into_iter().map(|number| number as i32).collect();
        let targets = burn::tensor::Tensor::<Backend, 1, Int>::from_ints(targets.as_slice(), &autodiff());
        let weights = Tensor::<1>::from_floats(numbers(&case["weights"]).as_slice(), &autodiff()) / 4.0;
        let loss = next_token_loss(logits.clone(), targets, weights, Some((teacher, 0.75)));
        let number = |name: &str| case[name].as_f64().unwrap() as f32;
        close(&values(loss.cross_entropy), &[number("cross_entropy")], 1e-5);
        close(&values(loss.divergence.unwrap()), &[number("divergence")], 1e-5);
        let gradients = loss.total.backward();
        close(&values(logits.grad(&gradients).unwrap()), &numbers(&case["gradient"]), 1e-6);
    }

    #[test]
    fn a_model_that_says_what_its_teacher_says_does_not_diverge() {
        let logits = Tensor::<2>::from_floats([[0.3, -2.0, 1.0]], &plain());
        let targets = burn::tensor::Tensor::<Backend, 1, Int>::from_ints([2], &plain());
        let weights = Tensor::<1>::from_floats([1.0], &plain());
        let loss = next_token_loss(logits.clone(), targets, weights, Some((logits, 1.0)));
        close(&values(loss.divergence.unwrap()), &[0.0], 1e-6);
    }
}
