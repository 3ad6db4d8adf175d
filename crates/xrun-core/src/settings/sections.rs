//! Sections that all experiments share.
//!
//! The doc comment of a field is its entry in the manual (`docs/reference.md`) and in the schema. `Default` is the only
//! source of default values, and the schema the only source of ranges, so that editors and `xrun check` agree.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

pub use super::early_stopping::EarlyStopping;
pub use super::limits::{LIMITS_OF_KINDS, Limits, MICRO_BATCH_SIZE};
pub use super::schedule::{Constant, Cosine, Linear, Schedule, WarmUpStableDecay};
use crate::settings;
use crate::units::{Bytes, Span};

settings! {
    /// Name, seed and device of the experiment.
    pub struct ExperimentInfo {
        /// Name of the directory below `results/`. Letters, digits, `-`, `_` and `.`. Default: the file's name.
        #[schemars(length(min = 1, max = 80), regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"))]
        pub name: String = String::new(),
        /// One sentence for listings and the report.
        #[schemars(length(max = 2000))]
        pub description: String = String::new(),
        /// Seed of weights, data order, augmentation and generated data. On the CPU, runs with the same seed are bit-identical.
        pub seed: u32 = 0,
        /// `auto` (the first GPU that works, otherwise the CPU), `cpu`, `cuda`, `cuda:1` or `vulkan`.
        #[schemars(regex(pattern = "^(auto|cpu|cuda(:[0-9]+)?|vulkan(:[0-9]+)?)$"))]
        pub device: String = "auto".into(),
        /// Store the output of `git diff` of the current directory in `manifest.json`, at most 1 MiB, so that the code can be
        /// restored. `false` omits it: everyone who receives the result can read it.
        pub patch: bool = true,
        /// Write TensorBoard event files during the run, for `tensorboard --logdir results`. A finished run can be exported
        /// instead. Has no effect on `[pipeline.command]`.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub tensorboard: bool = false,
    }
}

/// Keys of trackers, which change neither numbers nor memory.
pub const TRACKERS: &[&str] = &["experiment.tensorboard"];

/// Use of the device. `experiment.device` selects it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceSettings {
    /// CPU kernels of convolution with group normalisation, layer normalisation, attention, GELU, losses and fake quantisation.
    /// Both choices are equal up to rounding; `fused` is two to ten times as fast.
    pub cpu_kernels: CpuKernels,
    /// Capture of training steps, and of forward passes of a validation, on a GPU. `auto` captures each once and replays it, which takes
    /// one call of the driver and allocates nothing; the results are the same.
    pub graphs: Graphs,
    /// Waiting of the CPU's threads between two operations of a step; results are the same. `spin` makes steps up to a quarter shorter on
    /// a machine that nothing else uses.
    pub waiting: Waiting,
}

/// Waiting of threads that have no work for a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// They look for work for 300 microseconds, making way for other threads, and sleep then.
    #[default]
    Spin,
    /// They sleep, which leaves processor time to other processes.
    Sleep,
}

/// Capture of training steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Graphs {
    /// Where the device and the pipeline can. Leaks and refusals of the device turn it off.
    #[default]
    Auto,
    /// Each operation is launched.
    Off,
}

/// Implementation of fused operations on the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CpuKernels {
    /// One kernel per operation, with a hand-written backward pass.
    #[default]
    Fused,
    /// Sequences of Burn's own operations, as on a GPU.
    Plain,
}

impl CpuKernels {
    /// Value in the file.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

settings! {
    /// Release of free memory: when and how. The result records the time that it takes.
    pub struct Cleanup {
        /// Steps between two cleanups in training; 0: none. Cleanups after epochs and validations go on unless `after_epoch` and
        /// `after_validation` are off. Every tenth step costs little time.
        pub every_steps: u64 = 10,
        /// Clean up after each validation, which often leaves the most free memory.
        pub after_validation: bool = true,
        /// Clean up after each epoch.
        pub after_epoch: bool = true,
        /// Actions of a cleanup, in order. `caches` is not a default, because the caches would be filled again.
        #[schemars(length(max = 3))]
        pub actions: Vec<CleanupAction> = vec![CleanupAction::DevicePool, CleanupAction::Heap],
        /// Fraction of the cap down to which the action `caches` evicts.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub cache_low_water: f64 = 0.5,
    }
}

/// Action of a cleanup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CleanupAction {
    /// Evict caches down to `cache_low_water`.
    Caches,
    /// Free empty pages of the device's memory pool.
    DevicePool,
    /// Return free heap pages to the operating system (`malloc_trim`).
    Heap,
}

impl CleanupAction {
    /// Beginning of the names of the phases that clean up.
    pub const PHASES: &str = "cleanup_";

    /// Name of the phase whose time is that of this action.
    pub fn phase(self) -> &'static str {
        match self {
            Self::Caches => "cleanup_caches",
            Self::DevicePool => "cleanup_device_pool",
            Self::Heap => "cleanup_heap",
        }
    }
}

settings! {
    /// Validation on held-out data.
    pub struct Validation {
        /// Steps between two validations; 0 uses `every_epochs` alone.
        pub every_steps: u64 = 0,
        /// Epochs between two validations; 0 uses `every_steps` alone. The last step is always validated unless both are 0.
        pub every_epochs: u64 = 1,
        /// Validate before the first step, as a baseline.
        pub at_start: bool = true,
        /// Number of batches in a validation, the same ones each time; a batch of few-shot detection is an episode.
        #[schemars(range(min = 1, max = 1_000_000))]
        pub batches: usize = 10,
        /// Number of images of the last validation in the report, with the predictions drawn in.
        #[schemars(range(min = 0, max = 64))]
        pub images: usize = 6,
    }

    /// Length and procedure of the training.
    pub struct Training {
        /// Number of passes over the data.
        #[schemars(range(min = 1, max = 1_000_000))]
        pub epochs: u64 = 1,
        /// Maximum number of optimiser steps, where `epochs` would take more.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1))]
        pub max_steps: Option<u64> = None,
        /// Time after which the run saves a checkpoint and stops, for clusters with a time limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub time_limit: Option<Span> = None,
        /// Number of items in a batch, such as the sequences of a language model. `limits.batch_size` bounds those on the device at
        /// once. An error for pipelines with episodes, whose own keys set the size. Default: the pipeline's own.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 65536))]
        pub batch_size: Option<usize> = None,
        /// Number of batches per optimiser step (gradient accumulation). Losses are summed over tokens or objects and divided by
        /// their number in the whole step, so that several batches train like one large batch.
        #[schemars(range(min = 1, max = 4096))]
        pub gradient_accumulation: usize = 1,
        /// Maximum L2 norm over all gradients, to which they are scaled down; absent means no clipping. In a sandwich step of
        /// `qat-language-model` each precision is clipped separately.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1e-9, max = 1e9))]
        pub clip_norm: Option<f64> = None,
        /// Initial weights in place of random ones: a run (its best checkpoint), a checkpoint directory, or a file of weights of the
        /// same model. Optimiser and schedule start from zero. Not needed to resume a run.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub initial_weights: Option<String> = None,
        /// Recompute activations in the backward pass instead of saving them: less memory, more time.
        pub activation_checkpointing: bool = false,
        /// Ends the run when the validation metric no longer improves. This counts as success: outcome `stopped_early`, exit
        /// code 0.
        #[serde(skip_serializing_if = "crate::settings::is_default")]
        pub early_stopping: EarlyStopping = EarlyStopping::default(),
        /// Mildest verdict on training that makes a completed run fail with exit code 6; `never` by default.
        #[serde(skip_serializing_if = "crate::settings::is_default")]
        pub fail_on: TrainingFailOn = TrainingFailOn::Never,
        /// Learning-rate schedule.
        pub schedule: Schedule = Schedule::Constant(Constant::default()),
    }
}

/// Mildest verdict on training that fails a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TrainingFailOn {
    /// None.
    #[default]
    Never,
    /// The loss rose or is not a number.
    Diverged,
    /// Also if neither the loss nor the metric improved.
    NoProgress,
    /// Also if the model is no better than chance on held-out data.
    NoBetterThanChance,
    /// Also if the model became worse on held-out data at the end.
    Overfitting,
}

impl TrainingFailOn {
    /// Value in the file.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Training {
    /// Number of optimiser steps in an epoch and in total.
    pub fn steps(&self, batches_per_epoch: u64) -> (u64, u64) {
        let steps_per_epoch = batches_per_epoch.div_ceil(self.gradient_accumulation as u64).max(1);
        let steps = steps_per_epoch.saturating_mul(self.epochs);
        (steps_per_epoch, self.max_steps.map_or(steps, |max_steps| steps.min(max_steps)))
    }
}

settings! {
    /// Saving of checkpoints.
    pub struct Checkpoint {
        /// Steps between two checkpoints; 0 saves only when the run ends or is stopped.
        pub every_steps: u64 = 100,
        /// Number of newest checkpoints to keep, in addition to the best one.
        #[schemars(range(min = 1, max = 1000))]
        pub keep_last: usize = 1,
        /// Validation metric that selects the best checkpoint; if absent, the pipeline's first metric.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub best: Option<String> = None,
    }

    /// Measurement and judgement of memory.
    pub struct Memory {
        /// Steps between two memory samples, taken between steps; 0 samples only at the start, epochs, validations, cleanups and
        /// the end.
        pub every_steps: u64 = 1,
        /// Number of samples between two readings of the slower sources (container, driver, components of RSS). The components of
        /// RSS are read only while that takes less than 0.1 % of the time, or always if this is 1.
        #[schemars(range(min = 1, max = 1_000_000))]
        pub components_every_samples: u64 = 20,
        /// Run a few steps in another process before the run, to forecast its memory. The measurement is cached.
        pub probe: bool = true,
        /// Mildest verdict that makes a completed run fail with exit code 6.
        pub fail_on: FailOn = FailOn::Never,
        /// Smallest total growth that a verdict calls growth.
        pub growth_min: Bytes = Bytes::mebibytes(16),
    }
}

/// Mildest verdict that fails a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FailOn {
    /// None.
    #[default]
    Never,
    /// Memory is growing, or a buffer exceeded its cap.
    Growing,
    /// Also if memory grows that is reserved but not in use: RSS beyond the heap, or pages of a pool beyond its tensors.
    Retained,
    /// Also if memory still rises, but more slowly than before.
    Slowing,
    /// Also if memory may be growing; `no_growth_found` fails nothing.
    Suspect,
}

impl FailOn {
    /// Value in the file.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

crate::settings::kinds::kinds! {
    /// Optimiser.
    pub enum Optimizer {
        "adamw" => AdamW(AdamW),
        "sgd" => Sgd(Sgd),
    }
}

settings! {
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
    pub struct AdamW {
        /// Learning rate, before the schedule.
        #[schemars(range(min = 0.0, max = 1e3))]
        pub learning_rate: f64 = 1e-3,
        /// Decay of the running mean of gradients (β₁).
        #[schemars(range(min = 0.0, max = 0.999_999))]
        pub beta_1: f64 = 0.9,
        /// Decay of the running mean of squared gradients (β₂).
        #[schemars(range(min = 0.0, max = 0.999_999_9))]
        pub beta_2: f64 = 0.999,
        /// Term added to the denominator for numerical stability.
        #[schemars(range(min = 1e-16, max = 1.0))]
        pub epsilon: f64 = 1e-8,
        /// Weight decay: a step subtracts this fraction of each weight, times the learning rate.
        #[schemars(range(min = 0.0, max = 1e3))]
        pub weight_decay: f64 = 0.01,
        /// Parameters that weight decay applies to.
        pub decay_parameters: Decay = Decay::Matrices,
    }
}

/// Parameters that weight decay applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// Parameters of two or more dimensions: matrices, kernels, LoRA and embeddings, as in nanoGPT. Not biases,
    /// normalisation parameters and learned scales.
    Matrices,
    /// All parameters.
    All,
}

settings! {
    /// Stochastic gradient descent with momentum.
    pub struct Sgd {
        /// Learning rate, before the schedule.
        #[schemars(range(min = 0.0, max = 1e3))]
        pub learning_rate: f64 = 0.01,
        /// Fraction of the previous update that is added to the next one; 0 disables momentum.
        #[schemars(range(min = 0.0, max = 0.999_999))]
        pub momentum: f64 = 0.9,
        /// Nesterov's accelerated gradient (1983). Needs momentum.
        pub nesterov: bool = false,
        /// L2 penalty added to the gradient.
        #[schemars(range(min = 0.0, max = 1e3))]
        pub weight_decay: f64 = 0.0,
        /// Parameters that weight decay applies to.
        pub decay_parameters: Decay = Decay::Matrices,
    }
}

impl Optimizer {
    /// Base learning rate, which the schedule scales.
    pub fn learning_rate(&self) -> f64 {
        match self {
            Self::AdamW(settings) => settings.learning_rate,
            Self::Sgd(settings) => settings.learning_rate,
        }
    }

    /// Size of the optimiser's state, in copies of the parameters.
    pub fn running_copies(&self) -> u64 {
        match self {
            Self::AdamW(_) => 2,
            Self::Sgd(settings) if settings.momentum > 0.0 => 1,
            Self::Sgd(_) => 0,
        }
    }
}
