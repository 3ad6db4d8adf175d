//! Interface through which a pipeline uses open data, whichever data set it comes from.

use std::any::{Any, TypeId};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::description::Description;
use super::error::InvalidItems;
use super::kind::DatasetSummary;

/// An opened data set. Data sets with the same sample type open as the same Rust type, on which pipelines depend. It holds
/// names and numbers; samples are read on demand.
pub trait OpenDataset: Send + Sync + 'static {
    /// Plural name of the samples in messages: `images with boxes`.
    const SAMPLE_NOUN: &'static str;
    /// Summary for the checks of pipelines; `()` for none.
    type Summary: Serialize + DeserializeOwned;
    /// Settings that every data set of these samples has: how samples are read and cached. They are known before the data is
    /// opened. `()` for none.
    type LoaderSettings: Default + 'static;

    /// Invalid items that were left out (`on_invalid = "skip"`).
    fn skipped(&self) -> InvalidItems {
        InvalidItems::default()
    }

    /// Summary of the data.
    fn summary(&self) -> Self::Summary;

    /// Description of the data for people; empty by default.
    fn description(&self) -> Description {
        Description::default()
    }
}

/// Object-safe [`OpenDataset`], which is downcast to its type.
pub trait AnyDataset: Any {
    /// Summary of the data for `xrun check`, as JSON.
    fn summarise(&self) -> DatasetSummary<serde_json::Value>;
}

impl<D: OpenDataset> AnyDataset for D {
    fn summarise(&self) -> DatasetSummary<serde_json::Value> {
        let (skipped, description, summary) = (self.skipped(), self.description(), self.summary());
        DatasetSummary { skipped, notes: Vec::new(), description, summary }.into_json()
    }
}

/// Type of sample, identified by the type of its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleType {
    index: TypeId,
    /// [`OpenDataset::SAMPLE_NOUN`].
    pub name: &'static str,
}

impl SampleType {
    /// Type of the samples of `D`.
    pub const fn of<D: OpenDataset>() -> Self {
        Self { index: TypeId::of::<D>(), name: D::SAMPLE_NOUN }
    }
}
