//! From sums of gradients to what an optimiser takes: divided by what was counted, and clipped by the norm over all.
//!
//! Burn 0.22 clips each tensor by its own norm; here it is the norm over all of them (Pascanu et al. 2013), computed and
//! applied on the device. The sum is taken in the order of the module, so it is the same in every run.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;

use super::Tensor;

/// Divides sums of gradients by `counted`, at least one, and clips to `most`, if it is given. Returns the gradients and
/// their norm before clipping, `[1]`, still on the device.
pub fn mean_and_clip<M: Module>(
    module: &M,
    sums: GradientsParams,
    counted: f64,
    most: Option<f64>,
) -> (GradientsParams, Option<Tensor<1>>) {
    let share = (1.0 / counted.max(1.0)) as f32;
    let mut squares = Squares { gradients: &sums, sum: None };
    module.visit(&mut squares);
    let Some(norm) = squares.sum.map(|sum| sum.sqrt().mul_scalar(share)) else { return (sums, None) };
    let factor = match most {
        Some(most) => (norm.clone().add_scalar(1e-6).recip() * most as f32).clamp_max(1.0).mul_scalar(share),
        None if share == 1.0 => return (sums, Some(norm)),
        None => Tensor::from_floats([share], &norm.device()),
    };
    let mut scale = Scale { old: sums, new: GradientsParams::new(), factor };
    module.visit(&mut scale);
    (scale.new, Some(norm))
}

/// The root of the sum of the squares of some norms.
pub fn norm_of(norms: impl IntoIterator<Item = Tensor<1>>) -> Option<Tensor<1>> {
    let mut norms = norms.into_iter();
    let first = norms.next()?;
    Some(match norms.next() {
        None => first,
        Some(second) => {
            let square = |norm: Tensor<1>| norm.clone() * norm;
            norms.fold(square(first) + square(second), |sum, norm| sum + square(norm)).sqrt()
        }
    })
}

/// Takes out the gradients of some vectors, so that they can have a step of their own.
pub fn take(gradients: &mut GradientsParams, vectors: &[ParamId]) -> GradientsParams {
    let mut taken = GradientsParams::new();
    for id in vectors {
        if let Some(gradient) = gradients.remove::<1>(*id) {
            taken.register(*id, gradient);
        }
    }
    taken
}

/// A container of its own for the same gradients: they share their values.
pub fn shared<M: Module>(module: &M, gradients: &GradientsParams) -> GradientsParams {
    let mut shared = Shared { of: gradients, shared: GradientsParams::new() };
    module.visit(&mut shared);
    shared.shared
}

struct Shared<'a> {
    of: &'a GradientsParams,
    shared: GradientsParams,
}

impl ModuleVisitor for Shared<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.of.get::<D>(param.id) {
            self.shared.register::<D>(param.id, gradient);
        }
    }
}

struct Squares<'a> {
    gradients: &'a GradientsParams,
    sum: Option<Tensor<1>>,
}

impl ModuleVisitor for Squares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.get::<D>(param.id) else { return };
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

impl ModuleVisitor for Scale {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.old.remove::<D>(param.id) else { return };
        let factor = self.factor.clone().reshape([1; D]);
        self.new.register(param.id, gradient * factor);
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;

    use super::super::tests::{autodiff, close, plain, values};
    use super::*;

    #[derive(Module, Debug)]
    struct Two {
        one: Param<Tensor<1>>,
        two: Param<Tensor<2>>,
    }

    /// Gradients 3, 0 and 4: the norm over all is 5.
    fn gradients() -> (Two, GradientsParams) {
        let device = autodiff();
        let module = Two {
            one: Param::initialized(ParamId::from(1), Tensor::from_floats([1.0, 1.0], &device).require_grad()),
            two: Param::initialized(ParamId::from(2), Tensor::from_floats([[1.0]], &device).require_grad()),
        };
        let weights = Tensor::<1>::from_floats([3.0, 0.0], &device);
        let loss = (module.one.val() * weights).sum() + module.two.val().sum().mul_scalar(4.0);
        let gradients = GradientsParams::from_grads(loss.backward(), &module);
        (module, gradients)
    }

    #[test]
    fn the_norm_is_over_all_gradients_and_clipping_keeps_their_direction() {
        for (counted, most, scale) in [
            (1.0, None, 1.0),
            (0.0, None, 1.0),
            (4.0, None, 0.25),
            (1.0, Some(10.0), 1.0),
            (1.0, Some(1.0), 0.2),
            (4.0, Some(1.0), 0.2),
            (4.0, Some(1.25), 0.25),
        ] {
            let (module, sums) = gradients();
            let (gradients, norm) = mean_and_clip(&module, sums, counted, most);
            let one = gradients.get::<1>(ParamId::from(1)).unwrap();
            let two = gradients.get::<2>(ParamId::from(2)).unwrap();
            close(&values(norm.unwrap()), &[5.0 / f64::max(counted, 1.0) as f32], 1e-5);
            close(&values(one), &[3.0 * scale, 0.0], 1e-5);
            close(&values(two), &[4.0 * scale], 1e-5);
        }
    }

    #[test]
    fn what_is_taken_out_is_no_longer_there() {
        let (_, mut all) = gradients();
        let taken = take(&mut all, &[ParamId::from(1), ParamId::from(7)]);
        assert_eq!((taken.len(), all.len()), (1, 1));
        close(&values(taken.get::<1>(ParamId::from(1)).unwrap()), &[3.0, 0.0], 0.0);
    }

    #[test]
    fn norms_of_parts_make_the_norm_of_all() {
        let norm = |value: f32| Tensor::<1>::from_floats([value], &plain());
        assert!(norm_of([]).is_none());
        close(&values(norm_of([norm(3.0)]).unwrap()), &[3.0], 0.0);
        close(&values(norm_of([norm(3.0), norm(4.0), norm(12.0)]).unwrap()), &[13.0], 1e-5);
    }
}
