//! The contract between data sets and pipelines: what a pipeline knows of open data, whichever data set it is.

use std::any::TypeId;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::Broken;

/// Open data of one type of sample. All data sets of that type give the same type of index, so a pipeline names the index
/// and never a data set. It holds names and numbers; samples are read when they are asked for.
pub trait Index: Send + Sync + 'static {
    /// Name of its samples in messages, in the plural: `images with boxes`.
    const SAMPLES: &'static str;
    /// Summary that pipelines judge the data by, kept until a file of the data changes; `()` for none.
    type Seen: Serialize + DeserializeOwned;
    /// Settings that every data set of these samples has: how samples are read and cached. They are known before the data is
    /// opened. `()` for none.
    type Options: Default + 'static;

    /// Number of samples, of all splits.
    fn count(&self) -> u64;

    /// SHA-256 of all that the samples are made of, in hexadecimal.
    fn digest(&self) -> &str;

    /// Broken parts that were left out (`on_broken = "skip"`).
    fn left_out(&self) -> Broken {
        Broken::default()
    }

    /// Summary of it.
    fn seen(&self) -> Self::Seen;
}

/// A type of sample: that of a type of index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SampleType {
    index: TypeId,
    name: &'static str,
}

impl SampleType {
    /// Type of the samples of an index.
    pub const fn of<I: Index>() -> Self {
        Self { index: TypeId::of::<I>(), name: I::SAMPLES }
    }

    /// [`Index::SAMPLES`].
    pub fn name(self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for SampleType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SampleType({})", self.name)
    }
}
