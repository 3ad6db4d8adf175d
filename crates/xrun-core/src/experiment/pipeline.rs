//! Kinds of pipelines and models: types that implement [`PipelineKind`] or [`ModelKind`], registered with `Program`.

use std::any::Any;
use std::marker::PhantomData;

use schemars::{Schema, SchemaGenerator};

use super::Experiment;
use super::inspect::{InspectedData, Inspection};
use super::leaks::Leak;
use crate::bounded::ledger::Ledger;
use crate::dataset::Dataset;
use crate::dataset::error::DataError;
use crate::dataset::open_dataset::{OpenDataset, SampleType};
use crate::device;
use crate::problem::Problems;
use crate::settings::command::Command;
use crate::settings::variant::{
    AnySettings, Kind, RegisteredKind, Registry, SettingsTable, Variant, read_settings, typed, typed_mut,
};
use crate::task::{Metric, Task, TaskError, TaskFacts};

/// A kind of pipeline, which defines a step and a validation.
pub trait PipelineKind: Send + Sync + 'static {
    /// Name of its table: `[pipeline.NAME]`.
    const NAME: &'static str;
    /// Names of the models that it can train, the recommended one first; empty if it needs none.
    const MODELS: &'static [&'static str] = &[];
    /// Type of its training samples; it accepts every data set of that type. `None` if it needs no data.
    const SAMPLE_TYPE: Option<SampleType> = None;
    /// Validation metrics in display order. The first selects the best checkpoint unless the file names another.
    const METRICS: &'static [Metric];
    /// Default of `training.batch_size`; `None` if the pipeline's own keys set the size, as those of an episode do.
    const BATCH_SIZE: Option<usize> = None;
    /// Leaks that can be injected into it.
    const LEAKS: &'static [&'static Leak] = &[];
    /// Optional limits that apply to this pipeline, in addition to those of its data; see
    /// [`LIMITS_OF_KINDS`](crate::settings::sections::LIMITS_OF_KINDS).
    const LIMIT_KEYS: &'static [&'static str] = &[];

    /// Keys of the table. Doc comments of the fields are the manual.
    type Settings: SettingsTable;
    /// Open data, and anything else that [`PipelineKind::open`] takes over.
    type Prepared: 'static;

    /// Command of a pipeline that is an external program, which is run and monitored instead of prepared and opened.
    fn command(_settings: &Self::Settings) -> Option<&Command> {
        None
    }

    /// Paths in the settings with the names of their fields. Relative ones are made absolute, against the directory of the
    /// experiment file.
    fn paths(_settings: &mut Self::Settings) -> Vec<(&'static str, &mut Option<String>)> {
        Vec::new()
    }

    /// PyTorch module that loads the weights of its checkpoints; `None` if there is none.
    fn pytorch_module(_settings: &Self::Settings, _experiment: &Experiment) -> Option<PytorchModule> {
        None
    }

    /// Adds problems of the settings, and contradictions between them and the rest of the experiment.
    fn check(_settings: &Self::Settings, _experiment: &Experiment, _problems: &mut Problems) {}

    /// Keys that set the last step of a stage, with their values.
    fn steps_of_stages(_settings: &Self::Settings) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Consequences of the data for this experiment: settings that will be lowered, and items that this pipeline cannot use.
    /// `summary` is [`OpenDataset::Summary`] of the data's index, as JSON.
    ///
    /// # Errors
    /// The data is unsuitable.
    fn inspect(
        _settings: &Self::Settings,
        _experiment: &Experiment,
        _seen: InspectedData,
    ) -> Result<Inspection, DataError> {
        Ok(Inspection::default())
    }

    /// Opens the data, without a device, and returns the facts for the plan. Registers the buffers of the data in the ledger.
    ///
    /// # Errors
    /// The data cannot be used.
    fn prepare(
        settings: &Self::Settings,
        experiment: &Experiment,
        ledger: &Ledger,
    ) -> Result<(TaskFacts, Self::Prepared), TaskError>;

    /// Creates the task with its model on the device. Training starts at `first_step`, which is above 1 for a resumed run.
    ///
    /// # Errors
    /// The device or a file of weights fails.
    fn open(
        prepared: Self::Prepared,
        experiment: &Experiment,
        device: device::DeviceKind,
        ledger: &Ledger,
        first_step: u64,
    ) -> Result<Box<dyn Task>, TaskError>;
}

/// A kind of model, the network that a pipeline trains.
pub trait ModelKind: Send + Sync + 'static {
    /// Name of its table: `[model.NAME]`.
    const NAME: &'static str;
    /// Keys of the table. Doc comments of the fields are the manual.
    type Settings: SettingsTable;

    /// Adds problems of the settings.
    fn check(_settings: &Self::Settings, _problems: &mut Problems) {}

    /// Paths in the settings with the names of their fields; as [`PipelineKind::paths`].
    fn paths(_settings: &mut Self::Settings) -> Vec<(&'static str, &mut Option<String>)> {
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

/// Object-safe form of [`PipelineKind`].
pub trait AnyPipeline: Kind {
    /// [`PipelineKind::MODELS`].
    fn models(&self) -> &'static [&'static str];
    /// [`PipelineKind::SAMPLE_TYPE`].
    fn samples(&self) -> Option<SampleType>;
    /// [`PipelineKind::METRICS`].
    fn metrics(&self) -> &'static [Metric];
    /// [`PipelineKind::LEAKS`].
    fn leaks(&self) -> &'static [&'static Leak];
    /// [`PipelineKind::BATCH_SIZE`].
    fn batch_size(&self) -> Option<usize>;
    /// [`PipelineKind::LIMIT_KEYS`].
    fn limits(&self) -> &'static [&'static str];
    /// [`PipelineKind::command`].
    fn command<'a>(&self, settings: &'a dyn AnySettings) -> Option<&'a Command>;
    /// [`PipelineKind::paths`].
    fn paths<'a>(&self, settings: &'a mut dyn AnySettings) -> Vec<(&'static str, &'a mut Option<String>)>;
    /// [`PipelineKind::pytorch_module`].
    fn pytorch_module(&self, settings: &dyn AnySettings, experiment: &Experiment) -> Option<PytorchModule>;
    /// [`PipelineKind::check`].
    fn check(&self, settings: &dyn AnySettings, experiment: &Experiment, problems: &mut Problems);
    /// [`PipelineKind::steps_of_stages`].
    fn steps_of_stages(&self, settings: &dyn AnySettings) -> Vec<(&'static str, u64)>;
    /// [`PipelineKind::inspect`].
    ///
    /// # Errors
    /// See there.
    fn inspect(
        &self,
        settings: &dyn AnySettings,
        experiment: &Experiment,
        seen: InspectedData,
    ) -> Result<Inspection, DataError>;
    /// [`PipelineKind::prepare`].
    ///
    /// # Errors
    /// See there.
    fn prepare(
        &self,
        settings: &dyn AnySettings,
        experiment: &Experiment,
        ledger: &Ledger,
    ) -> Result<(TaskFacts, Box<dyn Any>), TaskError>;
    /// [`PipelineKind::open`].
    ///
    /// # Errors
    /// See there.
    fn open(
        &self,
        prepared: Box<dyn Any>,
        experiment: &Experiment,
        device: device::DeviceKind,
        ledger: &Ledger,
        first_step: u64,
    ) -> Result<Box<dyn Task>, TaskError>;
}

/// Object-safe form of [`ModelKind`].
pub trait AnyModel: Kind {
    /// [`ModelKind::check`].
    fn check(&self, settings: &dyn AnySettings, problems: &mut Problems);
    /// [`ModelKind::paths`].
    fn paths<'a>(&self, settings: &'a mut dyn AnySettings) -> Vec<(&'static str, &'a mut Option<String>)>;
}

/// A kind of pipeline with its settings.
pub type Pipeline = Variant<dyn AnyPipeline>;
/// A kind of model with its settings.
pub type Model = Variant<dyn AnyModel>;

static PIPELINES: Registry<dyn AnyPipeline> = Registry::new();
static MODELS: Registry<dyn AnyModel> = Registry::new();

impl RegisteredKind for dyn AnyPipeline {
    const SECTION: &'static str = "Pipeline";

    fn registry() -> &'static Registry<Self> {
        &PIPELINES
    }
}

impl RegisteredKind for dyn AnyModel {
    const SECTION: &'static str = "Model";

    fn registry() -> &'static Registry<Self> {
        &MODELS
    }
}

/// Object-safe form of `P`, for the registration.
pub const fn any_pipeline<P: PipelineKind>() -> &'static dyn AnyPipeline {
    &ErasedPipeline::<P>(PhantomData)
}

/// Object-safe form of `M`, for the registration.
pub const fn any_model<M: ModelKind>() -> &'static dyn AnyModel {
    &ErasedModel::<M>(PhantomData)
}

struct ErasedPipeline<P>(PhantomData<fn() -> P>);
struct ErasedModel<M>(PhantomData<fn() -> M>);

impl<P: PipelineKind> Kind for ErasedPipeline<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<P::Settings>()
    }

    fn read(&self, from: &mut dyn erased_serde::Deserializer<'_>) -> Result<Box<dyn AnySettings>, erased_serde::Error> {
        read_settings::<P::Settings>(from)
    }
}

impl<P: PipelineKind> AnyPipeline for ErasedPipeline<P> {
    fn models(&self) -> &'static [&'static str] {
        P::MODELS
    }

    fn samples(&self) -> Option<SampleType> {
        P::SAMPLE_TYPE
    }

    fn metrics(&self) -> &'static [Metric] {
        P::METRICS
    }

    fn leaks(&self) -> &'static [&'static Leak] {
        P::LEAKS
    }

    fn batch_size(&self) -> Option<usize> {
        P::BATCH_SIZE
    }

    fn limits(&self) -> &'static [&'static str] {
        P::LIMIT_KEYS
    }

    fn command<'a>(&self, settings: &'a dyn AnySettings) -> Option<&'a Command> {
        P::command(typed(settings))
    }

    fn paths<'a>(&self, settings: &'a mut dyn AnySettings) -> Vec<(&'static str, &'a mut Option<String>)> {
        P::paths(typed_mut(settings))
    }

    fn pytorch_module(&self, settings: &dyn AnySettings, experiment: &Experiment) -> Option<PytorchModule> {
        P::pytorch_module(typed(settings), experiment)
    }

    fn check(&self, settings: &dyn AnySettings, experiment: &Experiment, problems: &mut Problems) {
        P::check(typed(settings), experiment, problems);
    }

    fn steps_of_stages(&self, settings: &dyn AnySettings) -> Vec<(&'static str, u64)> {
        P::steps_of_stages(typed(settings))
    }

    fn inspect(
        &self,
        settings: &dyn AnySettings,
        experiment: &Experiment,
        seen: InspectedData,
    ) -> Result<Inspection, DataError> {
        P::inspect(typed(settings), experiment, seen)
    }

    fn prepare(
        &self,
        settings: &dyn AnySettings,
        experiment: &Experiment,
        ledger: &Ledger,
    ) -> Result<(TaskFacts, Box<dyn Any>), TaskError> {
        let (facts, prepared) = P::prepare(typed(settings), experiment, ledger)?;
        Ok((facts, Box::new(prepared)))
    }

    fn open(
        &self,
        prepared: Box<dyn Any>,
        experiment: &Experiment,
        device: device::DeviceKind,
        ledger: &Ledger,
        first_step: u64,
    ) -> Result<Box<dyn Task>, TaskError> {
        let prepared = prepared.downcast::<P::Prepared>().expect("a kind opens what it prepared");
        P::open(*prepared, experiment, device, ledger, first_step)
    }
}

impl<M: ModelKind> Kind for ErasedModel<M> {
    fn name(&self) -> &'static str {
        M::NAME
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<M::Settings>()
    }

    fn read(&self, from: &mut dyn erased_serde::Deserializer<'_>) -> Result<Box<dyn AnySettings>, erased_serde::Error> {
        read_settings::<M::Settings>(from)
    }
}

impl<M: ModelKind> AnyModel for ErasedModel<M> {
    fn check(&self, settings: &dyn AnySettings, problems: &mut Problems) {
        M::check(typed(settings), problems);
    }

    fn paths<'a>(&self, settings: &'a mut dyn AnySettings) -> Vec<(&'static str, &'a mut Option<String>)> {
        M::paths(typed_mut(settings))
    }
}

impl Pipeline {
    /// Pipeline with these settings, for an experiment built in code. Only a kind that is registered can be read from a
    /// file.
    pub fn new<P: PipelineKind>(settings: P::Settings) -> Self {
        Self::with(any_pipeline::<P>(), settings)
    }

    /// Keys that set the last step of a stage, with their values.
    pub fn steps_of_stages(&self) -> Vec<(&'static str, u64)> {
        self.kind().steps_of_stages(self.any())
    }

    /// Paths in the settings with their dotted keys.
    pub fn paths(&mut self) -> impl Iterator<Item = (String, &mut String)> {
        let (kind, name) = (self.kind(), self.name());
        let all = kind.paths(self.any_mut()).into_iter();
        all.filter_map(move |(field, path)| Some((format!("pipeline.{name}.{field}"), path.as_mut()?)))
    }
}

impl Model {
    /// Model with these settings; as [`Pipeline::new`].
    pub fn new<M: ModelKind>(settings: M::Settings) -> Self {
        Self::with(any_model::<M>(), settings)
    }

    /// Adds problems of the settings.
    pub fn check(&self, problems: &mut Problems) {
        self.kind().check(self.any(), problems);
    }

    /// Paths in the settings with their dotted keys.
    pub fn paths(&mut self) -> impl Iterator<Item = (String, &mut String)> {
        let (kind, name) = (self.kind(), self.name());
        let all = kind.paths(self.any_mut()).into_iter();
        all.filter_map(move |(field, path)| Some((format!("model.{name}.{field}"), path.as_mut()?)))
    }
}

/// Prepared state of a pipeline, such as open data, from which the task is created after the plan.
pub struct Prepared {
    kind: &'static dyn AnyPipeline,
    prepared: Box<dyn Any>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Prepared({})", self.kind.name())
    }
}

impl Prepared {
    /// Creates the task; see [`PipelineKind::open`].
    ///
    /// # Errors
    /// See there.
    pub fn open(
        self,
        experiment: &Experiment,
        device: device::DeviceKind,
        ledger: &Ledger,
        first_step: u64,
    ) -> Result<Box<dyn Task>, TaskError> {
        self.kind.open(self.prepared, experiment, device, ledger, first_step)
    }

    /// Prepared state, if it is of type `T`; for benchmarks of its parts.
    pub fn into_parts<T: 'static>(self) -> Option<T> {
        self.prepared.downcast().ok().map(|prepared| *prepared)
    }
}

impl Experiment {
    /// Opens the data, without a device, and returns the facts for the plan; see [`PipelineKind::prepare`].
    ///
    /// # Errors
    /// The data cannot be used.
    pub fn prepare(&self, ledger: &Ledger) -> Result<(TaskFacts, Prepared), TaskError> {
        let kind = self.pipeline.kind();
        let (facts, prepared) = kind.prepare(self.pipeline.any(), self, ledger)?;
        Ok((facts, Prepared { kind, prepared }))
    }

    /// Command of a pipeline that is an external program.
    pub fn command(&self) -> Option<&Command> {
        self.pipeline.kind().command(self.pipeline.any())
    }

    /// PyTorch module that loads the weights of its checkpoints.
    pub fn pytorch_module(&self) -> Option<PytorchModule> {
        self.pipeline.kind().pytorch_module(self.pipeline.any(), self)
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
        let index = dataset.kind().open(dataset.any())?;
        index.downcast::<D>().map(|index| *index).map_err(|_| other())
    }

    /// Options of the data, whichever data set it is; `None` where its index is not of this type.
    pub fn loader_settings<D: OpenDataset>(&self) -> Option<D::LoaderSettings> {
        let dataset = self.dataset_of::<D>()?;
        dataset.kind().loader_settings(dataset.any()).downcast().ok().map(|settings| *settings)
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
        self.dataset.as_ref().filter(|dataset| dataset.samples() == SampleType::of::<D>())
    }

    /// Leaks of the pipeline that are switched on.
    pub fn active_leaks(&self) -> impl Iterator<Item = &'static Leak> {
        self.pipeline.kind().leaks().iter().copied().filter(|leak| self.leaks.is_enabled(leak))
    }
}
