//! What is a kind of data set? One type that says all of itself; `Program::dataset` registers it.

use std::any::Any;
use std::marker::PhantomData;
use std::path::PathBuf;

use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::error::{Broken, DataError};
use super::index::{Index, SampleType};
use crate::problem::Problems;
use crate::settings::chosen::{
    AnySettings, Chosen, Family, Kind, Registered, SettingsTable, read_settings, typed, typed_mut,
};

/// A kind of data set. Only a name and settings are needed; the rest has a default that suits data which is made in memory.
pub trait DatasetKind: Send + Sync + 'static {
    /// The name of its table: `[dataset.NAME]`.
    const NAME: &'static str;
    /// Keys and whole tables of older files, dotted, and the field of the settings that each is now; an empty field for a table
    /// that this kind replaces. An error about an old one names the new one.
    const MOVED: &'static [(&'static str, &'static str)] = &[];
    /// Limits that not every experiment has a buffer for, and this data has, such as `frame_cache`: see
    /// [`LIMITS_OF_KINDS`](crate::settings::sections::LIMITS_OF_KINDS).
    const LIMITS: &'static [&'static str] = &[];
    /// What may stand in the table. Doc comments of fields are the manual.
    type Settings: SettingsTable;
    /// Open data, which pipelines take by its type.
    type Index: Index;

    /// Adds what contradicts itself in the settings, and files that are not there.
    fn check(_settings: &Self::Settings, _problems: &mut Problems) {}

    /// Files and folders that the settings name, by the field's name. Relative ones are made absolute, from the file that
    /// names them.
    fn paths(_settings: &mut Self::Settings) -> Vec<(&'static str, &mut Option<String>)> {
        Vec::new()
    }

    /// What opening the data writes first, for people; `None` when it is there. Writing may take minutes.
    fn pending(_settings: &Self::Settings) -> Option<String> {
        None
    }

    /// The files of the data are hashed again when it is opened next, whatever is known of them.
    fn verify(_settings: &Self::Settings) {}

    /// Files and folders that people made and that a look reads; empty where xrun generates the data, which is as it should
    /// be and is not looked at.
    fn files(_settings: &Self::Settings) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Options of the samples under these settings, for the pipelines that take them.
    fn options(_settings: &Self::Settings) -> <Self::Index as Index>::Options {
        Default::default()
    }

    /// Opens the data, without a device. What is to be generated is written now.
    ///
    /// # Errors
    /// All that would end a run before its first step, whatever its pipeline.
    fn open(settings: &Self::Settings) -> Result<Self::Index, DataError>;

    /// Summary of the data for `xrun check`.
    ///
    /// # Errors
    /// As [`DatasetKind::open`].
    fn look(settings: &Self::Settings) -> Result<Look<<Self::Index as Index>::Seen>, DataError> {
        let index = Self::open(settings)?;
        Ok(Look { left_out: index.left_out(), notes: Vec::new(), seen: index.seen() })
    }
}

/// What there is to say about data that can be used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Look<T> {
    /// What was left out of it, and why.
    pub left_out: Broken,
    /// Notes about it for people; a few lines.
    pub notes: Vec<String>,
    /// What a pipeline wants to know of it.
    pub seen: T,
}

/// A [`DatasetKind`] whose type is known at run time only.
pub trait AnyDataset: Kind {
    /// [`DatasetKind::check`].
    fn check(&self, settings: &dyn AnySettings, problems: &mut Problems);
    /// [`DatasetKind::paths`].
    fn paths<'a>(&self, settings: &'a mut dyn AnySettings) -> Vec<(&'static str, &'a mut Option<String>)>;
    /// [`DatasetKind::LIMITS`].
    fn limits(&self) -> &'static [&'static str];
    /// [`DatasetKind::pending`].
    fn pending(&self, settings: &dyn AnySettings) -> Option<String>;
    /// [`DatasetKind::verify`].
    fn verify(&self, settings: &dyn AnySettings);
    /// [`DatasetKind::files`].
    fn files(&self, settings: &dyn AnySettings) -> Vec<PathBuf>;
    /// Type of its samples.
    fn samples(&self) -> SampleType;
    /// As [`DatasetKind::options`]: of the type that belongs to [`AnyDataset::samples`].
    fn options(&self, settings: &dyn AnySettings) -> Box<dyn Any>;
    /// As [`DatasetKind::open`]: an index of the type that [`AnyDataset::samples`] says.
    ///
    /// # Errors
    /// As there.
    fn open(&self, settings: &dyn AnySettings) -> Result<Box<dyn Any>, DataError>;
    /// As [`DatasetKind::look`], with what was seen as JSON.
    ///
    /// # Errors
    /// As there.
    fn look(&self, settings: &dyn AnySettings) -> Result<Look<serde_json::Value>, DataError>;
}

/// A data set: its kind and its settings.
pub type Dataset = Chosen<dyn AnyDataset>;

static DATASETS: Registered<dyn AnyDataset> = Registered::new();

impl Family for dyn AnyDataset {
    const TITLE: &'static str = "Dataset";

    fn registered() -> &'static Registered<Self> {
        &DATASETS
    }
}

/// The kind as it is registered.
pub const fn any<D: DatasetKind>() -> &'static dyn AnyDataset {
    &Of::<D>(PhantomData)
}

struct Of<D>(PhantomData<fn() -> D>);

impl<D: DatasetKind> Kind for Of<D> {
    fn name(&self) -> &'static str {
        D::NAME
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<D::Settings>()
    }

    fn moved(&self) -> &'static [(&'static str, &'static str)] {
        D::MOVED
    }

    fn read(&self, from: &mut dyn erased_serde::Deserializer<'_>) -> Result<Box<dyn AnySettings>, erased_serde::Error> {
        read_settings::<D::Settings>(from)
    }
}

impl<D: DatasetKind> AnyDataset for Of<D> {
    fn check(&self, settings: &dyn AnySettings, problems: &mut Problems) {
        D::check(typed(settings), problems);
    }

    fn paths<'a>(&self, settings: &'a mut dyn AnySettings) -> Vec<(&'static str, &'a mut Option<String>)> {
        D::paths(typed_mut(settings))
    }

    fn limits(&self) -> &'static [&'static str] {
        D::LIMITS
    }

    fn pending(&self, settings: &dyn AnySettings) -> Option<String> {
        D::pending(typed(settings))
    }

    fn verify(&self, settings: &dyn AnySettings) {
        D::verify(typed(settings));
    }

    fn files(&self, settings: &dyn AnySettings) -> Vec<PathBuf> {
        D::files(typed(settings))
    }

    fn samples(&self) -> SampleType {
        SampleType::of::<D::Index>()
    }

    fn options(&self, settings: &dyn AnySettings) -> Box<dyn Any> {
        Box::new(D::options(typed(settings)))
    }

    fn open(&self, settings: &dyn AnySettings) -> Result<Box<dyn Any>, DataError> {
        Ok(Box::new(D::open(typed(settings))?))
    }

    fn look(&self, settings: &dyn AnySettings) -> Result<Look<serde_json::Value>, DataError> {
        let Look { left_out, notes, seen } = D::look(typed(settings))?;
        // What was seen always serialises: it is written into a file next.
        Ok(Look { left_out, notes, seen: serde_json::to_value(seen).unwrap_or_default() })
    }
}

impl Dataset {
    /// This kind with these settings, for an experiment that is built in code.
    pub fn new<D: DatasetKind>(settings: D::Settings) -> Self {
        Self::with(any::<D>(), settings)
    }

    /// Adds what contradicts itself in the settings, and files that are not there.
    pub fn check(&self, problems: &mut Problems) {
        self.kind().check(self.any(), problems);
    }

    /// Files and folders that the settings name, with their keys.
    pub fn paths(&mut self) -> impl Iterator<Item = (String, &mut String)> {
        let (kind, name) = (self.kind(), self.name());
        let all = kind.paths(self.any_mut()).into_iter();
        all.filter_map(move |(field, path)| Some((format!("dataset.{name}.{field}"), path.as_mut()?)))
    }

    /// What opening the data writes first, for people; `None` when it is there. Writing may take minutes.
    pub fn pending(&self) -> Option<String> {
        self.kind().pending(self.any())
    }

    /// Limits of [`LIMITS_OF_KINDS`](crate::settings::sections::LIMITS_OF_KINDS) that it has buffers for.
    pub fn limits(&self) -> &'static [&'static str] {
        self.kind().limits()
    }

    /// The files of the data are hashed again when it is opened next, whatever is known of them.
    pub fn verify(&self) {
        self.kind().verify(self.any());
    }

    /// Names of the data sets of this type of sample, in the order in which they were registered.
    pub fn names_of(samples: SampleType) -> Vec<&'static str> {
        let all = <dyn AnyDataset>::registered().all().iter();
        all.filter(|kind| kind.samples() == samples).map(|kind| kind.name()).collect()
    }

    /// Type of its samples.
    pub fn samples(&self) -> SampleType {
        self.kind().samples()
    }

    /// Files and folders that people made and that a look reads.
    pub fn files(&self) -> Vec<PathBuf> {
        self.kind().files(self.any())
    }
}
