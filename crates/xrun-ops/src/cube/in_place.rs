//! Updates in the memory of their arguments, whoever else holds it. All that changes from step to step is a scalar on the device, so that a
//! captured step can be replayed.
//!
//! Tensors are without autodiff, and those that are overwritten were made by [`fixed`].

use burn::backend::DispatchDevice;
use burn::tensor::{Bytes, DType, Int, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;

use super::adamw::{decayed, moment, updated};
use super::{Buffers, buffers, dim, each, each_of, empty, from_memory, group_size, inner_memory, int_memory, launch};
use crate::adamw::AdamW;
pub use crate::sgd::Sgd;

/// Returns a copy in contiguous memory of its own.
pub fn fixed<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    let source = inner_memory(tensor);
    let copy = empty(&source, source.meta.shape().clone());
    let [to, from] = [&copy, &source].map(|memory| buffers(std::slice::from_ref(memory)));
    assign_kernel::launch(&copy.client.clone(), each(&copy), dim(), to, from);
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

/// Adds to each sum its value.
pub fn add<const D: usize>(pairs: Vec<(Tensor<D>, Tensor<D>)>) {
    in_groups(pairs, |sums, values, client, cubes| add_kernel::launch(client, cubes, dim(), sums, values));
}

/// Returns whether a tensor is on a device whose memory this module can overwrite.
pub fn is_possible<const D: usize>(tensor: &Tensor<D>) -> bool {
    matches!(tensor.device().inner().as_dispatch(), DispatchDevice::Cube(_))
}

/// Overwrites each tensor by its value.
pub fn assign<const D: usize>(pairs: Vec<(Tensor<D>, Tensor<D>)>) {
    in_groups(pairs, |tensors, values, client, cubes| assign_kernel::launch(client, cubes, dim(), tensors, values));
}

/// Overwrites tensors by zeros.
pub fn clear<const D: usize>(tensors: &[Tensor<D>]) {
    clear_memory(&tensors.iter().map(overwritten).collect::<Vec<_>>());
}

/// Overwrites contiguous memory by zeros.
pub(super) fn clear_memory(memory: &[CubeTensor]) {
    for group in memory.chunks(group_size(memory, 1)) {
        clear_kernel::launch(&group[0].client.clone(), each_of(group), dim(), buffers(group));
    }
}

/// Launches a kernel on tensors and their values, a group of them at a time.
fn in_groups<const D: usize>(
    pairs: Vec<(Tensor<D>, Tensor<D>)>,
    launch: impl Fn(Buffers, Buffers, &Client, CubeCount),
) {
    let (tensors, values): (Vec<_>, Vec<_>) =
        pairs.into_iter().map(|(tensor, value)| (overwritten(&tensor), inner_memory(value))).unzip();
    let sizes = |memory: &[CubeTensor]| memory.iter().map(|tensor| tensor.meta.num_elements()).collect::<Vec<_>>();
    assert_eq!(sizes(&tensors), sizes(&values), "a tensor and its value have different shapes");
    let size = group_size(&tensors, 2);
    for (tensors, values) in tensors.chunks(size).zip(values.chunks(size)) {
        launch(buffers(tensors), buffers(values), &tensors[0].client.clone(), each_of(tensors));
    }
}

/// Overwrites a row of a table with as many columns as there are `values`; `row` is its number, `[1]`.
pub fn put(table: &Tensor<1>, values: Tensor<1>, row: &Tensor<1, Int>) {
    let (values, table, row) = (inner_memory(values), overwritten(table), int_memory(row.clone()));
    launch!(put_kernel, each(&values), [values, table, row], []);
}

/// Parameter that is updated together with others.
pub struct Update {
    gradient: CubeTensor,
    parameter: CubeTensor,
    /// Moments, or velocity.
    state: Vec<CubeTensor>,
}

impl Update {
    /// Update of a parameter by its gradient. `state` is 0 at first: both moments of [`AdamW`], the velocity of [`Sgd`], nothing of an
    /// [`Sgd`] without momentum.
    pub fn new<const D: usize>(parameter: &Tensor<D>, gradient: Tensor<D>, state: &[&Tensor<D>]) -> Self {
        let state = state.iter().map(|tensor| overwritten(tensor)).collect();
        Self { gradient: inner_memory(gradient), parameter: overwritten(parameter), state }
    }
}

/// Launches a kernel on parameters, a group of them at a time.
fn update(updates: &[Update], launch: impl Fn([Buffers; 2], &dyn Fn(usize) -> Buffers, &Client, CubeCount)) {
    let Some(first) = updates.first() else { return };
    for group in updates.chunks(group_size(std::slice::from_ref(&first.parameter), 2 + first.state.len())) {
        let parameters: Vec<_> = group.iter().map(|update| update.parameter.clone()).collect();
        let gradients = group.iter().map(|update| update.gradient.clone()).collect::<Vec<_>>();
        let state = |number: usize| buffers(&group.iter().map(|of| of.state[number].clone()).collect::<Vec<_>>());
        let (client, cubes) = (parameters[0].client.clone(), each_of(&parameters));
        launch([buffers(&gradients), buffers(&parameters)], &state, &client, cubes);
    }
}

impl AdamW {
    /// Updates parameters. `scalars` are those of [`Self::scalars`] on the device, `[3]`, and the gradients are multiplied by `factor`,
    /// `[1]`.
    pub fn step_in_place(&self, updates: &[Update], scalars: &Tensor<1>, factor: &Tensor<1>) {
        let factors = self.factors(0.0, 1);
        let [scalars, factor] = [scalars, factor].map(|tensor| inner_memory(tensor.clone()));
        update(updates, |[gradients, parameters], state, client, cubes| {
            adamw_kernel::launch(
                client,
                cubes,
                dim(),
                gradients,
                parameters,
                state(0),
                state(1),
                scalars.clone().into_buffer_arg(),
                factor.clone().into_buffer_arg(),
                factors.betas[0],
                factors.betas[1],
                factors.epsilon,
                self.weight_decay,
            );
        });
    }
}

impl Sgd {
    /// Updates parameters. `scalars` begin with the learning rate, and the gradients are multiplied by `factor`, `[1]`.
    pub fn step_in_place(&self, updates: &[Update], scalars: &Tensor<1>, factor: &Tensor<1>) {
        let [scalars, factor] = [scalars, factor].map(|tensor| inner_memory(tensor.clone()));
        let has_velocity = updates.first().is_some_and(|update| !update.state.is_empty());
        update(updates, |[gradients, parameters], state, client, cubes| {
            sgd_kernel::launch(
                client,
                cubes,
                dim(),
                gradients,
                parameters,
                if has_velocity { state(0) } else { Buffers::new() },
                scalars.clone().into_buffer_arg(),
                factor.clone().into_buffer_arg(),
                self.momentum,
                self.weight_decay,
                has_velocity,
                self.nesterov,
            );
        });
    }
}

/// Returns the memory of a tensor, not that of a copy.
fn overwritten<const D: usize>(tensor: &Tensor<D>) -> CubeTensor {
    let memory = super::memory(tensor.clone());
    assert!(memory.is_contiguous(), "a tensor {:?} is overwritten that `fixed` has not made", memory.meta.shape());
    memory
}

#[cube(launch)]
fn put_kernel(values: &[f32], table: &mut [f32], row: &[i32]) {
    if ABSOLUTE_POS < values.len() {
        table[row[0] as usize * values.len() + ABSOLUTE_POS] = values[ABSOLUTE_POS];
    }
}

#[cube(launch)]
fn assign_kernel(tensors: &mut Sequence<Box<[f32]>>, values: &Sequence<Box<[f32]>>) {
    #[unroll]
    for i in 0..tensors.len() {
        let tensor = &mut tensors[i];
        if ABSOLUTE_POS < tensor.len() {
            tensor[ABSOLUTE_POS] = values[i][ABSOLUTE_POS];
        }
    }
}

#[cube(launch)]
fn clear_kernel(tensors: &mut Sequence<Box<[f32]>>) {
    #[unroll]
    for i in 0..tensors.len() {
        let tensor = &mut tensors[i];
        if ABSOLUTE_POS < tensor.len() {
            tensor[ABSOLUTE_POS] = 0.0;
        }
    }
}

#[cube(launch)]
fn add_kernel(sums: &mut Sequence<Box<[f32]>>, values: &Sequence<Box<[f32]>>) {
    #[unroll]
    for i in 0..sums.len() {
        let sum = &mut sums[i];
        if ABSOLUTE_POS < sum.len() {
            sum[ABSOLUTE_POS] += values[i][ABSOLUTE_POS];
        }
    }
}

#[cube(launch)]
fn adamw_kernel(
    gradients: &Sequence<Box<[f32]>>,
    parameters: &mut Sequence<Box<[f32]>>,
    firsts: &mut Sequence<Box<[f32]>>,
    seconds: &mut Sequence<Box<[f32]>>,
    scalars: &[f32],
    factor: &[f32],
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    weight_decay: f32,
) {
    #[unroll]
    for i in 0..parameters.len() {
        let parameter = &mut parameters[i];
        let first = &mut firsts[i];
        let second = &mut seconds[i];
        if ABSOLUTE_POS < parameter.len() {
            let value = gradients[i][ABSOLUTE_POS] * factor[0];
            let mean = moment(first[ABSOLUTE_POS], value, beta_1);
            let square = moment(second[ABSOLUTE_POS], value * value, beta_2);
            let old = decayed(parameter[ABSOLUTE_POS], scalars[0], weight_decay);
            first[ABSOLUTE_POS] = mean;
            second[ABSOLUTE_POS] = square;
            parameter[ABSOLUTE_POS] = updated(old, mean * scalars[1], square * scalars[2], epsilon, scalars[0]);
        }
    }
}

#[cube(launch)]
fn sgd_kernel(
    gradients: &Sequence<Box<[f32]>>,
    parameters: &mut Sequence<Box<[f32]>>,
    velocities: &mut Sequence<Box<[f32]>>,
    scalars: &[f32],
    factor: &[f32],
    momentum: f32,
    weight_decay: f32,
    #[comptime] has_velocity: bool,
    #[comptime] nesterov: bool,
) {
    #[unroll]
    for i in 0..parameters.len() {
        let parameter = &mut parameters[i];
        if ABSOLUTE_POS < parameter.len() {
            let old = parameter[ABSOLUTE_POS];
            let value = gradients[i][ABSOLUTE_POS] * factor[0] + old * weight_decay;
            let mut step = value;
            if comptime![has_velocity] {
                let velocity = &mut velocities[i];
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
}
