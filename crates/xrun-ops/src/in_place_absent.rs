//! Updates in place in a build without kernels for GPUs: no tensor is on a device that has them.

use burn::tensor::{Int, Tensor};

use crate::AdamW;
pub use crate::sgd::Sgd;

/// Returns `false`: no tensor is on a GPU.
pub fn is_possible<const D: usize>(_: &Tensor<D>) -> bool {
    false
}

macro_rules! absent {
    ($($name:ident$(<const $dimensions:ident>)?($($argument:ident: $type:ty),*) $(-> $output:ty)?;)*) => {
        $(
            /// Unreachable: no tensor is on a GPU.
            pub fn $name$(<const $dimensions: usize>)?($($argument: $type),*) $(-> $output)? {
                let _ = ($($argument,)*);
                unreachable!("this build has no kernels for GPUs")
            }
        )*
    };
}

absent! {
    fixed<const D>(tensor: Tensor<D>) -> Tensor<D>;
    write<const D>(tensor: &Tensor<D>, values: Vec<f32>);
    write_ints<const D>(tensor: &Tensor<D, Int>, values: Vec<i32>);
    add<const D>(pairs: Vec<(Tensor<D>, Tensor<D>)>);
    assign<const D>(pairs: Vec<(Tensor<D>, Tensor<D>)>);
    clear<const D>(tensors: &[Tensor<D>]);
    put(table: &Tensor<1>, values: Tensor<1>, row: &Tensor<1, Int>);
}

/// Parameter that is updated on a GPU; never made.
pub struct Update;

impl Update {
    /// Unreachable: no tensor is on a GPU.
    pub fn new<const D: usize>(_: &Tensor<D>, _: Tensor<D>, _: &[&Tensor<D>]) -> Self {
        unreachable!("this build has no kernels for GPUs")
    }
}

impl AdamW {
    /// Unreachable: no tensor is on a GPU.
    pub fn step_in_place(&self, _: &[Update], _: &Tensor<1>, _: &Tensor<1>) {
        unreachable!("this build has no kernels for GPUs")
    }
}

impl Sgd {
    /// Unreachable: no tensor is on a GPU.
    pub fn step_in_place(&self, _: &[Update], _: &Tensor<1>, _: &Tensor<1>) {
        unreachable!("this build has no kernels for GPUs")
    }
}
