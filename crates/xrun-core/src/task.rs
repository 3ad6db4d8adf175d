//! What must a pipeline offer, so that the loop can train it?
//!
//! The trait speaks of numbers and bytes, never of tensors: the loop, the stop rules, the trace and the crash behaviour
//! are tested with the `dummy` pipeline, which needs no Burn. A task lives on the training thread: each thread that
//! uses a GPU has a stream and a memory pool of its own there.

pub mod metric;
pub mod predict;
pub mod smaller;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::predict::Predict;
use crate::bounded::planned::PlannedOwner;
use crate::dataset::error::{Broken, DataError};
use crate::dataset::sample::Picture;
use crate::files::write::WriteError;
use crate::settings::sections::CleanupAction;
pub use crate::task::metric::Better;
use crate::task::metric::{Interval, PlannedMetric};
use crate::task::smaller::Smaller;

/// The device's memory pools as they describe themselves, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceMemory {
    /// Held by live tensors.
    pub in_use: u64,
    /// Taken from the driver.
    pub reserved: u64,
    /// Live allocations.
    pub allocations: u64,
}

/// A thing that can step, validate, save and load.
pub trait Task {
    /// Performs optimiser step `step` (from 1) at the learning rate given. Tensors of the step are dropped when it
    /// returns; what is kept is numbers.
    fn train_step(&mut self, step: u64, learning_rate: f64, phases: &mut dyn Phases) -> Result<StepReport, TaskError>;

    /// Says where the run's files are, before the first step, to a task that leaves files of its own there. Each is replaced
    /// as a whole.
    fn leave_files_in(&mut self, _run: &Path) {}

    /// Looks at held-out data, without autodiff. The same data each time.
    fn validate(&mut self, phases: &mut dyn Phases) -> Result<ValidationReport, TaskError>;

    /// Writes weights and optimiser state into an existing empty directory.
    fn save(&mut self, directory: &Path) -> Result<(), TaskError>;

    /// Reads what [`Task::save`] wrote.
    fn load(&mut self, directory: &Path) -> Result<(), TaskError>;

    /// Takes weights from the file of another run's checkpoint, before the first step. The optimiser stays as it is: new.
    ///
    /// # Errors
    /// The file does not read or does not fit the model.
    fn start_from(&mut self, _weights: &Path) -> Result<(), TaskError> {
        Err(TaskError::Asked("this pipeline cannot start from weights: take `training.initial_weights` out".into()))
    }

    /// Performs one cleanup action; returns the bytes that it knows it gave back. `Heap` is the loop's own.
    fn clean(&mut self, _action: CleanupAction) -> u64 {
        0
    }

    /// Waits until the device has done what it was asked. After this, memory is at rest.
    fn synchronise(&mut self) -> Result<(), TaskError>;

    /// The device's memory pool; `None` where there is none to ask (the CPU).
    fn device_memory(&mut self) -> Option<DeviceMemory>;

    /// How many parameters the model has.
    fn parameters(&self) -> u64;

    /// The device as it calls itself.
    fn device_name(&self) -> String;

    /// Counts worth keeping in the result: cache hits, skipped items. At most 64 of them.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// What answers about files of a person's own; `None` where the pipeline does not predict.
    fn predictor(&mut self) -> Option<&mut dyn Predict> {
        None
    }
}

/// What the plan needs to know of a task before it is opened: what its data says.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskFacts {
    /// Batches in one pass over the data.
    pub batches_per_epoch: u64,
    /// The buffers that the task will register in the ledger.
    pub owners: Vec<PlannedOwner>,
    /// What identifies the data: name and digest.
    pub data_digests: Vec<(String, String)>,
    /// What was left out of the data, and why.
    pub data_left_out: Broken,
    /// What the model has from its training data, so that it fits no other, for people; `None` where it fits any.
    pub learned_from_data: Option<&'static str>,
    /// What is smaller than the experiment asks.
    pub smaller: Vec<Smaller>,
    /// Notes about the data for people; a few lines.
    pub notes: Vec<String>,
    /// Numbers that have a gradient and an optimiser's state, in the phase that has most of them; `None` for all that the
    /// model has.
    pub trained_parameters: Option<u64>,
    /// The last steps of phases that another one follows, ascending. The schedule begins anew after them.
    pub phase_ends: Vec<u64>,
    /// A file that the task makes out of its data when it is opened, or finds in the cache.
    pub made: Option<Made>,
    /// Items of a batch that `limits.batch_size` splits into parts.
    pub batch_items: u64,
    /// Keys that give a batch its number of items where `limits.batch_size` is larger; empty where that alone does.
    pub batch_keys: &'static [&'static str],
    /// Whether a batch is on the device as a whole, whatever `limits.batch_size` is: then a smaller one is refused.
    pub whole_batches: bool,
    /// Steps that show all that a run does, so that a probe of them sees what memory the run needs.
    pub probe_steps: u64,
    /// What such a probe changes of the experiment, as `section.key=value`: phases that would take all its steps.
    pub probe_overrides: Vec<String>,
    /// The validation metrics; the first is the pipeline's own choice of what a checkpoint is best by.
    pub metrics: Vec<Metric>,
    /// Metrics whose names the experiment gives; they come behind the others.
    pub declared_metrics: Vec<PlannedMetric>,
    /// Whether anybody knows how many steps there will be. Of a command only the command may.
    pub steps_are_known: bool,
    /// What the pictures of a validation show, for people; empty where there are none.
    pub pictures: &'static str,
    /// Values of [`StepReport::values`] that say which stage of the training a step is in, the coarsest first, such as a round
    /// and a local epoch: memory is shown by stage. Empty where epochs say all.
    pub stages: &'static [&'static str],
}

/// A validation metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// As in `metrics.jsonl`; unique in its pipeline.
    pub name: &'static str,
    /// Which way is better; `None` of a constant of the data.
    pub better: Option<Better>,
    /// For people, such as `share`; empty where it has none.
    pub unit: &'static str,
    /// Metrics with this name are drawn in one figure.
    pub family: &'static str,
    /// What its line is called there.
    pub line: &'static str,
    /// What is measured, in a sentence.
    pub about: &'static str,
}

impl Metric {
    /// One of which more is better.
    pub const fn higher(name: &'static str, unit: &'static str) -> Self {
        Self { name, better: Some(Better::Higher), unit, family: name, line: name, about: "" }
    }

    /// One of which less is better.
    pub const fn lower(name: &'static str, unit: &'static str) -> Self {
        Self { better: Some(Better::Lower), ..Self::higher(name, unit) }
    }

    /// One that training does not move, told so that others can be compared with it, such as what guessing would give: no
    /// way is better, and no checkpoint is best by it.
    pub const fn constant(name: &'static str, unit: &'static str) -> Self {
        Self { better: None, ..Self::higher(name, unit) }
    }

    /// In the figure of this name, as a line of that name.
    pub const fn within(self, family: &'static str, line: &'static str) -> Self {
        Self { family, line, ..self }
    }

    /// With a sentence that says what is measured.
    pub const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }
}

/// A file of the cache that a task is opened with, and makes first where it is not there. Numbers depend on it as on data.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// Its name among the digests of the data.
    pub name: &'static str,
    /// Where it is kept.
    pub path: PathBuf,
    /// Message for people about the work, which takes long, that makes it.
    pub how: String,
}

impl TaskFacts {
    /// Of a task with so many batches in a pass over its data. What it says beside that, its author adds: buffers first of all.
    pub fn new(batches_per_epoch: u64, metrics: &[Metric]) -> Self {
        Self {
            batches_per_epoch,
            owners: Vec::new(),
            data_digests: Vec::new(),
            data_left_out: Broken::default(),
            learned_from_data: None,
            smaller: Vec::new(),
            notes: Vec::new(),
            trained_parameters: None,
            phase_ends: Vec::new(),
            made: None,
            batch_items: 1,
            batch_keys: &[],
            whole_batches: false,
            probe_steps: PROBE_STEPS,
            probe_overrides: Vec::new(),
            metrics: metrics.to_vec(),
            declared_metrics: Vec::new(),
            steps_are_known: true,
            pictures: "",
            stages: &[],
        }
    }
}

/// Steps of a probe where all steps are alike: allocators settle.
const PROBE_STEPS: u64 = 8;

impl From<&Metric> for PlannedMetric {
    fn from(metric: &Metric) -> Self {
        Self {
            name: metric.name.to_owned(),
            better: metric.better,
            unit: metric.unit.to_owned(),
            family: metric.family.to_owned(),
            line: metric.line.to_owned(),
            about: metric.about.to_owned(),
        }
    }
}

/// Numbers of one training step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// What kind of step it was, such as `detection` or `triplet`.
    pub kind: &'static str,
    /// The loss that was minimised.
    pub loss: f64,
    /// Its parts and other numbers by name; at most 16.
    pub values: Vec<(&'static str, f64)>,
    /// The norm over all gradients before clipping.
    pub gradient_norm: Option<f64>,
    /// Images, sequences or clips that went through.
    pub items: u64,
    /// What was in the batch, for the message when its loss is not a number; at most some hundred bytes.
    pub batch: String,
}

/// Numbers of one validation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValidationReport {
    /// By name; at most 64. `None` where it cannot be measured on this data.
    pub metrics: Vec<(String, Option<f64>)>,
    /// Of those metrics that are means over episodes.
    pub intervals: Vec<(String, Interval)>,
    /// Pictures with what was found drawn in, and captions, for the report; at most `validation.pictures`.
    pub pictures: Vec<(Picture, String)>,
}

/// Why a task could not go on.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The data: the message names the item.
    #[error("{0}")]
    Data(String),
    /// The device or its driver.
    #[error("the device failed: {0}")]
    Device(String),
    /// A file of a checkpoint.
    #[error("{path}: {message}")]
    File {
        /// The file or folder.
        path: String,
        /// What is wrong with it, for people.
        message: String,
    },
    /// What the dummy pipeline was asked to do.
    #[error("{0}")]
    Asked(String),
}

impl TaskError {
    /// A file that could not be written or read.
    pub fn file(path: &Path, error: impl std::fmt::Display) -> Self {
        Self::File { path: path.display().to_string(), message: error.to_string() }
    }

    /// The model was with the optimiser when a step failed.
    pub fn model_lost() -> Self {
        Self::Device("the model was lost in a step that failed".into())
    }
}

impl From<WriteError> for TaskError {
    fn from(error: WriteError) -> Self {
        // What to do depends on what was written: whoever asked for it says so.
        let message = format!("cannot be written: {}", error.source);
        Self::File { path: error.path.display().to_string(), message }
    }
}

impl From<DataError> for TaskError {
    fn from(error: DataError) -> Self {
        Self::Data(error.to_string())
    }
}

/// Measures how long the parts of a step take. `phases.enter("forward")` ends the part before it.
pub trait Phases {
    /// Ends the part that is being measured and begins this one.
    fn enter(&mut self, name: &'static str);
}
