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

    /// Writes the running values; `path` ends in `.mpk`.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let recorder = StateRecorder::new();
        let written = match self {
            Self::AdamW(adamw) => recorder.record(adamw.to_record(), path.to_path_buf()),
            Self::Sgd(sgd) => recorder.record(sgd.to_record(), path.to_path_buf()),
        };
        written.map_err(|error| error.to_string())
    }

    /// Reads what [`Self::save`] wrote. `device` is the plain one: running values have no graph.
    pub fn load(self, path: &Path, device: &burn::DispatchDevice) -> Result<Self, String> {
        let recorder = StateRecorder::new();
        let path = path.to_path_buf();
        Ok(match self {
            Self::AdamW(adamw) => {
                let record = recorder.load(path, device).map_err(|error| error.to_string())?;
                Self::AdamW(adamw.load_record(record))
            }
            Self::Sgd(sgd) => {
                let record = recorder.load(path, device).map_err(|error| error.to_string())?;
                Self::Sgd(sgd.load_record(record))
            }
        })
    }
}
