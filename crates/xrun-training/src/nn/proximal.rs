//! Proximal term `factor / 2 * |w - w0|²` (FedProx, Li et al. 2020).

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;

use super::Tensor;

/// Parameters at the start of local training, `w0`.
pub struct ProximalAnchor(GradientsParams);

impl ProximalAnchor {
    /// Copy of the current parameters; the tensors are shared until they change.
    pub fn new<M: Module>(module: &M) -> Self {
        let mut start = Self(GradientsParams::new());
        module.visit(&mut start);
        start
    }

    /// Gradients of the proximal term, `factor * (w - w0)`.
    pub fn gradients<M: Module>(&self, module: &M, factor: f64) -> GradientsParams {
        let mut term = ProximalTerm { start: &self.0, factor, gradients: GradientsParams::new() };
        module.visit(&mut term);
        term.gradients
    }
}

impl ModuleVisitor for ProximalAnchor {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.register::<D>(param.id, param.val().inner());
    }
}

struct ProximalTerm<'a> {
    start: &'a GradientsParams,
    factor: f64,
    gradients: GradientsParams,
}

impl ModuleVisitor for ProximalTerm<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(start) = self.start.get::<D>(param.id) {
            let gradient = (param.val().inner() - start).mul_scalar(self.factor);
            self.gradients.register::<D>(param.id, gradient);
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::{Linear, LinearConfig};

    use super::super::flat;
    use super::super::testing::{autodiff, close, values};
    use super::*;

    #[test]
    fn gradients_are_proportional_to_the_distance_and_zero_at_the_start() {
        let network: Linear = LinearConfig::new(2, 1).with_bias(false).init(&autodiff());
        let network = flat::from_host(network, &[1.0, 2.0]);
        let start = ProximalAnchor::new(&network);
        let gradients = |network: &Linear| values(start.gradients(network, 0.5).get::<2>(network.weight.id).unwrap());
        close(&gradients(&network), &[0.0, 0.0], 0.0);
        close(&gradients(&flat::from_host(network.clone(), &[3.0, 2.0])), &[1.0, 0.0], 1e-6);
        assert_eq!(network.num_params(), 2);
    }
}
