//! Kinds of data sets: a type that implements [`DatasetKind`], registered with `Program::dataset`.

use std::any::Any;
use std::marker::PhantomData;
use std::path::PathBuf;

use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::description::Description;
use super::error::{DataError, InvalidItems};
use super::open_dataset::{OpenDataset, SampleType};
use crate::problem::Problems;
use crate::settings::variant::{
    AnySettings, Kind, RegisteredKind, Registry, SettingsTable, Variant, read_settings, typed, typed_mut,
};

/// A kind of data set. Name, settings, index and `open` are required; the defaults of the rest suit data made in memory.
pub trait DatasetKind: Send + Sync + 'static {
    /// Name of its table: `[dataset.NAME]`.
    const NAME: &'static str;
    /// Optional limits that apply to this data, such as `frame_cache`; see
    /// [`LIMITS_OF_KINDS`](crate::settings::sections::LIMITS_OF_KINDS).
    const LIMIT_KEYS: &'static [&'static str] = &[];
    /// Keys of the table. Doc comments of the fields are the manual.
    type Settings: SettingsTable;
    /// Type of the open data, by which pipelines accept a data set.
    type Opened: OpenDataset;

    /// Adds problems of the settings, such as contradictions and missing files.
    fn check(_settings: &Self::Settings, _problems: &mut Problems) {}

    /// Paths in the settings with the names of their fields. Relative ones are made absolute, against the directory of the
    /// experiment file.
    fn paths(_settings: &mut Self::Settings) -> Vec<(&'static str, &mut Option<String>)> {
        Vec::new()
    }

    /// Notice of the data that `open` would generate first, which may take minutes; `None` when it is in the cache.
    fn generation_notice(_settings: &Self::Settings) -> Option<String> {
        None
    }

    /// Discards the known digests, so that the next `open` hashes all files.
    fn forget_digests(_settings: &Self::Settings) {}

    /// Files and directories of the user that an inspection reads; empty for generated data, which is not inspected.
    fn files(_settings: &Self::Settings) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Options of the samples under these settings, for the pipelines that take them.
    fn loader_settings(_settings: &Self::Settings) -> <Self::Opened as OpenDataset>::LoaderSettings {
        Default::default()
    }

    /// Opens the data, without a device. Generated data is written first if it is missing.
    ///
    /// # Errors
    /// Every fault of the data that would end a run of any pipeline before its first step.
    fn open(settings: &Self::Settings) -> Result<Self::Opened, DataError>;

    /// Summary of the data for `xrun check`, and the open data where it was opened as for a run.
    ///
    /// # Errors
    /// As [`DatasetKind::open`].
    fn inspect(settings: &Self::Settings) -> Result<InspectedData<Self::Opened>, DataError> {
        let index = Self::open(settings)?;
        let summary = DatasetSummary {
            skipped: index.skipped(),
            notes: Vec::new(),
            description: index.description(),
            summary: index.summary(),
        };
        Ok((summary, Some(index)))
    }
}

/// Summary of a data set, and the open data set where it was opened as for a run.
pub type InspectedData<D> = (DatasetSummary<<D as OpenDataset>::Summary>, Option<D>);

/// Result of inspecting usable data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatasetSummary<T> {
    /// Invalid items that were left out, by reason.
    pub skipped: InvalidItems,
    /// Human-readable notes, a line each; a few.
    pub notes: Vec<String>,
    /// Description for people.
    pub description: Description,
    /// Summary for the checks of a pipeline.
    pub summary: T,
}

/// Object-safe form of [`DatasetKind`].
pub trait AnyDataset: Kind {
    /// [`DatasetKind::check`].
    fn check(&self, settings: &dyn AnySettings, problems: &mut Problems);
    /// [`DatasetKind::paths`].
    fn paths<'a>(&self, settings: &'a mut dyn AnySettings) -> Vec<(&'static str, &'a mut Option<String>)>;
    /// [`DatasetKind::LIMIT_KEYS`].
    fn limits(&self) -> &'static [&'static str];
    /// [`DatasetKind::generation_notice`].
    fn generation_notice(&self, settings: &dyn AnySettings) -> Option<String>;
    /// [`DatasetKind::forget_digests`].
    fn forget_digests(&self, settings: &dyn AnySettings);
    /// [`DatasetKind::files`].
    fn files(&self, settings: &dyn AnySettings) -> Vec<PathBuf>;
    /// Type of the samples.
    fn samples(&self) -> SampleType;
    /// As [`DatasetKind::loader_settings`]: of the type that belongs to [`AnyDataset::samples`].
    fn loader_settings(&self, settings: &dyn AnySettings) -> Box<dyn Any>;
    /// As [`DatasetKind::open`]; the value is an index of the type [`AnyDataset::samples`].
    ///
    /// # Errors
    /// See there.
    fn open(&self, settings: &dyn AnySettings) -> Result<Box<dyn Any>, DataError>;
    /// As [`DatasetKind::inspect`], with the summary as JSON.
    ///
    /// # Errors
    /// See there.
    fn inspect(
        &self,
        settings: &dyn AnySettings,
    ) -> Result<(DatasetSummary<serde_json::Value>, Option<Box<dyn Any>>), DataError>;
}

/// A data set: its kind and its settings.
pub type Dataset = Variant<dyn AnyDataset>;

static DATASETS: Registry<dyn AnyDataset> = Registry::new();

impl RegisteredKind for dyn AnyDataset {
    const SECTION: &'static str = "Dataset";

    fn registry() -> &'static Registry<Self> {
        &DATASETS
    }
}

/// Object-safe form of `D`, for the registration.
pub const fn any<D: DatasetKind>() -> &'static dyn AnyDataset {
    &Erased::<D>(PhantomData)
}

struct Erased<D>(PhantomData<fn() -> D>);

impl<D: DatasetKind> Kind for Erased<D> {
    fn name(&self) -> &'static str {
        D::NAME
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<D::Settings>()
    }

    fn read(&self, from: &mut dyn erased_serde::Deserializer<'_>) -> Result<Box<dyn AnySettings>, erased_serde::Error> {
        read_settings::<D::Settings>(from)
    }
}

impl<D: DatasetKind> AnyDataset for Erased<D> {
    fn check(&self, settings: &dyn AnySettings, problems: &mut Problems) {
        D::check(typed(settings), problems);
    }

    fn paths<'a>(&self, settings: &'a mut dyn AnySettings) -> Vec<(&'static str, &'a mut Option<String>)> {
        D::paths(typed_mut(settings))
    }

    fn limits(&self) -> &'static [&'static str] {
        D::LIMIT_KEYS
    }

    fn generation_notice(&self, settings: &dyn AnySettings) -> Option<String> {
        D::generation_notice(typed(settings))
    }

    fn forget_digests(&self, settings: &dyn AnySettings) {
        D::forget_digests(typed(settings));
    }

    fn files(&self, settings: &dyn AnySettings) -> Vec<PathBuf> {
        D::files(typed(settings))
    }

    fn samples(&self) -> SampleType {
        SampleType::of::<D::Opened>()
    }

    fn loader_settings(&self, settings: &dyn AnySettings) -> Box<dyn Any> {
        Box::new(D::loader_settings(typed(settings)))
    }

    fn open(&self, settings: &dyn AnySettings) -> Result<Box<dyn Any>, DataError> {
        Ok(Box::new(D::open(typed(settings))?))
    }

    fn inspect(
        &self,
        settings: &dyn AnySettings,
    ) -> Result<(DatasetSummary<serde_json::Value>, Option<Box<dyn Any>>), DataError> {
        let (DatasetSummary { skipped, notes, description, summary }, opened) = D::inspect(typed(settings))?;
        // Summaries contain no map with other keys than strings, so serialising cannot fail.
        let summary = serde_json::to_value(summary).unwrap_or_default();
        let opened = opened.map(|opened| Box::new(opened) as Box<dyn Any>);
        Ok((DatasetSummary { skipped, notes, description, summary }, opened))
    }
}

impl Dataset {
    /// Data set with these settings, for an experiment built in code.
    pub fn new<D: DatasetKind>(settings: D::Settings) -> Self {
        Self::with(any::<D>(), settings)
    }

    /// Adds problems of the settings, such as contradictions and missing files.
    pub fn check(&self, problems: &mut Problems) {
        self.kind().check(self.any(), problems);
    }

    /// Paths in the settings with their dotted keys.
    pub fn paths(&mut self) -> impl Iterator<Item = (String, &mut String)> {
        let (kind, name) = (self.kind(), self.name());
        let all = kind.paths(self.any_mut()).into_iter();
        all.filter_map(move |(field, path)| Some((format!("dataset.{name}.{field}"), path.as_mut()?)))
    }

    /// Description of what opening the data would generate first; `None` when it is in the cache.
    pub fn generation_notice(&self) -> Option<String> {
        self.kind().generation_notice(self.any())
    }

    /// Those of [`LIMITS_OF_KINDS`](crate::settings::sections::LIMITS_OF_KINDS) that apply to this data.
    pub fn limits(&self) -> &'static [&'static str] {
        self.kind().limits()
    }

    /// Discards the known digests, so that the next `open` hashes all files.
    pub fn forget_digests(&self) {
        self.kind().forget_digests(self.any());
    }

    /// Names of the registered data sets with this type of sample, in the order of registration.
    pub fn names_of(samples: SampleType) -> Vec<&'static str> {
        let all = <dyn AnyDataset>::registry().all().iter();
        all.filter(|kind| kind.samples() == samples).map(|kind| kind.name()).collect()
    }

    /// Type of the samples.
    pub fn samples(&self) -> SampleType {
        self.kind().samples()
    }

    /// Files and directories of the user that an inspection reads.
    pub fn files(&self) -> Vec<PathBuf> {
        self.kind().files(self.any())
    }
}
