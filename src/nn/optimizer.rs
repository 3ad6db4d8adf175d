//! AdamW and SGD as the file declares them, with a state that can be saved.
//!
//! Burn gives all parameters one weight decay. [`ByShape`] is two optimisers with one state: PyTorch's parameter groups,
//! by the number of dimensions. A learning rate of their own is for the caller: an optimiser moves only parameters that
//! have a gradient and keeps a state for each, so it can take two steps, each with some of the gradients.

use std::io::Write as _;
use std::path::Path;

use burn::module::AutodiffModule;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamW, AdamWConfig, GradientsParams, Optimizer as _, Sgd, SgdConfig, SimpleOptimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, NamedMpkFileRecorder, Recorder};

use super::Backend;
use crate::results::layout;
use crate::settings::sections::{Decay, Optimizer};
use crate::task::TaskError;

/// An optimiser of module `M`.
pub enum ModuleOptimizer<M: AutodiffModule<Backend>> {
    /// AdamW (Loshchilov and Hutter 2019).
    AdamW(OptimizerAdaptor<ByShape<AdamW>, M, Backend>),
    /// Stochastic gradient descent, with momentum where it is asked for.
    Sgd(OptimizerAdaptor<ByShape<Sgd<Backend>>, M, Backend>),
}

/// One rule for parameters of two or more dimensions, and one for the others.
#[derive(Clone)]
pub struct ByShape<O> {
    matrices: O,
    others: O,
}

impl<O: SimpleOptimizer<Backend>> SimpleOptimizer<Backend> for ByShape<O> {
    type State<const D: usize> = O::State<D>;

    fn step<const D: usize>(
        &self,
        learning_rate: f64,
        parameter: super::Tensor<D>,
        gradient: super::Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (super::Tensor<D>, Option<Self::State<D>>) {
        let rule = if D >= 2 { &self.matrices } else { &self.others };
        rule.step(learning_rate, parameter, gradient, state)
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &burn::DispatchDevice) -> Self::State<D> {
        O::to_device(state, device)
    }
}

/// `rule` makes an optimiser of a weight decay.
fn by_shape<O>(decay: Decay, weight_decay: f64, rule: impl Fn(f64) -> O) -> ByShape<O> {
    let of_others = if decay == Decay::All { weight_decay } else { 0.0 };
    ByShape { matrices: rule(weight_decay), others: rule(of_others) }
}

/// Full precision: a loaded state continues bit for bit.
type StateRecorder = NamedMpkFileRecorder<FullPrecisionSettings>;

/// The same in memory, on the host.
type BytesRecorder = BinBytesRecorder<FullPrecisionSettings>;

impl<M: AutodiffModule<Backend>> ModuleOptimizer<M> {
    /// One without a past.
    pub fn new(settings: &Optimizer) -> Self {
        match settings {
            Optimizer::AdamW(adamw) => {
                let rule = |weight_decay: f64| {
                    AdamWConfig::new()
                        .with_beta_1(adamw.beta_1 as f32)
                        .with_beta_2(adamw.beta_2 as f32)
                        .with_epsilon(adamw.epsilon as f32)
                        .with_weight_decay(weight_decay as f32)
                        .build()
                };
                Self::AdamW(OptimizerAdaptor::from(by_shape(adamw.decay, adamw.weight_decay, rule)))
            }
            Optimizer::Sgd(sgd) => {
                // Without dampening, as PyTorch has it; Burn's default is 0.1.
                let momentum = (sgd.momentum > 0.0).then(|| {
                    MomentumConfig::new().with_momentum(sgd.momentum).with_dampening(0.0).with_nesterov(sgd.nesterov)
                });
                let rule = |weight_decay: f64| -> Sgd<Backend> {
                    let decay = (weight_decay > 0.0).then(|| WeightDecayConfig::new(weight_decay as f32));
                    SgdConfig::new().with_momentum(momentum.clone()).with_weight_decay(decay).build()
                };
                Self::Sgd(OptimizerAdaptor::from(by_shape(sgd.decay, sgd.weight_decay, rule)))
            }
        }
    }

    /// Moves the parameters that have a gradient; the others stay as they are, and so does what is kept of them.
    pub fn step(&mut self, learning_rate: f64, module: M, gradients: GradientsParams) -> M {
        match self {
            Self::AdamW(adamw) => adamw.step(learning_rate, module, gradients),
            Self::Sgd(sgd) => sgd.step(learning_rate, module, gradients),
        }
    }

    /// Writes the running values into a checkpoint's folder.
    pub fn save(&self, directory: &Path) -> Result<(), TaskError> {
        let recorder = StateRecorder::new();
        let path = directory.join(layout::OPTIMIZER);
        let written = match self {
            Self::AdamW(adamw) => recorder.record(adamw.to_record(), path.clone()),
            Self::Sgd(sgd) => recorder.record(sgd.to_record(), path.clone()),
        };
        written.map_err(|error| not_written(&path, &error))
    }

    /// The running values on the host.
    ///
    /// # Errors
    /// They cannot be fetched from the device.
    pub fn to_bytes(&self) -> Result<Vec<u8>, TaskError> {
        let recorder = BytesRecorder::new();
        let bytes = match self {
            Self::AdamW(adamw) => recorder.record(adamw.to_record(), ()),
            Self::Sgd(sgd) => recorder.record(sgd.to_record(), ()),
        };
        bytes.map_err(|error| TaskError::Device(error.to_string()))
    }

    /// With the running values that [`Self::to_bytes`] gave. `device` is the plain one.
    ///
    /// # Errors
    /// They are of another optimiser or module.
    pub fn with_bytes(self, bytes: Vec<u8>, device: &burn::DispatchDevice) -> Result<Self, TaskError> {
        let recorder = BytesRecorder::new();
        let failed = |error: burn::record::RecorderError| TaskError::Device(error.to_string());
        Ok(match self {
            Self::AdamW(adamw) => {
                let record = recorder.load(bytes, device).map_err(failed)?;
                Self::AdamW(adamw.load_record(record))
            }
            Self::Sgd(sgd) => {
                let record = recorder.load(bytes, device).map_err(failed)?;
                Self::Sgd(sgd.load_record(record))
            }
        })
    }

    /// Reads what [`Self::save`] wrote. `device` is the plain one: running values have no graph.
    pub fn load(self, directory: &Path, device: &burn::DispatchDevice) -> Result<Self, TaskError> {
        let recorder = StateRecorder::new();
        let path = directory.join(layout::OPTIMIZER);
        let failed = |error| TaskError::file(&path, error);
        Ok(match self {
            Self::AdamW(adamw) => {
                let record = recorder.load(path.clone(), device).map_err(failed)?;
                Self::AdamW(adamw.load_record(record))
            }
            Self::Sgd(sgd) => {
                let record = recorder.load(path.clone(), device).map_err(failed)?;
                Self::Sgd(sgd.load_record(record))
            }
        })
    }
}

/// Burn keeps no answer of the system, only that a value could not be written: the system is asked again.
fn not_written(path: &Path, error: &burn::record::RecorderError) -> TaskError {
    let more = || {
        let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
        file.write_all(&[0; PROBE_BYTES])?;
        file.sync_data()
    };
    match more() {
        Err(system) => TaskError::file(path, format!("cannot be written: {system}")),
        Ok(()) => TaskError::file(path, format!("cannot be written: {error}")),
    }
}

/// Enough that a full disk has no room for it. The file is not kept.
const PROBE_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use burn::module::{Module, Param, ParamId};
    use burn::tensor::TensorData;
    use serde_json::Value;

    use super::super::Tensor;
    use super::super::tests::{autodiff, close, plain, values};
    use super::*;
    use crate::settings::sections::{AdamW as AdamWSettings, Sgd as SgdSettings};

    #[derive(Module, Debug)]
    struct Three<B: burn::tensor::backend::Backend> {
        vector: Param<burn::tensor::Tensor<B, 1>>,
        matrix: Param<burn::tensor::Tensor<B, 2>>,
        kernel: Param<burn::tensor::Tensor<B, 4>>,
    }

    fn numbers(value: &Value) -> Vec<f32> {
        match value.as_array() {
            Some(list) => list.iter().flat_map(numbers).collect(),
            None => vec![value.as_f64().unwrap() as f32],
        }
    }

    fn parameter<const D: usize>(id: u64, value: &Value, shape: [usize; D]) -> Param<Tensor<D>> {
        let tensor = Tensor::from_data(TensorData::new(numbers(value), shape), &autodiff());
        Param::initialized(ParamId::from(id), tensor.require_grad())
    }

    fn gradient<const D: usize>(id: u64, value: &Value, shape: [usize; D], into: &mut GradientsParams) {
        into.register(ParamId::from(id), Tensor::<D>::from_data(TensorData::new(numbers(value), shape), &plain()));
    }

    /// PyTorch's optimisers with two parameter groups, `tests/reference/optimizer.py`.
    #[test]
    fn steps_are_those_of_pytorch_with_parameter_groups() {
        let all: Value = serde_json::from_str(include_str!("../../tests/reference/optimizer.json")).unwrap();
        for case in all["cases"].as_array().unwrap() {
            let number = |name: &str| case[name].as_f64().unwrap();
            let decay = if case["decay"] == "all" { Decay::All } else { Decay::Matrices };
            let settings = match case["optimizer"].as_str().unwrap() {
                "adamw" => Optimizer::AdamW(AdamWSettings {
                    weight_decay: number("weight_decay"),
                    decay,
                    ..AdamWSettings::default()
                }),
                _ => Optimizer::Sgd(SgdSettings {
                    weight_decay: number("weight_decay"),
                    nesterov: case["nesterov"].as_bool().unwrap(),
                    decay,
                    ..SgdSettings::default()
                }),
            };
            let start = &all["parameters"];
            let mut module = Three::<Backend> {
                vector: parameter(1, &start["vector"], [3]),
                matrix: parameter(2, &start["matrix"], [2, 3]),
                kernel: parameter(3, &start["kernel"], [2, 1, 2, 2]),
            };
            let mut optimizer = ModuleOptimizer::new(&settings);
            for (step, expected) in all["gradients"].as_array().unwrap().iter().zip(case["after"].as_array().unwrap()) {
                let mut gradients = GradientsParams::new();
                gradient(1, &step["vector"], [3], &mut gradients);
                gradient(2, &step["matrix"], [2, 3], &mut gradients);
                gradient(3, &step["kernel"], [2, 1, 2, 2], &mut gradients);
                module = optimizer.step(number("learning_rate"), module, gradients);
                close(&values(module.vector.val()), &numbers(&expected["vector"]), 1e-5);
                close(&values(module.matrix.val()), &numbers(&expected["matrix"]), 1e-5);
                close(&values(module.kernel.val()), &numbers(&expected["kernel"]), 1e-5);
            }
        }
    }
}
