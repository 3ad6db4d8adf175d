//! AdamW (Loshchilov and Hutter 2019) in one pass over a parameter, its gradient and its moments.
//!
//! On the CPU the bits are those of burn-optim, which makes fifteen passes.

use burn::optim::{AdamW as PlainAdamW, AdamWConfig, AdamWState, AdaptiveMomentumState, Optimizer};
use burn::tensor::{Device, Tensor};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use crate::cpu_kernels::is_fused;
use crate::cube::on_cube;
use crate::flex::{contiguous, shape, tensor, values, writable};
use crate::simd::vectorize;

/// Number of values that a thread processes at a time.
const CHUNK: usize = 1 << 14;

/// Update rule of AdamW, with the state of burn-optim's.
#[derive(Clone)]
pub struct AdamW {
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    pub(crate) weight_decay: f32,
    plain: PlainAdamW,
}

/// Factors of one update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factors {
    /// Decay rates of the first and of the second moment.
    pub betas: [f32; 2],
    /// `1 − β` of both.
    pub news: [f32; 2],
    /// Bias corrections `1 − βᵗ` of both.
    pub corrections: [f32; 2],
    pub epsilon: f32,
    /// `1 − learning rate · weight decay`.
    pub decay: f32,
    pub learning_rate: f32,
}

impl AdamW {
    /// Rule with these constants.
    pub fn new(beta_1: f32, beta_2: f32, epsilon: f32, weight_decay: f32) -> Self {
        let plain = AdamWConfig::new()
            .with_beta_1(beta_1)
            .with_beta_2(beta_2)
            .with_epsilon(epsilon)
            .with_weight_decay(weight_decay)
            .build();
        Self { beta_1, beta_2, epsilon, weight_decay, plain }
    }

    /// Scalars of step `time`, counted from 1: learning rate, `1 / (1 − β₁ᵗ)`, `1 / (1 − β₂ᵗ)`.
    pub fn scalars(&self, learning_rate: f64, time: usize) -> [f32; 3] {
        let [first, second] = self.factors(learning_rate, time).corrections;
        [learning_rate as f32, first.recip(), second.recip()]
    }

    /// Factors of step `time`, counted from 1.
    pub(crate) fn factors(&self, learning_rate: f64, time: usize) -> Factors {
        let betas = [self.beta_1, self.beta_2];
        Factors {
            betas,
            news: betas.map(|beta| 1.0 - beta),
            corrections: betas.map(|beta| 1.0 - beta.powi(time as i32)),
            epsilon: self.epsilon,
            decay: (1.0 - learning_rate * f64::from(self.weight_decay)) as f32,
            learning_rate: learning_rate as f32,
        }
    }
}

impl Optimizer for AdamW {
    type State<const D: usize> = AdamWState<D>;

    fn step<const D: usize>(
        &self,
        learning_rate: f64,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<AdamWState<D>>,
    ) -> (Tensor<D>, Option<AdamWState<D>>) {
        let time = state.as_ref().map_or(0, |state| state.momentum.time) + 1;
        let factors = self.factors(learning_rate, time);
        let moments =
            |state: Option<AdamWState<D>>| state.map(|state| [state.momentum.moment_1, state.momentum.moment_2]);
        let updated = |(parameter, [first, second]): (Tensor<D>, [Tensor<D>; 2])| {
            (parameter, Some(AdamWState::new(AdaptiveMomentumState::new(time, first, second))))
        };
        on_cube!(&parameter => updated(crate::cube::adamw(parameter, gradient, moments(state), factors, self.weight_decay)));
        if is_fused(&parameter) {
            return updated(on_cpu(parameter, gradient, moments(state), factors));
        }
        self.plain.step(learning_rate, parameter, gradient, state)
    }

    fn to_device<const D: usize>(state: AdamWState<D>, device: &Device) -> AdamWState<D> {
        PlainAdamW::to_device(state, device)
    }
}

/// Returns the updated parameter and moments.
fn on_cpu<const D: usize>(
    parameter: Tensor<D>,
    gradient: Tensor<D>,
    moments: Option<[Tensor<D>; 2]>,
    factors: Factors,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    let gradient = contiguous(memory(gradient));
    let mut parameter = writable(memory(parameter));
    let [mut first, mut second] = match moments {
        Some(moments) => moments.map(|moment| writable(memory(moment))),
        None => [0, 1].map(|_| tensor(vec![0.0; values(&gradient).len()], shape(&gradient))),
    };
    let chunks = parameter.storage_mut::<f32>().par_chunks_mut(CHUNK).zip(values(&gradient).par_chunks(CHUNK));
    let moments =
        first.storage_mut::<f32>().par_chunks_mut(CHUNK).zip(second.storage_mut::<f32>().par_chunks_mut(CHUNK));
    chunks.zip(moments).for_each(|((parameter, gradient), (first, second))| {
        decay(gradient, first, second, factors);
        apply(parameter, first, second, factors);
    });
    let tensor = Tensor::from_primitive::<Flex>;
    (tensor(parameter), [tensor(first), tensor(second)])
}

fn memory<const D: usize>(tensor: Tensor<D>) -> FlexTensor {
    let tensor = tensor.try_into_primitive::<Flex>();
    tensor.unwrap_or_else(|error| unreachable!("parameters, gradients and moments are on the CPU: {error:?}"))
}

fn decay(gradient: &[f32], first: &mut [f32], second: &mut [f32], factors: Factors) {
    vectorize(
        #[inline(always)]
        || {
            for ((gradient, first), second) in gradient.iter().zip(first).zip(second) {
                *first = *first * factors.betas[0] + gradient * factors.news[0];
                *second = *second * factors.betas[1] + gradient * gradient * factors.news[1];
            }
        },
    )
}

fn apply(parameter: &mut [f32], first: &[f32], second: &[f32], factors: Factors) {
    vectorize(
        #[inline(always)]
        || {
            let [first_correction, second_correction] = factors.corrections;
            for ((parameter, first), second) in parameter.iter_mut().zip(first).zip(second) {
                let deviation = (second / second_correction).sqrt() + factors.epsilon;
                let delta = first / first_correction / deviation;
                *parameter = *parameter * factors.decay - delta * factors.learning_rate;
            }
        },
    )
}
