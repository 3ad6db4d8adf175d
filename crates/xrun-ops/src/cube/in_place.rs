//! Updates in the memory of their arguments, whoever else holds it. All that changes from step to step is a scalar on the device, so that a
//! captured step can be replayed.
//!
//! Tensors are without autodiff, and those that are overwritten were made by [`fixed`].

use burn::backend::DispatchDevice;
use burn::tensor::{Bytes, DType, Int, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::adamw::{decayed, moment, updated};
use super::{each, empty, from_memory, inner_memory, int_memory, launch};
use crate::adamw::AdamW;
pub use crate::sgd::Sgd;

/// Returns a copy in contiguous memory of its own.
pub fn fixed<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    let source = inner_memory(tensor);
    let copy = empty(&source, source.meta.shape().clone());
    launch!(copy_kernel, each(&copy), [source, copy], []);
    from_memory(copy)
}

/// Overwrites a tensor by values on the host, `tensor.shape().num_elements()` of them.
pub fn write<const D: usize>(tensor: &Tensor<D>, values: Vec<f32>) {
    write_bytes(&overwritten(tensor), Bytes::from_elems(values));
}

/// Overwrites a contiguous tensor of 32-bit integers by integers on the host, `tensor.shape().num_elements()` of them.
pub fn write_ints<const D: usize>(tensor: &Tensor<D, Int>, values: Vec<i32>) {
    assert_eq!(tensor.dtype(), DType::I32, "a tensor of integers is overwritten by such of 32 bits");
    write_bytes(&int_memory(tensor.clone()), Bytes::from_elems(values));
}

fn write_bytes(memory: &CubeTensor, bytes: Bytes) {
    assert_eq!(bytes.len(), memory.meta.num_elements() * 4, "a tensor is overwritten by another number of values");
    memory.client.write(&memory.handle, bytes);
}

/// Adds `value` to `sum`.
pub fn add<const D: usize>(sum: &Tensor<D>, value: Tensor<D>) {
    let (value, sum) = (inner_memory(value), overwritten(sum));
    assert_eq!(value.meta.num_elements(), sum.meta.num_elements(), "a sum and a value have different shapes");
    launch!(add_kernel, each(&sum), [sum, value], []);
}

/// Returns whether a tensor is on a device whose memory this module can overwrite.
pub fn is_possible<const D: usize>(tensor: &Tensor<D>) -> bool {
    matches!(tensor.device().inner().as_dispatch(), DispatchDevice::Cube(_))
}

/// Overwrites `to` by `value`.
pub fn assign<const D: usize>(to: &Tensor<D>, value: Tensor<D>) {
    let (value, to) = (inner_memory(value), overwritten(to));
    assert_eq!(value.meta.num_elements(), to.meta.num_elements(), "a tensor is overwritten by one of another shape");
    launch!(copy_kernel, each(&to), [value, to], []);
}

/// Overwrites a tensor by zeros.
pub fn clear<const D: usize>(tensor: &Tensor<D>) {
    let tensor = overwritten(tensor);
    launch!(clear_kernel, each(&tensor), [tensor], []);
}

/// Overwrites a row of a table with as many columns as there are `values`; `row` is its number, `[1]`.
pub fn put(table: &Tensor<1>, values: Tensor<1>, row: &Tensor<1, Int>) {
    let (values, table, row) = (inner_memory(values), overwritten(table), int_memory(row.clone()));
    launch!(put_kernel, each(&values), [values, table, row], []);
}

impl AdamW {
    /// Updates a parameter and its moments by a gradient. The first moments are 0. `scalars` are those of [`Self::scalars`] on the device,
    /// `[4]`.
    pub fn step_in_place<const D: usize>(
        &self,
        parameter: &Tensor<D>,
        gradient: &Tensor<D>,
        moments: [&Tensor<D>; 2],
        scalars: &Tensor<1>,
    ) {
        let factors = self.factors(0.0, 1);
        let gradient = inner_memory(gradient.clone());
        let [parameter, first, second] = [parameter, moments[0], moments[1]].map(overwritten);
        let scalars = inner_memory(scalars.clone());
        launch!(
            adamw_kernel,
            each(&parameter),
            [gradient, parameter, first, second, scalars],
            [factors.betas[0], factors.betas[1], factors.epsilon, self.weight_decay]
        );
    }
}

impl Sgd {
    /// Updates a parameter and its velocity, which is 0 at first and `None` without momentum. `scalars` begin with the learning rate and
    /// have the factor of the gradients as the fourth, as those of [`AdamW::scalars`].
    pub fn step_in_place<const D: usize>(
        &self,
        parameter: &Tensor<D>,
        gradient: &Tensor<D>,
        velocity: Option<&Tensor<D>>,
        scalars: &Tensor<1>,
    ) {
        let gradient = inner_memory(gradient.clone());
        let parameter = overwritten(parameter);
        let (has_velocity, velocity) = (velocity.is_some(), velocity.map_or_else(|| parameter.clone(), overwritten));
        let scalars = inner_memory(scalars.clone());
        launch!(
            sgd_kernel,
            each(&parameter),
            [gradient, parameter, velocity, scalars],
            [self.momentum, self.weight_decay, has_velocity, self.nesterov]
        );
    }
}

/// Returns the memory of a tensor, not that of a copy.
fn overwritten<const D: usize>(tensor: &Tensor<D>) -> CubeTensor {
    let memory = super::memory(tensor.clone());
    assert!(memory.is_contiguous(), "a tensor {:?} is overwritten that `fixed` has not made", memory.meta.shape());
    memory
}

#[cube(launch)]
fn copy_kernel(source: &[f32], copy: &mut [f32]) {
    if ABSOLUTE_POS < copy.len() {
        copy[ABSOLUTE_POS] = source[ABSOLUTE_POS];
    }
}

#[cube(launch)]
pub(super) fn clear_kernel(tensor: &mut [f32]) {
    if ABSOLUTE_POS < tensor.len() {
        tensor[ABSOLUTE_POS] = 0.0;
    }
}

#[cube(launch)]
fn put_kernel(values: &[f32], table: &mut [f32], row: &[i32]) {
    if ABSOLUTE_POS < values.len() {
        table[row[0] as usize * values.len() + ABSOLUTE_POS] = values[ABSOLUTE_POS];
    }
}

#[cube(launch)]
fn add_kernel(sum: &mut [f32], value: &[f32]) {
    if ABSOLUTE_POS < sum.len() {
        sum[ABSOLUTE_POS] += value[ABSOLUTE_POS];
    }
}

#[cube(launch)]
fn adamw_kernel(
    gradient: &[f32],
    parameter: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
    scalars: &[f32],
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    weight_decay: f32,
) {
    if ABSOLUTE_POS < parameter.len() {
        let value = gradient[ABSOLUTE_POS] * scalars[3];
        let mean = moment(first[ABSOLUTE_POS], value, beta_1);
        let square = moment(second[ABSOLUTE_POS], value * value, beta_2);
        let old = decayed(parameter[ABSOLUTE_POS], scalars[0], weight_decay);
        first[ABSOLUTE_POS] = mean;
        second[ABSOLUTE_POS] = square;
        parameter[ABSOLUTE_POS] = updated(old, mean * scalars[1], square * scalars[2], epsilon, scalars[0]);
    }
}

#[cube(launch)]
fn sgd_kernel(
    gradient: &[f32],
    parameter: &mut [f32],
    velocity: &mut [f32],
    scalars: &[f32],
    momentum: f32,
    weight_decay: f32,
    #[comptime] has_velocity: bool,
    #[comptime] nesterov: bool,
) {
    if ABSOLUTE_POS < parameter.len() {
        let old = parameter[ABSOLUTE_POS];
        let value = gradient[ABSOLUTE_POS] * scalars[3] + old * weight_decay;
        let mut step = value;
        if comptime![has_velocity] {
            let speed = velocity[ABSOLUTE_POS] * momentum + value;
            velocity[ABSOLUTE_POS] = speed;
            step = speed;
            if comptime![nesterov] {
                step = speed * momentum + value;
            }
        }
        parameter[ABSOLUTE_POS] = old - step * scalars[0];
    }
}
