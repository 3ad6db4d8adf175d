//! Which sections does every experiment share, and what may stand in them?
//!
//! The doc comment of a field is its entry in the manual (`docs/reference.md`) and in the schema: meaning and unit. The
//! default stands in `Default` alone, and the manual, the templates and the schema take it from there. Ranges stand in
//! the schema, so that an editor and `xrun check` agree.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::early_stopping::EarlyStopping;
pub use super::hooks::Hooks;
pub use super::limits::{LIMITS_OF_KINDS, Limits, PART_SIZE};
pub use super::schedule::{Constant, Cosine, Linear, Schedule, WarmUpStableDecay};
use crate::units::{Bytes, Span};

/// What this experiment is called and where it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct About {
    /// Names the folder below `results/`. Letters, digits, `-`, `_` and `.`. Default: the file's name.
    #[schemars(length(min = 1, max = 80), regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"))]
    pub name: String,
    /// One sentence for people; shown in listings and at the top of the report.
    #[schemars(length(max = 2000))]
    pub description: String,
    /// Seeds weights, data order, augmentation and generated data. On the CPU the same seed gives the same bits.
    pub seed: u32,
    /// `auto` takes the first GPU that works and the CPU otherwise; or `cpu`, `cuda`, `cuda:1`, `vulkan`.
    #[schemars(regex(pattern = "^(auto|cpu|cuda(:[0-9]+)?|vulkan(:[0-9]+)?)$"))]
    pub device: String,
    /// Keep the changes that git sees in the current folder in `manifest.json`, at most 1 MiB, so that the code that
    /// ran can be restored. `false` leaves them out: everyone who gets the result can read them.
    pub patch: bool,
    /// Write event files into the run's folder while it goes on, so that `tensorboard --logdir results` shows it. A
    /// finished run can be exported, too. A `[pipeline.command]` writes its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tensorboard: bool,
}

impl Default for About {
    fn default() -> Self {
        Self {
            name: String::new(),
            description: String::new(),
            seed: 0,
            device: "auto".into(),
            patch: true,
            tensorboard: false,
        }
    }
}

/// How a device is used. What it is called in the file is `experiment.device`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceUse {
    /// How finely operations are tuned on a GPU. Each operation is tried in several ways for each group of sizes, and
    /// each way is compiled first. `minimal` groups most sizes together, `full` none; the more groups, the longer
    /// the start takes. The environment's `CUBECL_AUTOTUNE_LEVEL` wins.
    pub autotune: Autotune,
    /// The kernels of fused operations on the CPU: convolution with group normalisation, layer normalisation, attention, GELU,
    /// losses, fake quantisation. Both give the same numbers but for rounding; `fused` is two to ten times as fast.
    pub cpu_kernels: CpuKernels,
}

impl DeviceUse {
    /// Nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The implementation of fused operations on the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CpuKernels {
    /// One kernel each, with a hand-written backward pass.
    #[default]
    Fused,
    /// Burn's own operations, one after another, as on a GPU.
    Plain,
}

impl CpuKernels {
    /// The word of the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fused => "fused",
            Self::Plain => "plain",
        }
    }
}

/// How finely operations are tuned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Autotune {
    /// Sizes within a factor of 2.5 count as one.
    #[default]
    Minimal,
    /// Sizes within a factor of 2 count as one.
    Balanced,
    /// Every size is tuned by itself.
    Full,
}

/// What is given back, and how often. The time it takes is in the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cleanup {
    /// Steps between two cleanups; 0 turns them off. Every tenth step costs little time.
    pub every_steps: u64,
    /// Clean up after each validation. A validation often leaves most behind.
    pub after_validation: bool,
    /// Clean up after each epoch.
    pub after_epoch: bool,
    /// What a cleanup does, in this order. `caches` is not among the defaults, since they would only be filled again.
    #[schemars(length(max = 4))]
    pub actions: Vec<CleanupAction>,
    /// The action `caches` evicts down to this fraction of the cap.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub cache_low_water: f64,
}

impl Default for Cleanup {
    fn default() -> Self {
        Self {
            every_steps: 10,
            after_validation: true,
            after_epoch: true,
            actions: vec![CleanupAction::DevicePool, CleanupAction::Heap],
            cache_low_water: 0.5,
        }
    }
}

/// One thing that a cleanup can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CleanupAction {
    /// Drop gradients that were accumulated and not used.
    Gradients,
    /// Evict caches down to `cache_low_water`.
    Caches,
    /// Ask the device's memory pool to free the pages that hold nothing.
    DevicePool,
    /// Return free heap pages to the operating system (`malloc_trim`).
    Heap,
}

/// When the model is validated on held-out data, and on how much of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Validation {
    /// Steps between two validations; 0 leaves it to `every_epochs`.
    pub every_steps: u64,
    /// Epochs between two validations; 0 leaves it to `every_steps`. The last step always validates unless both are 0.
    pub every_epochs: u64,
    /// Validate before the first step, so that the result shows what training changed.
    pub at_start: bool,
    /// Episodes (or batches) in one validation; the same ones each time.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub episodes: usize,
    /// Pictures of the last validation, with the detections drawn in, for the report.
    #[schemars(range(min = 0, max = 64))]
    pub pictures: usize,
}

impl Default for Validation {
    fn default() -> Self {
        Self { every_steps: 0, every_epochs: 1, at_start: true, episodes: 10, pictures: 6 }
    }
}

/// How long training lasts, and how it proceeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Training {
    /// Passes over the data; how many steps that is follows from the data.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub epochs: u64,
    /// Stop after this many steps, even if epochs are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_steps: Option<u64>,
    /// Save a checkpoint and stop after this time. For clusters that end jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
    /// Items whose gradient makes a batch, such as the sequences of a language model. An episode has a size of its own, by keys
    /// of its pipeline, and refuses this one. How many of them are on the device at once is for `limits.batch_size` to say.
    /// Default: the pipeline's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub batch_size: Option<usize>,
    /// Batches whose gradients are summed for one step. Losses are sums over tokens or objects and are divided once, by
    /// the number in the whole step, so several batches train like one large batch.
    #[schemars(range(min = 1, max = 4096))]
    pub accumulation: usize,
    /// The norm over all gradients above which they are scaled down; absent means no clipping. In a sandwich step of
    /// `qat-language-model` each precision is clipped by its own norm.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1e-9, max = 1e9))]
    pub clip_norm: Option<f64>,
    /// Weights that training starts from in place of random ones: a run (its best checkpoint), the folder of a checkpoint, or a
    /// file of weights of the same model. The optimiser and the schedule start anew. A run that is resumed does not need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_weights: Option<String>,
    /// Recompute activations in the backward pass in place of keeping them: less memory, more time.
    pub activation_checkpointing: bool,
    /// Ends the run when validations no longer get better. That is a success: the outcome is `stopped_early`, the exit
    /// code 0.
    #[serde(skip_serializing_if = "EarlyStopping::is_default")]
    pub early_stopping: EarlyStopping,
    /// How the learning rate changes over the steps.
    pub schedule: Schedule,
}

impl Training {
    /// Optimiser steps in an epoch of that many batches, and in all.
    pub fn steps(&self, batches_per_epoch: u64) -> (u64, u64) {
        let steps_per_epoch = batches_per_epoch.div_ceil(self.accumulation as u64).max(1);
        let steps = steps_per_epoch.saturating_mul(self.epochs);
        (steps_per_epoch, self.max_steps.map_or(steps, |max_steps| steps.min(max_steps)))
    }
}

impl Default for Training {
    fn default() -> Self {
        Self {
            epochs: 1,
            max_steps: None,
            time_limit: None,
            batch_size: None,
            accumulation: 1,
            clip_norm: None,
            initial_weights: None,
            activation_checkpointing: false,
            early_stopping: EarlyStopping::default(),
            schedule: Schedule::Constant(Constant::default()),
        }
    }
}

/// What is saved, and how often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Checkpoint {
    /// Steps between two checkpoints; 0 saves only at the end and when the run is stopped.
    pub every_steps: u64,
    /// How many of the newest checkpoints are kept. The best one is kept too.
    #[schemars(range(min = 1, max = 1000))]
    pub keep_last: usize,
    /// The validation metric that chooses the best checkpoint; if absent, the pipeline's first metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<String>,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self { every_steps: 100, keep_last: 1, best: None }
    }
}

/// When memory is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Steps between two samples, which are taken at rest; 0 leaves only the start, epochs, validations, cleanups and
    /// the end.
    pub every_steps: u64,
    /// Read the slower sources (the container, the driver, the parts of resident memory) once in this many samples. The
    /// parts of resident memory cost the most, and are read while that stays below 0.1 % of the time; with 1 always.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub parts_every_samples: u64,
    /// Before the run, do a few of its steps in another process, to forecast the memory that it will need. The
    /// measurement is cached.
    pub probe: bool,
    /// The verdict that makes a run fail with exit code 6, even if it did all its steps.
    pub fail_on: FailOn,
    /// The smallest growth over the windows of a verdict that is called growth; smaller leaks need a run with little
    /// noise.
    pub growth_min: Bytes,
}

/// The verdict that fails a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum FailOn {
    /// No verdict fails a run.
    #[default]
    Never,
    /// Memory is growing, or a buffer passed its cap.
    Growing,
    /// Also when memory that is kept but not in use grows: resident memory beyond the heap, a pool's pages beyond its
    /// tensors.
    Retained,
    /// Also when memory still rises, slower than before.
    Slowing,
    /// Also when memory may be growing.
    Suspect,
}

impl FailOn {
    /// As in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Growing => "growing",
            Self::Retained => "retained",
            Self::Slowing => "slowing",
            Self::Suspect => "suspect",
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            every_steps: 1,
            parts_every_samples: 20,
            probe: true,
            fail_on: FailOn::Never,
            growth_min: Bytes::mebibytes(16),
        }
    }
}

crate::settings::kinds::kinds! {
    /// The rule that turns gradients into new weights.
    pub enum Optimizer {
        "adamw" => AdamW(AdamW),
        "sgd" => Sgd(Sgd),
    }
}

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdamW {
    /// The size of a step, before the schedule.
    #[schemars(range(min = 0.0, max = 1e3))]
    pub learning_rate: f64,
    /// Decay of the running mean of gradients.
    #[schemars(range(min = 0.0, max = 0.999_999))]
    pub beta_1: f64,
    /// Decay of the running mean of their squares.
    #[schemars(range(min = 0.0, max = 0.999_999_9))]
    pub beta_2: f64,
    /// Keeps the division finite.
    #[schemars(range(min = 1e-16, max = 1.0))]
    pub epsilon: f64,
    /// The fraction of each weight that a step subtracts, times the learning rate.
    #[schemars(range(min = 0.0, max = 1e3))]
    pub weight_decay: f64,
    /// Which parameters decay.
    pub decay: Decay,
}

impl Default for AdamW {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            beta_1: 0.9,
            beta_2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            decay: Decay::Matrices,
        }
    }
}

/// Which parameters decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// Those of two or more dimensions: matrices, kernels, LoRA, and embeddings, as in nanoGPT. Not biases, nor gains and
    /// shifts of normalisation, nor learnt scales.
    Matrices,
    /// All of them.
    All,
}

/// Stochastic gradient descent with momentum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sgd {
    /// The size of a step, before the schedule.
    #[schemars(range(min = 0.0, max = 1e3))]
    pub learning_rate: f64,
    /// Fraction of the previous update that is added to the next one; 0 is no momentum.
    #[schemars(range(min = 0.0, max = 0.999_999))]
    pub momentum: f64,
    /// Look ahead (Nesterov 1983). Needs momentum.
    pub nesterov: bool,
    /// L2 penalty added to the gradient.
    #[schemars(range(min = 0.0, max = 1e3))]
    pub weight_decay: f64,
    /// Which parameters decay.
    pub decay: Decay,
}

impl Default for Sgd {
    fn default() -> Self {
        Self { learning_rate: 0.01, momentum: 0.9, nesterov: false, weight_decay: 0.0, decay: Decay::Matrices }
    }
}

impl Optimizer {
    /// The rate that the schedule takes shares of.
    pub fn learning_rate(&self) -> f64 {
        match self {
            Self::AdamW(settings) => settings.learning_rate,
            Self::Sgd(settings) => settings.learning_rate,
        }
    }

    /// Copies of the parameters that it keeps as running values.
    pub fn running_copies(&self) -> u64 {
        match self {
            Self::AdamW(_) => 2,
            Self::Sgd(settings) if settings.momentum > 0.0 => 1,
            Self::Sgd(_) => 0,
        }
    }
}
