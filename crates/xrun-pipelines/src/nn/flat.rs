//! All parameters of a module as one row of numbers on the host, in the order of the module, and back.

use std::ops::Range;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::TensorData;

use super::Tensor;

/// The parameters one after the other, in 32-bit floats. They cross from the device one by one, so that it needs no memory for
/// a second copy.
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

/// The module with other values, which [`to_host`] gave; what was trained still is.
///
/// # Panics
/// When there are fewer numbers than parameters.
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

/// Where each parameter is in the row: its path, such as `pooled.output.weight`, and its numbers.
pub fn places<M: Module>(module: &M) -> Vec<(String, Range<usize>)> {
    let mut places = Places { names: Vec::new(), all: Vec::new(), from: 0 };
    module.visit(&mut places);
    places.all
}

struct Places {
    names: Vec<String>,
    all: Vec<(String, Range<usize>)>,
    from: usize,
}

impl ModuleVisitor for Places {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.names.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.names.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let to = self.from + param.val().shape().num_elements();
        self.all.push((self.names.join("."), self.from..to));
        self.from = to;
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};

    use super::super::tests::{autodiff, values};
    use super::*;

    #[test]
    fn a_module_comes_back_to_the_bit_and_is_still_trained() {
        let made = || -> Linear { LinearConfig::new(3, 2).init(&autodiff()) };
        let (one, other) = (made(), made());
        let row = to_host(&one);
        assert_eq!(row.len(), 8);
        let back = from_host(other.clone(), &row);
        assert_eq!(values(back.weight.val()), values(one.weight.val()));
        assert_eq!(back.weight.id, other.weight.id, "the optimiser finds it again");
        assert!(back.weight.val().is_require_grad());
        assert_eq!(places(&one), [("weight".to_owned(), 0..6), ("bias".to_owned(), 6..8)]);
    }
}
