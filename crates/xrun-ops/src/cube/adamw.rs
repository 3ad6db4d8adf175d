//! AdamW in one kernel, in place where nobody else holds the tensors.

use burn::backend::Cube;
use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{UNITS, cubes, empty, inner_memory, writable};
use crate::adamw::Factors;
use crate::operation::KernelBackend;

/// Returns the updated parameter and moments.
pub fn adamw<const D: usize>(
    parameter: Tensor<D>,
    gradient: Tensor<D>,
    moments: Option<[Tensor<D>; 2]>,
    factors: Factors,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    let (parameter, gradient) = (inner_memory(parameter), into_contiguous(inner_memory(gradient)));
    let is_first = moments.is_none();
    let moments = match moments {
        Some(moments) => moments.map(inner_memory),
        None => [0, 1].map(|_| empty(&parameter, parameter.meta.shape().clone())),
    };
    let outputs = [writable(&parameter), writable(&moments[0]), writable(&moments[1])];
    let argument = |tensor: &CubeTensor| tensor.clone().into_buffer_arg();
    kernel::launch(
        &parameter.client,
        cubes(parameter.meta.num_elements().div_ceil(UNITS as usize)),
        CubeDim::new_1d(UNITS),
        gradient.into_buffer_arg(),
        argument(&parameter),
        argument(&moments[0]),
        argument(&moments[1]),
        argument(&outputs[0]),
        argument(&outputs[1]),
        argument(&outputs[2]),
        factors.betas[0],
        factors.betas[1],
        factors.corrections[0],
        factors.corrections[1],
        factors.epsilon,
        factors.decay,
        factors.learning_rate,
        is_first,
    );
    let [parameter, first, second] = outputs.map(|output| Tensor::from_primitive::<Cube>(Cube::tensor(output)));
    (parameter, [first, second])
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
    decay: f32,
    learning_rate: f32,
    #[comptime] is_first: bool,
) {
    if ABSOLUTE_POS < new_parameter.len() {
        let value = gradient[ABSOLUTE_POS];
        let mut mean = value * (1.0 - beta_1);
        let mut square = value * value * (1.0 - beta_2);
        if comptime![!is_first] {
            mean += first[ABSOLUTE_POS] * beta_1;
            square += second[ABSOLUTE_POS] * beta_2;
        }
        let delta = mean / correction_1 / ((square / correction_2).sqrt() + epsilon);
        new_first[ABSOLUTE_POS] = mean;
        new_second[ABSOLUTE_POS] = square;
        new_parameter[ABSOLUTE_POS] = parameter[ABSOLUTE_POS] * decay - delta * learning_rate;
    }
}
