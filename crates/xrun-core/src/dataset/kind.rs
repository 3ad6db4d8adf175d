//! Kinds of data sets: settings that implement [`DatasetKind`], registered with `Program::dataset`.

use std::any::Any;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::description::Description;
use super::error::{DataError, InvalidItems};
use super::open_dataset::{AnyDataset, SampleType};
use crate::problem::Problems;
use crate::settings::variant::{AnySettings, Kind, Paths, Section, Variant, section};

/// Properties of a kind of data set that do not depend on settings.
#[derive(Clone, Copy, Debug)]
pub struct DatasetFacts {
    /// Type of its samples, by which pipelines accept a data set.
    pub sample_type: SampleType,
    /// Optional limits that apply to this data, such as `frame_cache`; see
    /// [`LIMITS_OF_KINDS`](crate::settings::sections::LIMITS_OF_KINDS).
    pub limit_keys: &'static [&'static str],
}

/// A kind of data set: implemented by its settings, the table `[dataset.NAME]`, whose doc comments are the manual. `kind` and
/// `open` are required; the defaults of the rest suit data made in memory.
pub trait DatasetKind: AnySettings {
    /// Description of the kind, a constant.
    fn kind() -> &'static Kind<dyn DatasetKind>
    where
        Self: Sized;

    /// Adds problems of the settings, such as contradictions and missing files.
    fn check(&self, _problems: &mut Problems) {}

    /// Paths in the settings with the names of their fields. Relative ones are made absolute, against the directory of the
    /// experiment file.
    fn paths(&mut self) -> Paths<'_> {
        Vec::new()
    }

    /// Notice of the data that `open` would generate first, which may take minutes; `None` when it is in the cache.
    fn generation_notice(&self) -> Option<String> {
        None
    }

    /// Discards the known digests, so that the next `open` hashes all files.
    fn forget_digests(&self) {}

    /// Files and directories of the user that an inspection reads; empty for generated data, which is not inspected.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Options of the samples under these settings, for the pipelines that take them:
    /// [`OpenDataset::LoaderSettings`](super::open_dataset::OpenDataset::LoaderSettings), or `()` for their defaults.
    fn loader_settings(&self) -> Box<dyn Any> {
        Box::new(())
    }

    /// Opens the data, without a device: a value of the type of [`DatasetFacts::sample_type`]. Generated data is written first if
    /// it is missing.
    ///
    /// # Errors
    /// Every fault of the data that would end a run of any pipeline before its first step.
    fn open(&self) -> Result<Box<dyn AnyDataset>, DataError>;

    /// Summary of the data for `xrun check`, and the open data where it was opened as for a run.
    ///
    /// # Errors
    /// As [`DatasetKind::open`].
    fn inspect(&self) -> Result<Inspected, DataError> {
        let opened = self.open()?;
        Ok((opened.summarise(), Some(opened)))
    }
}

/// Summary of a data set, and the open data set where it was opened as for a run.
pub type Inspected = (DatasetSummary<serde_json::Value>, Option<Box<dyn AnyDataset>>);

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

impl<T: Serialize> DatasetSummary<T> {
    /// Summary as JSON.
    pub fn into_json(self) -> DatasetSummary<serde_json::Value> {
        let Self { skipped, notes, description, summary } = self;
        // Summaries contain no map with other keys than strings, so serialising cannot fail.
        let summary = serde_json::to_value(summary).unwrap_or_default();
        DatasetSummary { skipped, notes, description, summary }
    }
}

/// A data set: its kind and its settings.
pub type Dataset = Variant<dyn DatasetKind>;

section!(DatasetKind, "Dataset", DatasetFacts);

impl Dataset {
    /// Names of the registered data sets with this type of sample, in the order of registration.
    pub fn names_of(samples: SampleType) -> Vec<&'static str> {
        let all = <dyn DatasetKind>::registry().all().iter();
        all.filter(|kind| kind.facts.sample_type == samples).map(|kind| kind.name).collect()
    }
}
