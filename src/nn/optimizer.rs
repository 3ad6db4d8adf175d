//! AdamW and SGD as the file declares them, with a state that can be saved.

use std::path::Path;

use burn::module::AutodiffModule;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamW, AdamWConfig, GradientsParams, Optimizer as _, Sgd, SgdConfig};
use burn::record::{FullPrecisionSettings, NamedMpkFileRecorder, Recorder};

use super::Backend;
use crate::experiment::sections::Optimizer;
use crate::results::layout;
use crate::task::TaskError;

/// An optimiser of module `M`.
pub enum ModuleOptimizer<M: AutodiffModule<Backend>> {
    AdamW(OptimizerAdaptor<AdamW, M, Backend>),
    Sgd(OptimizerAdaptor<Sgd<Backend>, M, Backend>),
}

/// Full precision: a loaded state continues bit for bit.
type StateRecorder = NamedMpkFileRecorder<FullPrecisionSettings>;

impl<M: AutodiffModule<Backend>> ModuleOptimizer<M> {
    pub fn new(settings: &Optimizer) -> Self {
        match settings {
            Optimizer::AdamW(adamw) => {
                let config = AdamWConfig::new()
                    .with_beta_1(adamw.beta_1 as f32)
                    .with_beta_2(adamw.beta_2 as f32)
                    .with_epsilon(adamw.epsilon as f32)
                    .with_weight_decay(adamw.weight_decay as f32);
                Self::AdamW(config.init())
            }
            Optimizer::Sgd(sgd) => {
                // Without dampening, as PyTorch has it; Burn's default is 0.1.
                let momentum = (sgd.momentum > 0.0).then(|| {
                    MomentumConfig::new().with_momentum(sgd.momentum).with_dampening(0.0).with_nesterov(sgd.nesterov)
                });
                let decay = (sgd.weight_decay > 0.0).then(|| WeightDecayConfig::new(sgd.weight_decay as f32));
                Self::Sgd(SgdConfig::new().with_momentum(momentum).with_weight_decay(decay).init())
            }
        }
    }

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
        written.map_err(|error| TaskError::file(&path, error))
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
