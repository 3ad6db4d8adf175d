//! The norm over all gradients, and clipping by it.
//!
//! Burn 0.21 clips each tensor by its own norm; here it is the norm over all of them (Pascanu et al. 2013), computed and
//! applied on the device. The sum is taken in the order of the module, so it is the same in every run.

use burn::module::{AutodiffModule, ModuleVisitor, Param};
use burn::optim::GradientsParams;

use super::{Backend, Tensor};

/// Clips to `most`, if it is given. Returns the gradients and their norm before, `[1]`, still on the device.
pub fn clip<M: AutodiffModule<Backend>>(
    module: &M,
    gradients: GradientsParams,
    most: Option<f64>,
) -> (GradientsParams, Option<Tensor<1>>) {
    let mut squares = Squares { gradients: &gradients, sum: None };
    module.visit(&mut squares);
    let Some(norm) = squares.sum.map(Tensor::sqrt) else { return (gradients, None) };
    let Some(most) = most else { return (gradients, Some(norm)) };
    let factor = (norm.clone().add_scalar(1e-6).recip() * most as f32).clamp_max(1.0);
    let mut scale = Scale { old: gradients, new: GradientsParams::new(), factor };
    module.visit(&mut scale);
    (scale.new, Some(norm))
}

struct Squares<'a> {
    gradients: &'a GradientsParams,
    sum: Option<Tensor<1>>,
}

impl ModuleVisitor<Backend> for Squares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.get::<Backend, D>(param.id) else { return };
        let square = (gradient.clone() * gradient).sum();
        self.sum = Some(match self.sum.take() {
            Some(sum) => sum + square,
            None => square,
        });
    }
}

struct Scale {
    old: GradientsParams,
    new: GradientsParams,
    factor: Tensor<1>,
}

impl ModuleVisitor<Backend> for Scale {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.old.remove::<Backend, D>(param.id) else { return };
        let factor = self.factor.clone().reshape([1; D]);
        self.new.register(param.id, gradient * factor);
    }
}

#[cfg(test)]
mod tests {
    use burn::module::{Module, ParamId};

    use super::super::tests::{autodiff, close, values};
    use super::*;

    #[derive(Module, Debug)]
    struct Two<B: burn::tensor::backend::Backend> {
        one: Param<burn::tensor::Tensor<B, 1>>,
        two: Param<burn::tensor::Tensor<B, 2>>,
    }

    fn clipped(most: Option<f64>) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let device = autodiff();
        let module = Two::<Backend> {
            one: Param::initialized(ParamId::from(1), Tensor::from_floats([1.0, 1.0], &device).require_grad()),
            two: Param::initialized(ParamId::from(2), Tensor::from_floats([[1.0]], &device).require_grad()),
        };
        // Gradients 3, 0 and 4: the norm over all is 5.
        let weights = Tensor::<1>::from_floats([3.0, 0.0], &device);
        let loss = (module.one.val() * weights).sum() + module.two.val().sum().mul_scalar(4.0);
        let gradients = GradientsParams::from_grads(loss.backward(), &module);
        let (gradients, norm) = clip(&module, gradients, most);
        let one = gradients.get::<Backend, 1>(ParamId::from(1)).unwrap();
        let two = gradients.get::<Backend, 2>(ParamId::from(2)).unwrap();
        (values(norm.unwrap()), values(one), values(two))
    }

    #[test]
    fn the_norm_is_over_all_gradients_and_clipping_keeps_their_direction() {
        for (most, scale) in [(None, 1.0), (Some(10.0), 1.0), (Some(1.0), 0.2)] {
            let (norm, one, two) = clipped(most);
            close(&norm, &[5.0], 1e-5);
            close(&one, &[3.0 * scale, 0.0], 1e-5);
            close(&two, &[4.0 * scale], 1e-5);
        }
    }
}
