//! Parameters of a module as one flat vector on the host, in the order of the module.

use std::ops::Range;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::TensorData;
use xrun_ops::in_place;

use super::Tensor;

/// Copies all parameters to the host as 32-bit floats. They are transferred one by one, so that the device needs no memory for a
/// second copy.
pub fn to_host<M: Module>(module: &M) -> Vec<f32> {
    let mut values = Values(Vec::with_capacity(module.num_params()));
    module.visit(&mut values);
    values.0
}

struct Values(Vec<f32>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.extend(param.val().into_data().iter::<f32>());
    }
}

/// Module with the values that [`to_host`] returned. Parameters that require gradients still do.
///
/// # Panics
/// If there are fewer values than parameters.
pub fn from_host<M: Module>(module: M, values: &[f32]) -> M {
    module.map(&mut Replace { values, from: 0 })
}

struct Replace<'a> {
    values: &'a [f32],
    from: usize,
}

impl ModuleMapper for Replace<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let (shape, trained) = (tensor.shape(), tensor.is_require_grad());
        let to = self.from + shape.num_elements();
        let data = TensorData::new(self.values[self.from..to].to_vec(), shape);
        self.from = to;
        let tensor = Tensor::from_data(data, &tensor.device());
        Param::from_mapped_value(id, tensor.set_require_grad(trained), mapper)
    }
}

/// Overwrites the parameters of a module by values that [`to_host`] returned. Each parameter has memory of its own, which other tensors
/// share afterwards as before.
///
/// # Panics
/// If there are fewer values than parameters.
pub fn overwrite<M: Module>(module: &M, values: &[f32]) {
    module.visit(&mut Overwrite(values));
}

struct Overwrite<'a>(&'a [f32]);

impl ModuleVisitor for Overwrite<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val().inner();
        let (own, rest) = self.0.split_at(tensor.shape().num_elements());
        in_place::write(&tensor, own.to_vec());
        self.0 = rest;
    }
}

/// Path of each parameter, such as `pooled.output.weight`, and its range in the flat vector.
pub fn parameter_ranges<M: Module>(module: &M) -> Vec<(String, Range<usize>)> {
    let mut ranges = Ranges { path: Vec::new(), found: Vec::new(), from: 0 };
    module.visit(&mut ranges);
    ranges.found
}

struct Ranges {
    path: Vec<String>,
    found: Vec<(String, Range<usize>)>,
    from: usize,
}

impl ModuleVisitor for Ranges {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let to = self.from + param.val().shape().num_elements();
        self.found.push((self.path.join("."), self.from..to));
        self.from = to;
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};

    use super::super::testing::{autodiff, values};
    use super::*;

    #[test]
    fn a_round_trip_is_exact_and_keeps_parameters_trainable() {
        let made = || -> Linear { LinearConfig::new(3, 2).init(&autodiff()) };
        let (one, other) = (made(), made());
        let flat = to_host(&one);
        assert_eq!(flat.len(), 8);
        let restored = from_host(other.clone(), &flat);
        assert_eq!(values(restored.weight.val()), values(one.weight.val()));
        assert_eq!(restored.weight.id, other.weight.id, "the key of the optimiser's state");
        assert!(restored.weight.val().is_require_grad());
        assert_eq!(parameter_ranges(&one), [("weight".to_owned(), 0..6), ("bias".to_owned(), 6..8)]);
    }
}
