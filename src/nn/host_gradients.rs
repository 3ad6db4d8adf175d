//! Gradients of parameters that were found in host memory, on their way to an optimiser of Burn.

use burn::module::ParamId;
use burn::optim::GradientsParams;
use burn::tensor::Device;

use super::Tensor;
use super::rows::Rows;

/// One for each parameter.
#[derive(Debug)]
pub struct HostGradients {
    found: GradientsParams,
    plain: Device,
}

impl HostGradients {
    /// None yet. `plain` is the device without autodiff: the CPU.
    pub fn new(plain: Device) -> Self {
        Self { found: GradientsParams::new(), plain }
    }

    /// That of a matrix.
    pub fn add(&mut self, id: ParamId, gradient: Rows) {
        self.found.register(id, gradient.tensor(&self.plain));
    }

    /// That of a vector.
    pub fn add_vector(&mut self, id: ParamId, gradient: Vec<f32>) {
        self.found.register(id, Tensor::<1>::from_floats(gradient.as_slice(), &self.plain));
    }

    /// As an optimiser takes them, or an accumulator.
    pub fn found(self) -> GradientsParams {
        self.found
    }
}
