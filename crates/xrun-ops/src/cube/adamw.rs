//! AdamW in one kernel, in place where nobody else holds the tensors.

use burn::tensor::Tensor;
use cubecl::prelude::*;

use super::{each, empty, from_memory, inner_memory, launch, writable};
use crate::adamw::Factors;

/// Returns the updated parameter and moments.
pub fn adamw<const D: usize>(
    parameter: Tensor<D>,
    gradient: Tensor<D>,
    moments: Option<[Tensor<D>; 2]>,
    factors: Factors,
    weight_decay: f32,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    let (parameter, gradient) = (inner_memory(parameter), inner_memory(gradient));
    let is_first = moments.is_none();
    let moments = match moments {
        Some(moments) => moments.map(inner_memory),
        None => [0, 1].map(|_| empty(&parameter, parameter.meta.shape().clone())),
    };
    let outputs = [writable(&parameter), writable(&moments[0]), writable(&moments[1])];
    launch!(
        kernel,
        each(&parameter),
        [gradient, parameter, moments[0], moments[1], outputs[0], outputs[1], outputs[2]],
        [
            factors.betas[0],
            factors.betas[1],
            factors.corrections[0].recip(),
            factors.corrections[1].recip(),
            factors.epsilon,
            weight_decay,
            factors.learning_rate,
            is_first
        ]
    );
    let [parameter, first, second] = outputs.map(from_memory);
    (parameter, [first, second])
}

/// Exponential moving average.
#[cube]
pub fn moment(old: f32, new: f32, beta: f32) -> f32 {
    old * beta + new * (1.0 - beta)
}

/// Parameter after weight decay.
#[cube]
pub fn decayed(parameter: f32, learning_rate: f32, weight_decay: f32) -> f32 {
    parameter * (1.0 - learning_rate * weight_decay)
}

/// Parameter after a step by moments without bias.
#[cube]
pub fn updated(parameter: f32, mean: f32, square: f32, epsilon: f32, learning_rate: f32) -> f32 {
    parameter - mean / (square.sqrt() + epsilon) * learning_rate
}

#[cube(launch)]
fn kernel(
    gradient: &[f32],
    parameter: &[f32],
    first: &[f32],
    second: &[f32],
    new_parameter: &mut [f32],
    new_first: &mut [f32],
    new_second: &mut [f32],
    beta_1: f32,
    beta_2: f32,
    correction_1: f32,
    correction_2: f32,
    epsilon: f32,
    weight_decay: f32,
    learning_rate: f32,
    #[comptime] is_first: bool,
) {
    if ABSOLUTE_POS < new_parameter.len() {
        let value = gradient[ABSOLUTE_POS];
        let mut mean = 0.0f32;
        let mut square = 0.0f32;
        if comptime![!is_first] {
            mean = first[ABSOLUTE_POS];
            square = second[ABSOLUTE_POS];
        }
        mean = moment(mean, value, beta_1);
        square = moment(square, value * value, beta_2);
        let old = decayed(parameter[ABSOLUTE_POS], learning_rate, weight_decay);
        new_first[ABSOLUTE_POS] = mean;
        new_second[ABSOLUTE_POS] = square;
        new_parameter[ABSOLUTE_POS] = updated(old, mean * correction_1, square * correction_2, epsilon, learning_rate);
    }
}
