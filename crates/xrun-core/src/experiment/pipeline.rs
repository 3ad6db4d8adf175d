//! What is a kind of pipeline, and what is a kind of model? Types that say all of themselves; `Program` registers them.

use std::any::Any;
use std::marker::PhantomData;

use schemars::{Schema, SchemaGenerator};

use super::Experiment;
use super::leaks::Leak;
use super::look::Look;
use crate::bounded::ledger::Ledger;
use crate::dataset::Dataset;
use crate::dataset::error::DataError;
use crate::dataset::index::{Index, SampleType};
use crate::device;
use crate::problem::Problems;
use crate::settings::chosen::{
    AnySettings, Chosen, Family, Kind, Registered, SettingsTable, read_settings, typed, typed_mut,
};
use crate::settings::command::Command;
use crate::task::{Metric, Task, TaskError, TaskFacts};

/// A kind of pipeline: what a step and a validation do.
pub trait PipelineKind: Send + Sync + 'static {
    /// The name of its table: `[pipeline.NAME]`.
    const NAME: &'static str;
    /// Names of the models that it can train, the one to start with first; empty where it needs none.
    const MODELS: &'static [&'static str] = &[];
    /// Type of the samples that it is trained on: every data set of that type serves. `None` where it needs no data.
    const SAMPLES: Option<SampleType> = None;
    /// Keys that stood elsewhere in older files, dotted, and the field of the settings that each is now: whoever writes the old
    /// one is told the new one.
    const MOVED: &'static [(&'static str, &'static str)] = &[];
    /// Validation metrics, in the order in which they are shown. The first chooses the best checkpoint unless the file names
    /// another.
    const METRICS: &'static [Metric];
    /// Items in a batch where `training.batch_size` does not say how many; `None` where the pipeline's own keys say it, as those
    /// of an episode do.
    const BATCH_SIZE: Option<usize> = None;
    /// Whether it holds gradients between steps, which the cleanup action `gradients` gives back. One whose gradients go with
    /// the step, as [`nn::step`](xrun_pipelines::nn::step) has it, holds none, and refuses the action.
    const HOLDS_GRADIENTS: bool = false;
    /// Leaks that can be switched on in it.
    const LEAKS: &'static [&'static Leak] = &[];
    /// Limits that not every experiment has a buffer for, and this pipeline has beside those of its data: see
    /// [`LIMITS_OF_KINDS`](crate::settings::sections::LIMITS_OF_KINDS).
    const LIMITS: &'static [&'static str] = &[];

    /// What may stand in the table. Doc comments of fields are the manual.
    type Settings: SettingsTable;
    /// Opened data and whatever else [`PipelineKind::open`] takes over.
    type Prepared: 'static;

    /// The command that does all of the work, where the pipeline is somebody else's program: it is started and looked at, and
    /// nothing is prepared or opened.
    fn command(_settings: &Self::Settings) -> Option<&Command> {
        None
    }

    /// Files and folders that the settings name, by the field's name. Relative ones are made absolute, from the file that
    /// names them.
    fn paths(_settings: &mut Self::Settings) -> Vec<(&'static str, &mut Option<String>)> {
        Vec::new()
    }

    /// Adds what contradicts itself in the settings, or between them and the rest of the experiment.
    fn check(_settings: &Self::Settings, _experiment: &Experiment, _problems: &mut Problems) {}

    /// Keys that say after how many steps a phase ends, with their values.
    fn steps_of_phases(_settings: &Self::Settings) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// What the data, as its kind saw it, means for this experiment: what will be smaller than asked for, and what is left
    /// out because this pipeline cannot use it. `seen` is [`Index::Seen`] of the data's index, as JSON.
    ///
    /// # Errors
    /// The data does not serve.
    fn look(_settings: &Self::Settings, _experiment: &Experiment, _seen: serde_json::Value) -> Result<Look, DataError> {
        Ok(Look::default())
    }

    /// Looks at the data, without a device; what it says goes into the plan. Buffers of the data enter the ledger.
    ///
    /// # Errors
    /// Data that cannot be used.
    fn prepare(
        settings: &Self::Settings,
        experiment: &Experiment,
        ledger: &Ledger,
    ) -> Result<(TaskFacts, Self::Prepared), TaskError>;

    /// Puts the model on the device. `first_step` is the first step that it will be asked for, so that its feed can start
    /// there.
    ///
    /// # Errors
    /// The device, or a file of weights.
    fn open(
        prepared: Self::Prepared,
        experiment: &Experiment,
        device: device::Kind,
        ledger: &Ledger,
        first_step: u64,
    ) -> Result<Box<dyn Task>, TaskError>;
}

/// A kind of model: the network that a pipeline trains.
pub trait ModelKind: Send + Sync + 'static {
    /// The name of its table: `[model.NAME]`.
    const NAME: &'static str;
    /// Keys that stood elsewhere in older files, dotted, and the field of the settings that each is now: whoever writes the old
    /// one is told the new one.
    const MOVED: &'static [(&'static str, &'static str)] = &[];
    /// What may stand in the table. Doc comments of fields are the manual.
    type Settings: SettingsTable;

    /// Adds what contradicts itself in the settings.
    fn check(_settings: &Self::Settings, _problems: &mut Problems) {}

    /// Files that the settings name, by the field's name. Relative ones are made absolute, from the file that names them.
    fn paths(_settings: &mut Self::Settings) -> Vec<(&'static str, &mut Option<String>)> {
        Vec::new()
    }
}

/// A [`PipelineKind`] whose type is known at run time only.
pub trait AnyPipeline: Kind {
    /// [`PipelineKind::MODELS`].
    fn models(&self) -> &'static [&'static str];
    /// [`PipelineKind::SAMPLES`].
    fn samples(&self) -> Option<SampleType>;
    /// [`PipelineKind::METRICS`].
    fn metrics(&self) -> &'static [Metric];
    /// [`PipelineKind::LEAKS`].
    fn leaks(&self) -> &'static [&'static Leak];
    /// [`PipelineKind::BATCH_SIZE`].
    fn batch_size(&self) -> Option<usize>;
    /// [`PipelineKind::HOLDS_GRADIENTS`].
    fn holds_gradients(&self) -> bool;
    /// [`PipelineKind::LIMITS`].
    fn limits(&self) -> &'static [&'static str];
    /// [`PipelineKind::command`].
    fn command<'a>(&self, settings: &'a dyn AnySettings) -> Option<&'a Command>;
    /// [`PipelineKind::paths`].
    fn paths<'a>(&self, settings: &'a mut dyn AnySettings) -> Vec<(&'static str, &'a mut Option<String>)>;
    /// [`PipelineKind::check`].
    fn check(&self, settings: &dyn AnySettings, experiment: &Experiment, problems: &mut Problems);
    /// [`PipelineKind::steps_of_phases`].
    fn steps_of_phases(&self, settings: &dyn AnySettings) -> Vec<(&'static str, u64)>;
    /// # Errors
    /// As [`PipelineKind::look`].
    fn look(
        &self,
        settings: &dyn AnySettings,
        experiment: &Experiment,
        seen: serde_json::Value,
    ) -> Result<Look, DataError>;
    /// # Errors
    /// As [`PipelineKind::prepare`].
    fn prepare(
        &self,
        settings: &dyn AnySettings,
        experiment: &Experiment,
        ledger: &Ledger,
    ) -> Result<(TaskFacts, Box<dyn Any>), TaskError>;
    /// # Errors
    /// As [`PipelineKind::open`].
    fn open(
        &self,
        prepared: Box<dyn Any>,
        experiment: &Experiment,
        device: device::Kind,
        ledger: &Ledger,
        first_step: u64,
    ) -> Result<Box<dyn Task>, TaskError>;
}

/// A [`ModelKind`] whose type is known at run time only.
pub trait AnyModel: Kind {
    /// [`ModelKind::check`].
    fn check(&self, settings: &dyn AnySettings, problems: &mut Problems);
    /// [`ModelKind::paths`].
    fn paths<'a>(&self, settings: &'a mut dyn AnySettings) -> Vec<(&'static str, &'a mut Option<String>)>;
}

/// A pipeline: its kind and its settings.
pub type Pipeline = Chosen<dyn AnyPipeline>;
/// A model: its kind and its settings.
pub type Model = Chosen<dyn AnyModel>;

static PIPELINES: Registered<dyn AnyPipeline> = Registered::new();
static MODELS: Registered<dyn AnyModel> = Registered::new();

impl Family for dyn AnyPipeline {
    const TITLE: &'static str = "Pipeline";

    fn registered() -> &'static Registered<Self> {
        &PIPELINES
    }
}

impl Family for dyn AnyModel {
    const TITLE: &'static str = "Model";

    fn registered() -> &'static Registered<Self> {
        &MODELS
    }
}

/// The kind of pipeline as it is registered.
pub const fn any_pipeline<P: PipelineKind>() -> &'static dyn AnyPipeline {
    &OfPipeline::<P>(PhantomData)
}

/// The kind of model as it is registered.
pub const fn any_model<M: ModelKind>() -> &'static dyn AnyModel {
    &OfModel::<M>(PhantomData)
}

struct OfPipeline<P>(PhantomData<fn() -> P>);
struct OfModel<M>(PhantomData<fn() -> M>);

impl<P: PipelineKind> Kind for OfPipeline<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<P::Settings>()
    }

    fn moved(&self) -> &'static [(&'static str, &'static str)] {
        P::MOVED
    }

    fn read(&self, from: &mut dyn erased_serde::Deserializer<'_>) -> Result<Box<dyn AnySettings>, erased_serde::Error> {
        read_settings::<P::Settings>(from)
    }
}

impl<P: PipelineKind> AnyPipeline for OfPipeline<P> {
    fn models(&self) -> &'static [&'static str] {
        P::MODELS
    }

    fn samples(&self) -> Option<SampleType> {
        P::SAMPLES
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

    fn holds_gradients(&self) -> bool {
        P::HOLDS_GRADIENTS
    }

    fn limits(&self) -> &'static [&'static str] {
        P::LIMITS
    }

    fn command<'a>(&self, settings: &'a dyn AnySettings) -> Option<&'a Command> {
        P::command(typed(settings))
    }

    fn paths<'a>(&self, settings: &'a mut dyn AnySettings) -> Vec<(&'static str, &'a mut Option<String>)> {
        P::paths(typed_mut(settings))
    }

    fn check(&self, settings: &dyn AnySettings, experiment: &Experiment, problems: &mut Problems) {
        P::check(typed(settings), experiment, problems);
    }

    fn steps_of_phases(&self, settings: &dyn AnySettings) -> Vec<(&'static str, u64)> {
        P::steps_of_phases(typed(settings))
    }

    fn look(
        &self,
        settings: &dyn AnySettings,
        experiment: &Experiment,
        seen: serde_json::Value,
    ) -> Result<Look, DataError> {
        P::look(typed(settings), experiment, seen)
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
        device: device::Kind,
        ledger: &Ledger,
        first_step: u64,
    ) -> Result<Box<dyn Task>, TaskError> {
        let prepared = prepared.downcast::<P::Prepared>().expect("what was prepared is opened by its kind");
        P::open(*prepared, experiment, device, ledger, first_step)
    }
}

impl<M: ModelKind> Kind for OfModel<M> {
    fn name(&self) -> &'static str {
        M::NAME
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<M::Settings>()
    }

    fn moved(&self) -> &'static [(&'static str, &'static str)] {
        M::MOVED
    }

    fn read(&self, from: &mut dyn erased_serde::Deserializer<'_>) -> Result<Box<dyn AnySettings>, erased_serde::Error> {
        read_settings::<M::Settings>(from)
    }
}

impl<M: ModelKind> AnyModel for OfModel<M> {
    fn check(&self, settings: &dyn AnySettings, problems: &mut Problems) {
        M::check(typed(settings), problems);
    }

    fn paths<'a>(&self, settings: &'a mut dyn AnySettings) -> Vec<(&'static str, &'a mut Option<String>)> {
        M::paths(typed_mut(settings))
    }
}

impl Pipeline {
    /// This kind with these settings, for an experiment that is built in code. To be read from a file, it is registered in
    /// the [`Program`](crate::Program).
    pub fn new<P: PipelineKind>(settings: P::Settings) -> Self {
        Self::with(any_pipeline::<P>(), settings)
    }

    /// Keys that say after how many steps a phase ends, with their values.
    pub fn steps_of_phases(&self) -> Vec<(&'static str, u64)> {
        self.kind().steps_of_phases(self.any())
    }

    /// Files and folders that the settings name, with their keys.
    pub fn paths(&mut self) -> impl Iterator<Item = (String, &mut String)> {
        let (kind, name) = (self.kind(), self.name());
        let all = kind.paths(self.any_mut()).into_iter();
        all.filter_map(move |(field, path)| Some((format!("pipeline.{name}.{field}"), path.as_mut()?)))
    }
}

impl Model {
    /// This kind with these settings; as [`Pipeline::new`].
    pub fn new<M: ModelKind>(settings: M::Settings) -> Self {
        Self::with(any_model::<M>(), settings)
    }

    /// Adds what contradicts itself in the settings.
    pub fn check(&self, problems: &mut Problems) {
        self.kind().check(self.any(), problems);
    }

    /// Files that the settings name, with their keys.
    pub fn paths(&mut self) -> impl Iterator<Item = (String, &mut String)> {
        let (kind, name) = (self.kind(), self.name());
        let all = kind.paths(self.any_mut()).into_iter();
        all.filter_map(move |(field, path)| Some((format!("model.{name}.{field}"), path.as_mut()?)))
    }
}

/// What a task was prepared with before the plan: opened data that the task takes over.
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
    /// Makes the task. `first_step` is the first step that it will be asked for.
    ///
    /// # Errors
    /// The device, or a file of weights.
    pub fn open(
        self,
        experiment: &Experiment,
        device: device::Kind,
        ledger: &Ledger,
        first_step: u64,
    ) -> Result<Box<dyn Task>, TaskError> {
        self.kind.open(self.prepared, experiment, device, ledger, first_step)
    }

    /// What a kind prepared, if it is of this type; for benchmarks, which look at the parts.
    pub fn into_parts<T: 'static>(self) -> Option<T> {
        self.prepared.downcast().ok().map(|prepared| *prepared)
    }
}

impl Experiment {
    /// Looks at the data, without a device; what it says goes into the plan. Buffers of the data enter the ledger.
    ///
    /// # Errors
    /// Data that cannot be used.
    pub fn prepare(&self, ledger: &Ledger) -> Result<(TaskFacts, Prepared), TaskError> {
        let kind = self.pipeline.kind();
        let (facts, prepared) = kind.prepare(self.pipeline.any(), self, ledger)?;
        Ok((facts, Prepared { kind, prepared }))
    }

    /// The command that does all of the work, where there is one.
    pub fn command(&self) -> Option<&Command> {
        self.pipeline.kind().command(self.pipeline.any())
    }

    /// The model's settings, if they are of this type.
    ///
    /// # Errors
    /// There is no such model. `xrun check` asks for one; this is for whoever builds an experiment in code.
    pub fn model_settings<T: 'static>(&self) -> Result<&T, TaskError> {
        let found = self.model.as_ref().and_then(|model| model.settings());
        found.ok_or_else(|| TaskError::Data(format!("`{}` needs another model", self.pipeline.name())))
    }

    /// Opens the data, whichever data set it is, if its index is of this type.
    ///
    /// # Errors
    /// There is no such data set, in the same way; or the data cannot be used.
    pub fn open_dataset<I: Index>(&self) -> Result<I, TaskError> {
        let other = || TaskError::Data(format!("`{}` needs a data set of {}", self.pipeline.name(), I::SAMPLES));
        let fits = |dataset: &&Dataset| dataset.samples() == SampleType::of::<I>();
        let dataset = self.dataset.as_ref().filter(fits).ok_or_else(other)?;
        let index = dataset.kind().open(dataset.any())?;
        index.downcast::<I>().map(|index| *index).map_err(|_| other())
    }

    /// Options of the data, whichever data set it is; `None` where its index is not of this type.
    pub fn dataset_options<I: Index>(&self) -> Option<I::Options> {
        let fits = |dataset: &&Dataset| dataset.samples() == SampleType::of::<I>();
        let dataset = self.dataset.as_ref().filter(fits)?;
        dataset.kind().options(dataset.any()).downcast().ok().map(|options| *options)
    }

    /// Whole key of a setting of the data set, such as `dataset.coco.path`.
    pub fn dataset_key(&self, key: &str) -> String {
        format!("dataset.{}.{key}", self.dataset_name())
    }

    /// Name of the data set; empty where there is none.
    pub fn dataset_name(&self) -> &'static str {
        self.dataset.as_ref().map_or("", Dataset::name)
    }

    /// The data's settings, if they are of this type.
    ///
    /// # Errors
    /// There is no such data set, in the same way.
    pub fn dataset_settings<T: 'static>(&self) -> Result<&T, TaskError> {
        let found = self.dataset.as_ref().and_then(|dataset| dataset.settings());
        found.ok_or_else(|| TaskError::Data(format!("`{}` needs another data set", self.pipeline.name())))
    }

    /// Leaks that are switched on.
    pub fn leaks_on(&self) -> impl Iterator<Item = &'static Leak> {
        self.pipeline.kind().leaks().iter().copied().filter(|leak| self.leaks.has(leak))
    }
}
