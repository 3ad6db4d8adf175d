//! Reproducible parameter ids and initial values, which depend on the seed alone.
//!
//! Burn's parameter ids are random and are the keys of the optimiser's state: a state saved by one process would not match the
//! parameters of another. Its random number generator is global and differs between devices.

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::tensor::{DType, TensorData};

use super::Tensor;
use super::graph::autodiff_like;
use xrun_core::seed::{generator, normal};

/// Numbers all parameters in the order of the module and draws matrices and kernels from a normal distribution. Vectors whose
/// elements are equal (scales of 1, shifts of 0) keep their values; biases, which Burn draws from its own generator, become 0.
pub fn initialise<M: Module>(module: M, seed: u32, deviation: Deviation) -> M {
    module.map(&mut Initialise { seed, next: 1, deviation, names: Vec::new() })
}

/// Size of all parameters in bytes, which is also that of their gradients.
pub fn bytes<M: Module>(module: &M) -> u64 {
    (module.num_params() * size_of::<f32>()) as u64
}

/// Converts all parameters to 32-bit floats.
pub fn single_precision<M: Module>(module: M) -> M {
    module.map(&mut SinglePrecision)
}

struct SinglePrecision;

impl ModuleMapper for SinglePrecision {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        if tensor.dtype() == DType::F32 {
            return Param::from_mapped_value(id, tensor, mapper);
        }
        let trained = tensor.is_require_grad();
        let tensor = autodiff_like(tensor.clone().inner().cast(DType::F32), &tensor).set_require_grad(trained);
        Param::from_mapped_value(id, tensor, mapper)
    }
}

struct Initialise {
    seed: u32,
    next: u64,
    deviation: Deviation,
    /// Path of the current parameter, from the outermost module on.
    names: Vec<String>,
}

/// Standard deviation of initial values.
#[derive(Clone, Copy, Debug)]
pub enum Deviation {
    /// One for all, 0.02 in GPT-2.
    Fixed(f64),
    /// Variance 2 / fan-in (He et al. 2015), for kernels `[outputs, inputs, …]`.
    FanIn,
    /// Variance 1 / inputs (LeCun et al. 1998) for matrices `[inputs, outputs]`, as of Burn's linear layers between normalisations; as
    /// [`Self::FanIn`] for kernels.
    Inputs,
}

impl Deviation {
    fn for_shape(self, shape: &[usize]) -> f64 {
        match (self, shape) {
            (Self::Fixed(deviation), _) => deviation,
            (Self::Inputs, [inputs, _]) => (1.0 / (*inputs).max(1) as f64).sqrt(),
            _ => (2.0 / shape[1..].iter().product::<usize>().max(1) as f64).sqrt(),
        }
    }
}

/// Field name of biases in Burn's modules.
const BIAS: &str = "bias";

impl ModuleMapper for Initialise {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.names.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.names.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let number = self.next;
        self.next += 1;
        let (_, tensor, mapper) = param.consume();
        let trained = tensor.is_require_grad();
        let tensor = match D {
            0 | 1 => constant_or_zeros(tensor, self.names.last().is_some_and(|name| name == BIAS)),
            _ => {
                let shape = tensor.dims();
                let scale = self.deviation.for_shape(&shape);
                let random = &mut generator(self.seed, "weights", number);
                let values: Vec<f32> = (0..shape.iter().product()).map(|_| (normal(random) * scale) as f32).collect();
                Tensor::from_data(TensorData::new(values, shape), &tensor.device())
            }
        };
        Param::from_mapped_value(ParamId::from(number), tensor.set_require_grad(trained), mapper)
    }
}

fn constant_or_zeros<const D: usize>(tensor: Tensor<D>, is_bias: bool) -> Tensor<D> {
    let values: Vec<f32> = tensor.to_data().iter::<f32>().collect();
    // A bias of one element is constant, too, and drawn by Burn.
    match values.iter().all(|value| *value == values[0]) && !(is_bias && values.len() == 1) {
        true => tensor,
        false => Tensor::zeros(tensor.shape(), &tensor.device()),
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};

    use super::super::testing::{autodiff, values};
    use super::*;

    #[test]
    fn no_value_drawn_by_burn_remains_not_even_a_bias_of_one_element() {
        let made = || -> Linear { initialise(LinearConfig::new(3, 1).init(&autodiff()), 7, Deviation::FanIn) };
        let (one, other) = (made(), made());
        assert_eq!(values(one.weight.val()), values(other.weight.val()));
        assert_eq!(values(one.bias.unwrap().val()), [0.0]);
    }
}
