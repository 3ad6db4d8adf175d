//! What did the author write, with every value known and its origin?

pub mod annotate;
pub mod axes;
pub mod between;
mod check;
pub mod check_search;
pub mod command;
mod expand;
pub mod habits;
pub mod kinds;
pub mod launcher;
mod layers;
pub mod leaks;
pub mod look;
mod merge;
pub mod overrides;
mod overrides_sweep;
pub mod pattern;
pub mod pipeline;
pub mod read;
pub mod read_sweep;
pub mod reference;
pub mod render;
pub mod resolved;
pub mod schema;
pub mod shape;
pub mod sweep;
pub mod template;
mod tree;
mod walk;
mod walk_sweep;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dataset::Dataset;
use crate::settings::sections::{
    About, AdamW, Checkpoint, Cleanup, DeviceUse, Hooks, Limits, Memory, Optimizer, Training, Validation,
};
use launcher::Launcher;
use leaks::Leaks;
use pipeline::{Model, Pipeline};
use sweep::Sweep;

/// An experiment: what to train, on what, within which limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What this experiment is called and where it runs.
    #[serde(default)]
    pub experiment: About,
    /// The task: what a step and a validation do. The name of the table is the kind.
    pub pipeline: Pipeline,
    /// The network that the pipeline trains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    /// The data that it is trained on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<Dataset>,
    /// The rule that turns gradients into new weights.
    #[serde(default = "default_optimizer")]
    pub optimizer: Optimizer,
    /// How long training lasts, and how it proceeds.
    #[serde(default)]
    pub training: Training,
    /// How a GPU is used.
    #[serde(default, skip_serializing_if = "DeviceUse::is_default")]
    pub device: DeviceUse,
    /// The most that each buffer may hold.
    #[serde(default)]
    pub limits: Limits,
    /// What is given back, and how often.
    #[serde(default)]
    pub cleanup: Cleanup,
    /// When the model is validated on held-out data, and on how much of it.
    #[serde(default)]
    pub validation: Validation,
    /// What is saved, and how often.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// When memory is measured.
    #[serde(default)]
    pub memory: Memory,
    /// Programs that are told how a run goes, without a shell.
    #[serde(default, skip_serializing_if = "Hooks::is_default")]
    pub hooks: Hooks,
    /// Leaks that can be switched on, to see that xrun finds them.
    #[serde(default, skip_serializing_if = "Leaks::are_off")]
    pub leaks: Leaks,
    /// One experiment for each of many values, run and compared by `xrun sweep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
    /// What to request from a cluster when `xrun sweep --launcher` runs a sweep there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<Launcher>,
}

impl Experiment {
    /// An experiment of this name with all defaults, to be built in code. Reading a file checks that what is said agrees;
    /// here, nobody has checked yet.
    pub fn new(name: &str, pipeline: Pipeline) -> Self {
        Self {
            experiment: About { name: name.to_owned(), ..About::default() },
            pipeline,
            model: None,
            dataset: None,
            optimizer: default_optimizer(),
            training: Training::default(),
            device: DeviceUse::default(),
            limits: Limits::default(),
            cleanup: Cleanup::default(),
            validation: Validation::default(),
            checkpoint: Checkpoint::default(),
            memory: Memory::default(),
            hooks: Hooks::default(),
            leaks: Leaks::default(),
            sweep: None,
            launcher: None,
        }
    }
}

fn default_optimizer() -> Optimizer {
    Optimizer::AdamW(AdamW::default())
}
