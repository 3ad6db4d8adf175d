//! The experiment file: reading its layers, checking it, and resolving every value with its origin.

pub mod axes;
mod check;
pub mod check_search;
pub mod command;
mod command_script;
mod expand;
pub mod inspect;
pub mod key_lookup;
pub mod launcher;
mod layers;
pub mod leaks;
mod merge;
pub mod number_range;
pub mod overrides;
mod overrides_sweep;
pub mod pattern;
pub mod pipeline;
pub mod read;
pub mod read_sweep;
pub mod resolved;
pub mod schema;
pub mod shape;
pub mod sweep;
pub mod template;
mod tree;
pub mod validate;
mod validate_sweep;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dataset::Dataset;
use crate::settings::backbone::Backbone;
use crate::settings::sections::{
    AdamW, Checkpoint, Cleanup, DeviceSettings, ExperimentInfo, Limits, Memory, Optimizer, Training, Validation,
};
use launcher::LauncherSettings;
use leaks::Leaks;
use pipeline::{Model, Pipeline};
use sweep::Sweep;

/// Key of the initial weights.
pub const INITIAL_WEIGHTS: &str = "training.initial_weights";

/// An experiment: model, data, training and limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name, seed and device of the experiment.
    #[serde(default)]
    pub experiment: ExperimentInfo,
    /// Training task, which defines a step and a validation. The name of the table is the kind.
    pub pipeline: Pipeline,
    /// Network that the pipeline trains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    /// Pretrained network that the model takes its features from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backbone: Option<Backbone>,
    /// Training and validation data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<Dataset>,
    /// Optimiser.
    #[serde(default = "default_optimizer")]
    pub optimizer: Optimizer,
    /// Length and procedure of the training.
    #[serde(default)]
    pub training: Training,
    /// Use of the device. `experiment.device` selects it.
    #[serde(default, skip_serializing_if = "crate::settings::is_default")]
    pub device: DeviceSettings,
    /// Caps of the buffers.
    #[serde(default)]
    pub limits: Limits,
    /// Release of free memory: when and how.
    #[serde(default)]
    pub cleanup: Cleanup,
    /// Validation on held-out data.
    #[serde(default)]
    pub validation: Validation,
    /// Saving of checkpoints.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// Measurement and judgement of memory.
    #[serde(default)]
    pub memory: Memory,
    /// Leaks to inject, to test that xrun finds them.
    #[serde(default, skip_serializing_if = "crate::settings::is_default")]
    pub leaks: Leaks,
    /// Variations of the experiment, run and compared by `xrun sweep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
    /// Resources to request from a cluster for `xrun sweep --launcher`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<LauncherSettings>,
}

impl Experiment {
    /// An experiment with default values, for building one in code. In contrast to one that was read, it is unchecked.
    pub fn new(name: &str, pipeline: Pipeline) -> Self {
        Self {
            experiment: ExperimentInfo { name: name.to_owned(), ..ExperimentInfo::default() },
            pipeline,
            model: None,
            backbone: None,
            dataset: None,
            optimizer: default_optimizer(),
            training: Training::default(),
            device: DeviceSettings::default(),
            limits: Limits::default(),
            cleanup: Cleanup::default(),
            validation: Validation::default(),
            checkpoint: Checkpoint::default(),
            memory: Memory::default(),
            leaks: Leaks::default(),
            sweep: None,
            launcher: None,
        }
    }

    /// Paths of data and weights, with their keys.
    pub fn paths(&mut self) -> impl Iterator<Item = (String, &mut String)> {
        let data = self.dataset.iter_mut().flat_map(Dataset::paths);
        let model = self.model.iter_mut().flat_map(Model::paths);
        let backbone = self.backbone.iter_mut().map(Backbone::path);
        let weights = self.training.initial_weights.iter_mut().map(|path| (INITIAL_WEIGHTS.to_owned(), path));
        data.chain(model).chain(backbone).chain(self.pipeline.paths()).chain(weights)
    }
}

fn default_optimizer() -> Optimizer {
    Optimizer::AdamW(AdamW::default())
}
