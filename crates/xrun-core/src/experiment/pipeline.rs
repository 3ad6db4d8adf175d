//! Kinds of pipelines and models: settings that implement [`PipelineKind`] or [`ModelKind`], registered with `Program`.

use std::any::Any;

use serde::Deserialize;

use super::Experiment;
use super::leaks::Leak;
use crate::bounded::ledger::Ledger;
use crate::dataset::Dataset;
use crate::dataset::description::Description;
use crate::dataset::error::{DataError, InvalidItems};
use crate::dataset::open_dataset::{AnyDataset, OpenDataset, SampleType};
use crate::device::DeviceKind;
use crate::problem::Problems;
use crate::settings::backbone::BackboneUse;
use crate::settings::command::Command;
use crate::settings::rung::Rung;
use crate::settings::variant::{AnySettings, Kind, Paths, Variant, section};
use crate::task::lowered::LoweredSetting;
use crate::task::{Metric, Task, TaskError, TaskFacts};

/// Result of inspecting usable data for a pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inspection {
    /// Items that a run would leave out.
    pub skipped: InvalidItems,
    /// Human-readable notes, a line each.
    pub notes: Vec<String>,
    /// Description of the data.
    pub description: Description,
    /// Settings that a run would lower.
    pub lowered: Vec<LoweredSetting>,
}

/// Data that was inspected, as a pipeline sees it.
pub struct InspectedData {
    summary: serde_json::Value,
    opened: Option<Box<dyn AnyDataset>>,
}

impl InspectedData {
    /// Data with its summary as JSON, and opened if it was.
    pub(super) fn new(summary: serde_json::Value, opened: Option<Box<dyn AnyDataset>>) -> Self {
        Self { summary, opened }
    }

    /// The summary of the data of type `D`.
    ///
    /// # Errors
    /// It is of another type.
    pub fn summary<D: OpenDataset>(&self) -> Result<D::Summary, DataError> {
        D::Summary::deserialize(&self.summary).map_err(|error| DataError::content(error.to_string()))
    }

    /// The data itself: as the inspection opened it, or opened now where the inspection did not open all of it.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open<D: OpenDataset>(self, experiment: &Experiment) -> Result<D, DataError> {
        let opened = self.opened.map(|opened| -> Box<dyn Any> { opened });
        match opened.and_then(|opened| opened.downcast().ok()) {
            Some(opened) => Ok(*opened),
            None => experiment.open_dataset().map_err(|error| DataError::content(error.to_string())),
        }
    }
}

impl From<Vec<LoweredSetting>> for Inspection {
    fn from(lowered: Vec<LoweredSetting>) -> Self {
        Self { lowered, ..Self::default() }
    }
}

/// Properties of a kind of pipeline that do not depend on settings.
#[derive(Clone, Copy, Debug)]
pub struct PipelineFacts {
    /// Names of the models that it can train, the recommended one first; empty if it needs none.
    pub models: &'static [&'static str],
    /// Type of its training samples; it accepts every data set of that type. `None` if it needs no data.
    pub sample_type: Option<SampleType>,
    /// Validation metrics in display order. The first selects the best checkpoint unless the file names another.
    pub metrics: &'static [Metric],
    /// Default of `training.batch_size`; `None` if the pipeline's own keys set the size, as those of an episode do.
    pub batch_size: Option<usize>,
    /// Leaks that can be injected into it.
    pub leaks: &'static [&'static Leak],
    /// Optional limits that apply to this pipeline, in addition to those of its data; see
    /// [`LIMITS_OF_KINDS`](crate::settings::sections::LIMITS_OF_KINDS).
    pub limit_keys: &'static [&'static str],
    /// Rungs of `limits.on_pressure`, besides `park`, that leave its training what it is. With batch statistics or a contrastive
    /// loss over a micro-batch, [`Rung::MicroBatch`] is none of them.
    pub rungs: &'static [Rung],
}

impl PipelineFacts {
    /// Pipeline without a model, data and metrics, for the fields that a pipeline leaves out.
    pub const NONE: Self = Self {
        models: &[],
        sample_type: None,
        metrics: &[],
        batch_size: None,
        leaks: &[],
        limit_keys: &[],
        rungs: &[],
    };
}

/// A kind of pipeline, which defines a step and a validation: implemented by its settings, the table `[pipeline.NAME]`. Doc
/// comments of their fields are the manual.
pub trait PipelineKind: AnySettings {
    /// Description of the kind, a constant.
    fn kind() -> &'static Kind<dyn PipelineKind>
    where
        Self: Sized;

    /// Command of a pipeline that is an external program, which is run and monitored instead of prepared and opened.
    fn command(&self) -> Option<&Command> {
        None
    }

    /// Paths in the settings with the names of their fields. Relative ones are made absolute, against the directory of the
    /// experiment file.
    fn paths(&mut self) -> Paths<'_> {
        Vec::new()
    }

    /// PyTorch module that loads the weights of its checkpoints; `None` if there is none.
    fn pytorch_module(&self, _experiment: &Experiment) -> Option<PytorchModule> {
        None
    }

    /// Adds problems of the settings, and contradictions between them and the rest of the experiment.
    fn check(&self, _experiment: &Experiment, _problems: &mut Problems) {}

    /// Reason why a rung that [`PipelineFacts::rungs`] lists would change the training with these settings; `None` if it would not.
    fn refuses_rung(&self, _rung: Rung) -> Option<&'static str> {
        None
    }

    /// Keys that set the last step of a stage, with their values.
    fn steps_of_stages(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Consequences of the data for this experiment: settings that will be lowered, and items that this pipeline cannot use.
    ///
    /// # Errors
    /// The data is unsuitable.
    fn inspect(&self, _experiment: &Experiment, _data: InspectedData) -> Result<Inspection, DataError> {
        Ok(Inspection::default())
    }

    /// Opens the data, without a device, and returns the facts for the plan. Registers the buffers of the data in the ledger.
    ///
    /// # Errors
    /// The data cannot be used.
    fn prepare(&self, experiment: &Experiment, ledger: &Ledger) -> Result<(TaskFacts, Box<dyn Prepared>), TaskError>;
}

/// Prepared state of a pipeline, such as open data, from which the task is created after the plan.
pub trait Prepared: Any {
    /// Creates the task with its model on the device.
    ///
    /// # Errors
    /// The device or a file of weights fails.
    fn open(self: Box<Self>, opening: Opening<'_>) -> Result<Box<dyn Task>, TaskError>;
}

impl dyn Prepared {
    /// Prepared state, if it is of type `T`; for benchmarks of its parts.
    pub fn into_parts<T: Prepared>(self: Box<Self>) -> Option<T> {
        let any: Box<dyn Any> = self;
        any.downcast().ok().map(|prepared| *prepared)
    }
}

/// Environment in which a task is created.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// Experiment of the task.
    pub experiment: &'a Experiment,
    /// Device of its model.
    pub device: DeviceKind,
    /// Ledger of its buffers.
    pub ledger: &'a Ledger,
    /// First step of the training, which is above 1 for a resumed run.
    pub first_step: u64,
}

/// A kind of model, the network that a pipeline trains: implemented by its settings, the table `[model.NAME]`.
pub trait ModelKind: AnySettings {
    /// Description of the kind, a constant.
    fn kind() -> &'static Kind<dyn ModelKind>
    where
        Self: Sized;

    /// Adds problems of the settings.
    fn check(&self, _problems: &mut Problems) {}

    /// Paths in the settings with the names of their fields; as [`PipelineKind::paths`].
    fn paths(&mut self) -> Paths<'_> {
        Vec::new()
    }
}

/// PyTorch module that loads the weights of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct PytorchModule {
    /// Source text of the Python file, which reads `model.safetensors` and `config.json` of its directory.
    pub source: &'static str,
    /// Values that it reads from `config.json`, as an object.
    pub config: serde_json::Value,
}

/// A kind of pipeline with its settings.
pub type Pipeline = Variant<dyn PipelineKind>;
/// A kind of model with its settings.
pub type Model = Variant<dyn ModelKind>;

section!(PipelineKind, "Pipeline", PipelineFacts);
section!(ModelKind, "Model", BackboneUse);

impl Experiment {
    /// Opens the data, without a device, and returns the facts for the plan; see [`PipelineKind::prepare`].
    ///
    /// # Errors
    /// The data cannot be used.
    pub fn prepare(&self, ledger: &Ledger) -> Result<(TaskFacts, Box<dyn Prepared>), TaskError> {
        self.pipeline.prepare(self, ledger)
    }

    /// Command of a pipeline that is an external program.
    pub fn command(&self) -> Option<&Command> {
        self.pipeline.command()
    }

    /// Number of items of a batch: `training.batch_size`, or the default of the pipeline; 1 where it has none.
    pub fn batch_size(&self) -> usize {
        self.training.batch_size.or(self.pipeline.facts().batch_size).unwrap_or(1)
    }

    /// Settings of the model.
    ///
    /// # Errors
    /// The model is missing or has settings of another type, which is possible only for an experiment built in code.
    pub fn model_settings<T: 'static>(&self) -> Result<&T, TaskError> {
        let found = self.model.as_ref().and_then(|model| model.settings());
        found.ok_or_else(|| TaskError::Data(format!("`{}` needs another model", self.pipeline.name())))
    }

    /// Opens the data set, whose index must be of type `D`.
    ///
    /// # Errors
    /// The data set is missing or has another index, or the data cannot be used.
    pub fn open_dataset<D: OpenDataset>(&self) -> Result<D, TaskError> {
        let other = || TaskError::Data(format!("`{}` needs a data set of {}", self.pipeline.name(), D::SAMPLE_NOUN));
        let dataset = self.dataset_of::<D>().ok_or_else(other)?;
        let opened: Box<dyn Any> = dataset.open()?;
        opened.downcast::<D>().map(|opened| *opened).map_err(|_| other())
    }

    /// Options of the data, whichever data set it is; `None` where its index is not of this type.
    pub fn loader_settings<D: OpenDataset>(&self) -> Option<D::LoaderSettings> {
        let settings = self.dataset_of::<D>()?.loader_settings();
        Some(settings.downcast().map_or_else(|_| Default::default(), |settings| *settings))
    }

    /// Whole key of a setting of the data set, such as `dataset.coco.path`.
    pub fn dataset_key(&self, key: &str) -> String {
        format!("dataset.{}.{key}", self.dataset_name())
    }

    /// Name of the data set; empty where there is none.
    pub fn dataset_name(&self) -> &'static str {
        self.dataset.as_ref().map_or("", Dataset::name)
    }

    /// Data set, if its index is of type `D`.
    fn dataset_of<D: OpenDataset>(&self) -> Option<&Dataset> {
        self.dataset.as_ref().filter(|dataset| dataset.facts().sample_type == SampleType::of::<D>())
    }

    /// Leaks of the pipeline that are switched on.
    pub fn active_leaks(&self) -> impl Iterator<Item = &'static Leak> {
        self.pipeline.facts().leaks.iter().copied().filter(|leak| self.leaks.is_enabled(leak))
    }
}
