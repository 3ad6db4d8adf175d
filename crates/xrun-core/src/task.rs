//! Interface between the training loop and a pipeline: [`Task`], the facts known before it is opened, and its reports.
//!
//! Numbers and bytes cross it, never tensors, so the loop, the stop rules, the trace and the crash behaviour are tested
//! with the pipeline `dummy`, without Burn. A task stays on the training thread, because each thread that uses a GPU gets a
//! stream and a memory pool of its own.

pub mod confusion;
pub mod lowered;
pub mod metric;
pub mod predict;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::confusion::ClassResult;
use self::predict::Predict;
use crate::bounded::planned::PlannedBuffer;
use crate::dataset::error::{DataError, InvalidItems};
use crate::dataset::sample::HostImage;
use crate::files::write::WriteError;
use crate::settings::rung::Rung;
use crate::settings::sections::CleanupAction;
use crate::task::lowered::LoweredSetting;
pub use crate::task::metric::{Direction, HeldOutLoss};
use crate::task::metric::{Interval, PlannedMetric};

/// Bytes of the device's memory pools, as the pools report them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceMemory {
    /// Held by live tensors.
    pub in_use: u64,
    /// Taken from the driver.
    pub reserved: u64,
    /// Live allocations.
    pub allocations: u64,
}

/// A model in training, with its data and optimiser.
pub trait Task {
    /// Performs optimiser step `step` (from 1) at `learning_rate`. All tensors of the step are dropped before it returns.
    fn train_step(&mut self, step: u64, learning_rate: f64, phases: &mut dyn Phases) -> Result<StepReport, TaskError>;

    /// Sets the run directory, before the first step, for a task that writes files of its own there. Each is replaced as a
    /// whole.
    fn set_run_directory(&mut self, _run: &Path) {}

    /// Evaluates the model on held-out data, without autodiff and on the same data each time.
    fn validate(&mut self, phases: &mut dyn Phases) -> Result<ValidationReport, TaskError>;

    /// Writes weights and optimiser state into an existing empty directory.
    fn save(&mut self, directory: &Path) -> Result<(), TaskError>;

    /// Restores the state that [`Task::save`] wrote.
    fn load(&mut self, directory: &Path) -> Result<(), TaskError>;

    /// Loads only the weights of another run's checkpoint, before the first step. The optimiser's state stays empty.
    ///
    /// # Errors
    /// The file is unreadable or does not fit the model.
    fn load_weights(&mut self, _weights: &Path) -> Result<(), TaskError> {
        Err(TaskError::Rejected("this pipeline cannot load initial weights; remove `training.initial_weights`".into()))
    }

    /// Performs one cleanup action and returns the bytes known to be freed. The loop itself performs `Heap`.
    fn clean(&mut self, _action: CleanupAction) -> u64 {
        0
    }

    /// Takes a rung of `limits.on_pressure` that changes how a step is computed, or climbs back: `level` is the number of
    /// halvings of the micro-batch, or 1 with activation checkpointing and 0 without. Returns `false` and changes nothing where
    /// the level is beyond what there is to give.
    fn set_rung(&mut self, _rung: Rung, _level: u32) -> bool {
        false
    }

    /// Waits until the device has finished all submitted work, so that memory can be sampled.
    fn synchronise(&mut self) -> Result<(), TaskError>;

    /// State of the device's memory pool; `None` on devices without one (the CPU).
    fn device_memory(&mut self) -> Option<DeviceMemory>;

    /// Number of parameters of the model.
    fn parameters(&self) -> u64;

    /// Name of the device, as the driver reports it.
    fn device_name(&self) -> String;

    /// Counters for the result, such as cache hits and skipped items; at most 64.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Lines for the log of the run since the last call.
    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Inference on files of the user; `None` where the pipeline does not support it.
    fn predictor(&mut self) -> Option<&mut dyn Predict> {
        None
    }
}

/// Facts about a task that the plan needs before the task is opened; they follow from its settings and data.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskFacts {
    /// Batches in one pass over the data.
    pub batches_per_epoch: u64,
    /// Buffers that the task will register in the ledger.
    pub owners: Vec<PlannedBuffer>,
    /// Name and SHA-256 of each data file or data set.
    pub data_digests: Vec<(String, String)>,
    /// Invalid items that were left out of the data, by reason.
    pub data_skipped: InvalidItems,
    /// Part of the model that comes from its training data and ties it to that data, human-readable; `None` where there is none.
    pub learned_from_data: Option<&'static str>,
    /// Settings that were lowered because the data has too few items.
    pub lowered: Vec<LoweredSetting>,
    /// Human-readable notes about the data, a line each; a few.
    pub notes: Vec<String>,
    /// Parameters with a gradient and optimiser state, in the stage that has most of them; `None` for all of the model's.
    pub trained_parameters: Option<u64>,
    /// Last step of each stage but the final one, ascending. The learning-rate schedule restarts after each.
    pub stage_ends: Vec<u64>,
    /// File that the task derives from its data when it is opened, or finds in the cache.
    pub made: Option<DerivedFile>,
    /// Items of a batch that `limits.batch_size` divides.
    pub batch_items: u64,
    /// Keys that set the number of items in a batch where `limits.batch_size` is larger; empty where it alone does.
    pub batch_keys: &'static [&'static str],
    /// `true` where a batch cannot be split, so that a `limits.batch_size` below [`batch_items`](Self::batch_items) is refused.
    pub whole_batches: bool,
    /// Steps that a probe must run to reach the memory use of a whole run.
    pub probe_steps: u64,
    /// Overrides of a probe, as `section.key=value`, that shorten stages longer than the probe.
    pub probe_overrides: Vec<String>,
    /// Batches of a validation, as [`Phases::batch_validated`] counts them; 0 if unknown.
    pub validation_batches: u64,
    /// Batches that the steps of an epoch validate, in addition to those of validations.
    pub epoch_validation_batches: u64,
    /// Steps that use data for the first time, as [`Phases::first_use`] counts them, and fill a cache that holds all of it.
    pub first_use_steps: u64,
    /// Validation metrics. The first is the default that the best checkpoint is selected by.
    pub metrics: Vec<Metric>,
    /// Metrics whose names come from the experiment; listed after the others.
    pub declared_metrics: Vec<PlannedMetric>,
    /// `false` where the number of steps is unknown, as for a command that is watched.
    pub steps_are_known: bool,
    /// Caption of the images of a validation, for people; empty where there are none.
    pub images: &'static str,
    /// Parts of steps and validations that are captured on a device that can, and those that are not, human-readable; empty where nothing is.
    pub captures: &'static str,
    /// Kinds of steps, each with a pass and an update of its own, which are captured one after another.
    pub captured_kinds: u64,
    /// Batches of a validation with enough equal passes that they are captured in the next.
    pub captured_batches: usize,
    /// Names in [`StepReport::values`] that number the stage of a step, the coarsest first, such as a round and a local epoch.
    /// Memory is reported by stage. Empty where epochs suffice.
    pub stages: &'static [&'static str],
}

/// A validation metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Name in `metrics.jsonl`; unique in its pipeline.
    pub name: &'static str,
    /// Direction of improvement; `None` for a baseline.
    pub direction: Option<Direction>,
    /// Unit for people, such as `%`; empty where there is none.
    pub unit: &'static str,
    /// Figure that the metric is drawn in, together with others of this name.
    pub family: &'static str,
    /// Label of its line in that figure.
    pub line: &'static str,
    /// Description in one sentence.
    pub about: &'static str,
    /// Value of a model that guesses, where it is known before the run.
    pub chance: Option<f64>,
    /// Name of the metric that measures what needs no learning, such as the accuracy of guessing; empty where there is none.
    pub baseline: &'static str,
    /// Scale of the metric where it is the loss on held-out data.
    pub loss: Option<HeldOutLoss>,
}

impl Metric {
    /// A metric whose higher values are better.
    pub const fn higher(name: &'static str, unit: &'static str) -> Self {
        let (chance, baseline, loss) = (None, "", None);
        Self {
            name,
            direction: Some(Direction::Higher),
            unit,
            family: name,
            line: name,
            about: "",
            chance,
            baseline,
            loss,
        }
    }

    /// A metric whose lower values are better.
    pub const fn lower(name: &'static str, unit: &'static str) -> Self {
        Self { direction: Some(Direction::Lower), ..Self::higher(name, unit) }
    }

    /// A baseline, such as the accuracy of guessing. It selects no checkpoint.
    pub const fn constant(name: &'static str, unit: &'static str) -> Self {
        Self { direction: None, ..Self::higher(name, unit) }
    }

    /// Draws the metric in the figure `family`, with the label `line`.
    pub const fn within(self, family: &'static str, line: &'static str) -> Self {
        Self { family, line, ..self }
    }

    /// Adds a description in one sentence.
    pub const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// Declares the value of a model that guesses; the verdict on training compares with it.
    pub const fn chance(self, value: f64) -> Self {
        Self { chance: Some(value), ..self }
    }

    /// Declares another metric as the baseline, with which the verdict on training compares.
    pub const fn baseline(self, name: &'static str) -> Self {
        Self { baseline: name, ..self }
    }

    /// Declares the metric as the loss on held-out data, in which the verdict on training looks for overfitting.
    pub const fn held_out_loss(self, scale: HeldOutLoss) -> Self {
        Self { loss: Some(scale), ..self }
    }
}

/// A cached file that is derived from the data, such as a vocabulary; created first where it is missing. Results depend
/// on it as they do on data.
#[derive(Clone, Debug, PartialEq)]
pub struct DerivedFile {
    /// Name among the digests of the data.
    pub name: &'static str,
    /// Path in the cache.
    pub path: PathBuf,
    /// Message for people about the slow work that creates it.
    pub how: String,
}

impl TaskFacts {
    /// Facts with defaults for everything but the number of batches in one epoch and the metrics. The caller adds the rest,
    /// the buffers first of all.
    pub fn new(batches_per_epoch: u64, metrics: &[Metric]) -> Self {
        Self {
            batches_per_epoch,
            owners: Vec::new(),
            data_digests: Vec::new(),
            data_skipped: InvalidItems::default(),
            learned_from_data: None,
            lowered: Vec::new(),
            notes: Vec::new(),
            trained_parameters: None,
            stage_ends: Vec::new(),
            made: None,
            batch_items: 1,
            batch_keys: &[],
            whole_batches: false,
            probe_steps: PROBE_STEPS,
            probe_overrides: Vec::new(),
            validation_batches: 0,
            epoch_validation_batches: 0,
            first_use_steps: 0,
            metrics: metrics.to_vec(),
            declared_metrics: Vec::new(),
            steps_are_known: true,
            images: "",
            captures: "",
            captured_kinds: 1,
            captured_batches: 12,
            stages: &[],
        }
    }
}

/// Steps of a probe where all steps do the same work: enough for allocators to settle.
const PROBE_STEPS: u64 = 8;

impl From<&Metric> for PlannedMetric {
    fn from(metric: &Metric) -> Self {
        Self {
            name: metric.name.to_owned(),
            direction: metric.direction,
            unit: metric.unit.to_owned(),
            family: metric.family.to_owned(),
            line: metric.line.to_owned(),
            about: metric.about.to_owned(),
            chance: metric.chance,
            baseline: Some(metric.baseline.to_owned()).filter(|name| !name.is_empty()),
            loss: metric.loss,
        }
    }
}

/// Numbers of one training step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// Kind of step, such as `detection` or `triplet`.
    pub kind: &'static str,
    /// The loss that was minimised.
    pub loss: f64,
    /// Terms of the loss and other numbers by name; at most 16.
    pub values: Vec<(&'static str, f64)>,
    /// L2 norm over all gradients before clipping.
    pub gradient_norm: Option<f64>,
    /// Images, sequences or clips in the batch.
    pub items: u64,
    /// Contents of the batch, for the error when its loss is not a number; at most some hundred bytes.
    pub batch: String,
}

/// Numbers of one validation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValidationReport {
    /// Values by name; at most 64. `None` where a metric cannot be measured on this data.
    pub metrics: Vec<(String, Option<f64>)>,
    /// Confidence intervals of the metrics that are means over episodes.
    pub intervals: Vec<(String, Interval)>,
    /// Images with the predictions drawn in, and their captions, for the report; at most `validation.images`.
    pub images: Vec<(HostImage, String)>,
    /// Results of each class of a classification; empty where the pipeline has none.
    pub classes: Vec<ClassResult>,
}

/// Reasons why a task cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// Invalid data; the message names the item.
    #[error("{0}")]
    Data(String),
    /// Failure of the device or its driver.
    #[error("the device failed: {0}")]
    Device(String),
    /// A file of a checkpoint that cannot be read or written.
    #[error("{path}: {message}")]
    File {
        /// The file or directory.
        path: String,
        /// Cause, without the path.
        message: String,
    },
    /// An operation that the pipeline does not support, or a failure that the dummy pipeline injects.
    #[error("{0}")]
    Rejected(String),
}

impl TaskError {
    /// A file that cannot be read or written.
    pub fn file(path: &Path, error: impl std::fmt::Display) -> Self {
        Self::File { path: path.display().to_string(), message: error.to_string() }
    }

    /// The model was lost: the optimiser owned it when a step failed.
    pub fn model_lost() -> Self {
        Self::Device("the model was lost in a step that failed".into())
    }
}

impl From<WriteError> for TaskError {
    fn from(error: WriteError) -> Self {
        // The advice depends on the file; the caller adds it.
        let message = format!("cannot be written: {}", error.source);
        Self::File { path: error.path.display().to_string(), message }
    }
}

impl From<DataError> for TaskError {
    fn from(error: DataError) -> Self {
        Self::Data(error.to_string())
    }
}

/// Timer of the phases of a step, such as `forward` and `backward`.
pub trait Phases {
    /// Ends the current phase and starts `name`.
    fn enter(&mut self, name: &'static str);

    /// Notes that `done` of `all` batches of a validation are done. `done` counts from the beginning of the phase.
    fn batch_validated(&mut self, _done: u64, _all: u64) {}

    /// Notes that a cache will save the time of the step so far when its data is used again.
    fn first_use(&mut self) {}
}
