//! AdamW and SGD with the settings of the experiment, and a state that can be saved.
//!
//! Burn has one weight decay for all parameters. [`ByShape`] adds two parameter groups, as in PyTorch, by the number of dimensions.
//! For a separate learning rate the caller takes two steps, each with a part of the gradients: an optimiser updates only parameters
//! that have a gradient, and has a state for each.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param, ParamGroup};
use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{
    self, DynOptimizer, DynState, GradientsParams, Optimizer as Rule, SgdConfig, StateSink, StateSource,
};
use burn::store::RecordError;
use burn::tensor::kind::BridgeTensor;
use burn::tensor::{Bytes, Device};

use xrun_ops::{AdamW, in_place};

use super::Tensor;
use super::update_clock::{InPlace, TIME, UpdateClock};
use xrun_core::files::layout;
use xrun_core::settings::sections::{AdamW as AdamWSettings, Decay, Optimizer};
use xrun_core::task::TaskError;

/// Optimiser of a module.
#[derive(Clone)]
pub struct ModuleOptimizer {
    rule: optim::ModuleOptimizer,
    /// Clock of updates in place; `None` for an optimiser that makes new tensors.
    clock: Option<Arc<UpdateClock>>,
}

/// Update rule for parameters of two or more dimensions, and one for the others.
#[derive(Clone)]
struct ByShape<O> {
    matrices: O,
    others: O,
}

impl<O: Rule> Rule for ByShape<O> {
    type State<const D: usize> = O::State<D>;

    fn step<const D: usize>(
        &self,
        learning_rate: f64,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let rule = if D >= 2 { &self.matrices } else { &self.others };
        rule.step(learning_rate, parameter, gradient, state)
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        O::to_device(state, device)
    }
}

/// Update rule that loads its state to the device of the run. Burn 0.22 loads it to its default device, which in a build with CUDA
/// is the first GPU, whether there is one or not.
struct OnDevice<O> {
    rule: O,
    inner: Device,
    clock: Option<Arc<UpdateClock>>,
}

impl<O: Rule> DynOptimizer for OnDevice<O> {
    fn step_dyn(
        &self,
        rank: usize,
        learning_rate: f64,
        parameter: BridgeTensor,
        gradient: BridgeTensor,
        state: Option<DynState>,
    ) -> (BridgeTensor, Option<DynState>) {
        self.rule.step_dyn(rank, learning_rate, parameter, gradient, state)
    }

    fn to_device_dyn(&self, state: DynState, device: &Device) -> DynState {
        self.rule.to_device_dyn(state, device)
    }

    fn state_flatten(&self, prefix: &str, state: &DynState, out: &mut StateSink) {
        self.rule.state_flatten(prefix, state, out);
        if let Some(time) = self.clock.as_ref().and_then(|clock| clock.time(prefix)) {
            let name = format!("{prefix}.{TIME}");
            let found = out.scalars.iter_mut().filter(|(known, _)| *known == name);
            found.for_each(|(_, value)| *value = time.into());
        }
    }

    fn state_unflatten(&self, rank: usize, prefix: &str, from: &mut StateSource, _: &Device) -> Option<DynState> {
        if let (Some(clock), Some(time)) = (&self.clock, from.take_scalar(prefix, TIME)) {
            clock.loaded(prefix, usize::try_from(time).ok()?);
        }
        self.rule.state_unflatten(rank, prefix, from, &self.inner)
    }
}

/// Optimiser whose weight decay depends on the shape of a parameter. `rule` returns the update rule for a weight decay.
fn by_shape<O: Rule>(
    decay: Decay,
    weight_decay: f64,
    inner: &Device,
    clock: Option<&Arc<UpdateClock>>,
    rule: impl Fn(f64) -> O,
) -> optim::ModuleOptimizer {
    let others_decay = if decay == Decay::All { weight_decay } else { 0.0 };
    let rule = ByShape { matrices: rule(weight_decay), others: rule(others_decay) };
    let on_device = OnDevice { rule: rule.clone(), inner: inner.clone(), clock: clock.cloned() };
    optim::ModuleOptimizer::from(rule).with_group(ParamGroup::all(), on_device, None)
}

impl ModuleOptimizer {
    /// Optimiser without state. `inner` is the device without autodiff, on which the state is. With a clock, parameters and state are
    /// updated in place.
    pub fn new(settings: &Optimizer, inner: &Device, clock: Option<Arc<UpdateClock>>) -> Self {
        let rule = match (settings, &clock) {
            (Optimizer::AdamW(adamw), None) => {
                by_shape(adamw.decay_parameters, adamw.weight_decay, inner, None, |decay| adamw_rule(adamw, decay))
            }
            (Optimizer::AdamW(adamw), Some(clock)) => {
                by_shape(adamw.decay_parameters, adamw.weight_decay, inner, Some(clock), |decay| InPlace {
                    rule: adamw_rule(adamw, decay),
                    clock: clock.clone(),
                })
            }
            (Optimizer::Sgd(sgd), None) => {
                // No dampening, as in PyTorch; Burn's default is 0.1.
                let momentum = (sgd.momentum > 0.0).then(|| {
                    MomentumConfig::new().with_momentum(sgd.momentum).with_dampening(0.0).with_nesterov(sgd.nesterov)
                });
                by_shape(sgd.decay_parameters, sgd.weight_decay, inner, None, |weight_decay| {
                    let decay = (weight_decay > 0.0).then(|| WeightDecayConfig::new(weight_decay as f32));
                    SgdConfig::new().with_momentum(momentum.clone()).with_weight_decay(decay).build()
                })
            }
            (Optimizer::Sgd(sgd), Some(clock)) => {
                by_shape(sgd.decay_parameters, sgd.weight_decay, inner, Some(clock), |weight_decay| InPlace {
                    rule: in_place::Sgd {
                        momentum: sgd.momentum as f32,
                        nesterov: sgd.nesterov,
                        weight_decay: weight_decay as f32,
                    },
                    clock: clock.clone(),
                })
            }
        };
        Self { rule, clock }
    }

    /// Updates the parameters that have a gradient. The others and their state do not change.
    pub fn step<M: Module>(&mut self, learning_rate: f64, module: M, gradients: GradientsParams) -> M {
        if let Some(clock) = &self.clock {
            let mut ids = WithGradient { gradients: &gradients, ids: Vec::new() };
            module.visit(&mut ids);
            clock.tick(learning_rate, &ids.ids);
        }
        let module = self.rule.step(learning_rate, module, gradients);
        if let Some(clock) = &self.clock {
            clock.apply();
        }
        module
    }

    /// Writes the state into the directory of a checkpoint.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, directory: &Path) -> Result<(), TaskError> {
        let path = directory.join(layout::OPTIMIZER);
        self.rule.save(&path).map_err(|error| not_written(&path, &error))
    }

    /// Copies the state to the host.
    ///
    /// # Errors
    /// The transfer from the device fails.
    pub fn to_bytes(&self) -> Result<Vec<u8>, TaskError> {
        self.rule.into_bytes().map(|bytes| bytes.to_vec()).map_err(|error| TaskError::Device(error.to_string()))
    }

    /// Replaces the state by one that [`Self::to_bytes`] returned.
    ///
    /// # Errors
    /// The state belongs to another optimiser or module.
    pub fn with_bytes(self, bytes: Vec<u8>) -> Result<Self, TaskError> {
        let failed = |error: RecordError| TaskError::Device(error.to_string());
        self.emptied(|rule| rule.from_bytes(Bytes::from_bytes_vec(bytes)).map_err(failed))
    }

    /// Reads the state that [`Self::save`] wrote.
    ///
    /// # Errors
    /// The file is missing or invalid.
    pub fn load(self, directory: &Path) -> Result<Self, TaskError> {
        let path = directory.join(layout::OPTIMIZER);
        self.emptied(|rule| rule.load(&path).map_err(|error| TaskError::file(&path, error)))
    }

    /// Replaces the state.
    fn emptied(
        self,
        load: impl FnOnce(optim::ModuleOptimizer) -> Result<optim::ModuleOptimizer, TaskError>,
    ) -> Result<Self, TaskError> {
        if let Some(clock) = &self.clock {
            clock.clear();
        }
        Ok(Self { rule: load(self.rule)?, clock: self.clock })
    }
}

fn adamw_rule(settings: &AdamWSettings, weight_decay: f64) -> AdamW {
    let AdamWSettings { beta_1, beta_2, epsilon, .. } = settings;
    AdamW::new(*beta_1 as f32, *beta_2 as f32, *epsilon as f32, weight_decay as f32)
}

/// Ids of the parameters that have a gradient, in the order of the module.
struct WithGradient<'a> {
    gradients: &'a GradientsParams,
    ids: Vec<u64>,
}

impl ModuleVisitor for WithGradient<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.gradients.get::<D>(param.id).is_some() {
            self.ids.push(param.id.val());
        }
    }
}

/// Error with the reason of the operating system. Burn drops it, so another write is tried to get it.
fn not_written(path: &Path, error: &RecordError) -> TaskError {
    let write_more = || {
        let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
        file.write_all(&[0; PROBE_BYTES])?;
        file.sync_data()
    };
    match write_more() {
        Err(system) => TaskError::file(path, format!("cannot be written: {system}")),
        Ok(()) => TaskError::file(path, format!("cannot be written: {error}")),
    }
}

/// Size of the write that is tried: too large for a full disk. The incomplete checkpoint is removed afterwards.
const PROBE_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use burn::module::{Module, ParamId};
    use burn::tensor::TensorData;
    use serde_json::Value;

    use super::super::testing::{autodiff, close, json_numbers, plain, values};
    use super::*;
    use xrun_core::settings::sections::Sgd as SgdSettings;

    #[derive(Module, Debug)]
    struct Three {
        vector: Param<Tensor<1>>,
        matrix: Param<Tensor<2>>,
        kernel: Param<Tensor<4>>,
    }

    fn parameter<const D: usize>(id: u64, value: &Value, shape: [usize; D]) -> Param<Tensor<D>> {
        let tensor = Tensor::from_data(TensorData::new(json_numbers(value), shape), &autodiff());
        Param::initialized(ParamId::from(id), tensor.require_grad())
    }

    fn gradient<const D: usize>(id: u64, value: &Value, shape: [usize; D], into: &mut GradientsParams) {
        into.register(ParamId::from(id), Tensor::<D>::from_data(TensorData::new(json_numbers(value), shape), &plain()));
    }

    /// PyTorch's optimisers with two parameter groups, `tests/reference/optimizer.py`.
    #[test]
    fn steps_match_pytorch_with_parameter_groups() {
        let all: Value = serde_json::from_str(include_str!("../../../../tests/reference/optimizer.json")).unwrap();
        for case in all["cases"].as_array().unwrap() {
            let number = |name: &str| case[name].as_f64().unwrap();
            let decay = if case["decay"] == "all" { Decay::All } else { Decay::Matrices };
            let settings = match case["optimizer"].as_str().unwrap() {
                "adamw" => Optimizer::AdamW(AdamWSettings {
                    weight_decay: number("weight_decay"),
                    decay_parameters: decay,
                    ..AdamWSettings::default()
                }),
                _ => Optimizer::Sgd(SgdSettings {
                    weight_decay: number("weight_decay"),
                    nesterov: case["nesterov"].as_bool().unwrap(),
                    decay_parameters: decay,
                    ..SgdSettings::default()
                }),
            };
            let start = &all["parameters"];
            let mut module = Three {
                vector: parameter(1, &start["vector"], [3]),
                matrix: parameter(2, &start["matrix"], [2, 3]),
                kernel: parameter(3, &start["kernel"], [2, 1, 2, 2]),
            };
            let mut optimizer = ModuleOptimizer::new(&settings, &plain(), None);
            for (step, expected) in all["gradients"].as_array().unwrap().iter().zip(case["after"].as_array().unwrap()) {
                let mut gradients = GradientsParams::new();
                gradient(1, &step["vector"], [3], &mut gradients);
                gradient(2, &step["matrix"], [2, 3], &mut gradients);
                gradient(3, &step["kernel"], [2, 1, 2, 2], &mut gradients);
                module = optimizer.step(number("learning_rate"), module, gradients);
                close(&values(module.vector.val()), &json_numbers(&expected["vector"]), 1e-5);
                close(&values(module.matrix.val()), &json_numbers(&expected["matrix"]), 1e-5);
                close(&values(module.kernel.val()), &json_numbers(&expected["kernel"]), 1e-5);
            }
        }
    }
}
