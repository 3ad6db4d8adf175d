//! Which parameters does a model have? Names by number, and first values that depend on the seed alone.
//!
//! Burn's parameter ids are random and key the optimiser's state, so a state saved by one process would not find its
//! parameters in another. And its generator is global and differs between devices.

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::tensor::{DType, TensorData};

use super::Tensor;
use super::graph::beside;
use xrun_core::seed::{generator, normal};

/// Numbers all parameters in the order of the module, and draws all matrices and kernels: normal with variance
/// 2 / fan-in (He et al. 2015). Vectors of one value (scales of 1, shifts of 0) keep it; biases, which Burn draws from its
/// own generator, become 0.
pub fn initialise<M: Module>(module: M, seed: u32) -> M {
    module.map(&mut Initialise { seed, next: 1, deviation: Deviation::FanIn, names: Vec::new() })
}

/// As [`initialise`], for modules of Burn's linear layers, whose matrices are `[inputs, outputs]`: those have variance 1 / inputs
/// (LeCun et al. 1998), as layers between normalisations do.
pub fn initialise_linear<M: Module>(module: M, seed: u32) -> M {
    module.map(&mut Initialise { seed, next: 1, deviation: Deviation::Inputs, names: Vec::new() })
}

/// As [`initialise`], with one standard deviation for all matrices (GPT-2's is 0.02).
pub fn initialise_normal<M: Module>(module: M, seed: u32, deviation: f64) -> M {
    module.map(&mut Initialise { seed, next: 1, deviation: Deviation::Of(deviation), names: Vec::new() })
}

/// Bytes of all parameters, and so of their gradients.
pub fn bytes<M: Module>(module: &M) -> u64 {
    (module.num_params() * size_of::<f32>()) as u64
}

/// All parameters as 32-bit floats, whatever a file held them as.
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
        let tensor = beside(tensor.clone().inner().cast(DType::F32), &tensor).set_require_grad(trained);
        Param::from_mapped_value(id, tensor, mapper)
    }
}

struct Initialise {
    seed: u32,
    next: u64,
    deviation: Deviation,
    /// Of the parameter at hand, from the outermost module on.
    names: Vec<String>,
}

/// The standard deviation of first values.
#[derive(Clone, Copy, Debug)]
enum Deviation {
    Of(f64),
    /// He's, of a kernel `[outputs, inputs, …]`.
    FanIn,
    /// LeCun's of a matrix `[inputs, outputs]`, and He's of a kernel.
    Inputs,
}

impl Deviation {
    fn of(self, shape: &[usize]) -> f64 {
        match (self, shape) {
            (Self::Of(deviation), _) => deviation,
            (Self::Inputs, [inputs, _]) => (1.0 / (*inputs).max(1) as f64).sqrt(),
            _ => (2.0 / shape[1..].iter().product::<usize>().max(1) as f64).sqrt(),
        }
    }
}

/// What Burn's modules call theirs.
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
            0 | 1 => one_value_or_zeros(tensor, self.names.last().is_some_and(|name| name == BIAS)),
            _ => {
                let shape = tensor.dims();
                let scale = self.deviation.of(&shape);
                let random = &mut generator(self.seed, "weights", number);
                let values: Vec<f32> = (0..shape.iter().product()).map(|_| (normal(random) * scale) as f32).collect();
                Tensor::from_data(TensorData::new(values, shape), &tensor.device())
            }
        };
        Param::from_mapped_value(ParamId::from(number), tensor.set_require_grad(trained), mapper)
    }
}

fn one_value_or_zeros<const D: usize>(tensor: Tensor<D>, is_bias: bool) -> Tensor<D> {
    let values: Vec<f32> = tensor.to_data().iter::<f32>().collect();
    // A bias of one number is of one value, too, and drawn by Burn.
    match values.iter().all(|value| *value == values[0]) && !(is_bias && values.len() == 1) {
        true => tensor,
        false => Tensor::zeros(tensor.shape(), &tensor.device()),
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};

    use super::super::tests::{autodiff, values};
    use super::*;

    #[test]
    fn nothing_is_left_of_what_burn_drew_not_even_a_bias_of_one_number() {
        let made = || -> Linear { initialise(LinearConfig::new(3, 1).init(&autodiff()), 7) };
        let (one, other) = (made(), made());
        assert_eq!(values(one.weight.val()), values(other.weight.val()));
        assert_eq!(values(one.bias.unwrap().val()), [0.0]);
    }
}
