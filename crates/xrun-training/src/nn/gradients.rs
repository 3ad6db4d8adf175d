//! Averaging of summed gradients and clipping by their global norm (Pascanu et al. 2013).
//!
//! Burn 0.22 clips each tensor by its own norm. Here the norm is over all of them, computed and applied on the device. The squares
//! are summed in the order of the module: the result is the same in every run.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Gradients;
use xrun_ops::GlobalNorm;

use super::step::TrainState;
use super::{Tensor, parameters};
use xrun_core::bounded::leak_buffer::LeakBuffer;
use xrun_core::task::TaskError;

/// Divisor of sums of gradients.
#[derive(Clone, Copy, Debug)]
pub enum Divisor<'a> {
    /// Number; below 1 it counts as 1.
    Host(f64),
    /// Its reciprocal on the device, `[1]`.
    OnDevice(&'a Tensor<1>),
}

impl Divisor<'_> {
    fn divide(self, tensor: Tensor<1>) -> Tensor<1> {
        match self {
            Self::Host(divisor) => tensor.mul_scalar(reciprocal(divisor)),
            Self::OnDevice(scale) => tensor * scale.clone(),
        }
    }
}

fn reciprocal(divisor: f64) -> f32 {
    (1.0 / divisor.max(1.0)) as f32
}

/// Divides sums of gradients by `divisor` and clips them to the norm `max_norm`, if given. Returns the gradients and
/// their norm before clipping, `[1]`, on the device; `None` without gradients.
pub fn mean_and_clip<M: Module>(
    module: &M,
    sums: GradientsParams,
    divisor: Divisor<'_>,
    max_norm: Option<f64>,
) -> (GradientsParams, Option<Tensor<1>>) {
    let Some((norm, factor)) = norm_and_factor(module, &sums, divisor, max_norm) else { return (sums, None) };
    let Some(factor) = factor else { return (sums, Some(norm)) };
    let mut scale = Scale { old: sums, new: GradientsParams::new(), factor };
    module.visit(&mut scale);
    (scale.new, Some(norm))
}

/// Norm of gradients before clipping, and the factor that divides and clips their sums, `None` for 1, each `[1]` on the device; `None`
/// without gradients.
pub fn norm_and_factor<M: Module>(
    module: &M,
    sums: &GradientsParams,
    divisor: Divisor<'_>,
    max_norm: Option<f64>,
) -> Option<(Tensor<1>, Option<Tensor<1>>)> {
    let mut squares = Squares { gradients: sums, norm: GlobalNorm::default() };
    module.visit(&mut squares);
    let norm = divisor.divide(squares.norm.root()?);
    let factor = match (max_norm, divisor) {
        (Some(max), _) => Some(divisor.divide((norm.clone().add_scalar(1e-6).recip() * max as f32).clamp_max(1.0))),
        (None, Divisor::OnDevice(scale)) => Some(scale.clone()),
        (None, Divisor::Host(divisor)) if reciprocal(divisor) == 1.0 => None,
        (None, Divisor::Host(divisor)) => Some(Tensor::from_floats([reciprocal(divisor)], &norm.device())),
    };
    Some((norm, factor))
}

/// Norm of several sets of gradients together: the root of the sum of their squared norms; `None` without any.
pub fn combined_norm(norms: impl IntoIterator<Item = Tensor<1>>) -> Option<Tensor<1>> {
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

/// Gradients of a loss, `[1]`, whose graph is freed. Not inlined: call stacks of allocations show the backward pass, also in
/// threads that do nothing else.
#[inline(never)]
pub fn backward(loss: Tensor<1>) -> Gradients {
    let gradients = loss.backward();
    // After the call, which is not the last one then and leaves this function in the stack.
    drop(loss);
    gradients
}

/// Removes and returns the gradients of some vectors, which then have an update of their own.
pub fn take(gradients: &mut GradientsParams, vectors: &[ParamId]) -> GradientsParams {
    let mut taken = GradientsParams::new();
    for id in vectors {
        if let Some(gradient) = gradients.remove::<1>(*id) {
            taken.register(*id, gradient);
        }
    }
    taken
}

/// Removes and returns the gradients of the parameters of a module, which then have an update of their own.
pub fn take_module<M: Module>(gradients: &mut GradientsParams, module: &M) -> GradientsParams {
    let mut take = Take { from: gradients, taken: GradientsParams::new() };
    module.visit(&mut take);
    take.taken
}

struct Take<'a> {
    from: &'a mut GradientsParams,
    taken: GradientsParams,
}

impl ModuleVisitor for Take<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.from.remove::<D>(param.id) {
            self.taken.register(param.id, gradient);
        }
    }
}

/// Keeps the gradients of a step in a leak: a new container, whose tensors are shared with the optimiser's.
///
/// # Errors
/// The network was lost.
pub fn leak_gradients<M: Module>(
    trained: &TrainState<M>,
    gradients: &GradientsParams,
    leak: &mut LeakBuffer<GradientsParams>,
) -> Result<(), TaskError> {
    let network = trained.network()?;
    let bytes = || parameters::bytes(network);
    leak.keep_measured(|| trained.device.in_use(), bytes, || copy(network, gradients));
    Ok(())
}

/// Adds a loss, `[1]`, to the sum in a leak after its backward pass, as a progress line does that shows the mean of the losses.
#[inline(never)]
pub fn leak_loss(in_use: impl Fn() -> u64, sum: &mut LeakBuffer<Tensor<1>>, loss: impl FnOnce() -> Tensor<1>) {
    if sum.is_on() {
        let loss = loss();
        drop(loss.clone().backward());
        sum.replace_measured(in_use, |sum| match sum {
            Some(sum) => sum.clone() + loss,
            None => loss,
        });
    }
}

fn copy<M: Module>(module: &M, gradients: &GradientsParams) -> GradientsParams {
    let mut copy = Copy { source: gradients, copy: GradientsParams::new() };
    module.visit(&mut copy);
    copy.copy
}

struct Copy<'a> {
    source: &'a GradientsParams,
    copy: GradientsParams,
}

impl ModuleVisitor for Copy<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.source.get::<D>(param.id) {
            self.copy.register::<D>(param.id, gradient);
        }
    }
}

struct Squares<'a> {
    gradients: &'a GradientsParams,
    norm: GlobalNorm,
}

impl ModuleVisitor for Squares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            self.norm.add(gradient);
        }
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

    use super::super::testing::{autodiff, close, plain, values};
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
        for (divisor, max_norm, scale) in [
            (1.0, None, 1.0),
            (0.0, None, 1.0),
            (4.0, None, 0.25),
            (1.0, Some(10.0), 1.0),
            (1.0, Some(1.0), 0.2),
            (4.0, Some(1.0), 0.2),
            (4.0, Some(1.25), 0.25),
        ] {
            let (module, sums) = gradients();
            let (gradients, norm) = mean_and_clip(&module, sums, Divisor::Host(divisor), max_norm);
            let one = gradients.get::<1>(ParamId::from(1)).unwrap();
            let two = gradients.get::<2>(ParamId::from(2)).unwrap();
            close(&values(norm.unwrap()), &[5.0 / f64::max(divisor, 1.0) as f32], 1e-5);
            close(&values(one), &[3.0 * scale, 0.0], 1e-5);
            close(&values(two), &[4.0 * scale], 1e-5);
        }
    }

    #[test]
    fn taken_gradients_are_removed() {
        let (_, mut all) = gradients();
        let taken = take(&mut all, &[ParamId::from(1), ParamId::from(7)]);
        assert_eq!((taken.len(), all.len()), (1, 1));
        close(&values(taken.get::<1>(ParamId::from(1)).unwrap()), &[3.0, 0.0], 0.0);
    }

    #[test]
    fn norms_of_sets_combine_into_the_global_norm() {
        let norm = |value: f32| Tensor::<1>::from_floats([value], &plain());
        assert!(combined_norm([]).is_none());
        close(&values(combined_norm([norm(3.0)]).unwrap()), &[3.0], 0.0);
        close(&values(combined_norm([norm(3.0), norm(4.0), norm(12.0)]).unwrap()), &[13.0], 1e-5);
    }
}
