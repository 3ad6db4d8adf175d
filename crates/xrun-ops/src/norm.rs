//! Norm of several tensors together.

use burn::tensor::Tensor;

use crate::cube::{global_norm, on_cube};

/// Squares of tensors without autodiff, added in the order of the calls.
#[derive(Default)]
pub struct GlobalNorm {
    sum: Option<Tensor<1>>,
    /// Tensors on a GPU, whose squares are added together.
    on_gpu: Vec<Tensor<1>>,
}

impl GlobalNorm {
    /// Adds the squares of a tensor's values.
    pub fn add<const D: usize>(&mut self, tensor: Tensor<D>) {
        on_cube!(&tensor => self.on_gpu.push(tensor.reshape([-1])));
        let square = (tensor.clone() * tensor).sum();
        self.sum = Some(match self.sum.take() {
            Some(sum) => sum + square,
            None => square,
        });
    }

    /// Root of the sum, `[1]` on the device; `None` without tensors.
    pub fn root(self) -> Option<Tensor<1>> {
        global_norm(self.on_gpu).or(self.sum.map(Tensor::sqrt))
    }
}
