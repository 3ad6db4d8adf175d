//! Summary and description of a data set of images with boxes.

use serde::{Deserialize, Serialize};

use super::describe;
use super::drawn::{Drawn, drawn_classes};
use super::few_shot;
use super::library::Library;
use crate::reading::decoding::Largest;
use xrun_core::dataset::description::Description;
use xrun_core::dataset::error::{DataError, InvalidItems};
use xrun_core::dataset::open_dataset::OpenDataset;

/// The summary of images with boxes that pipelines judge them by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoxSummary {
    /// The classes that episodes can be drawn from.
    pub drawn: Drawn,
    /// The image that takes most memory to decode.
    pub largest: Option<Largest>,
    /// The requirements of few-shot episodes that it does not meet, if any.
    pub lacking: Option<DataError>,
}

/// Facts about images with boxes that the settings alone tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoaderSettings {
    /// Number of classes to train on; `None` where the data says it.
    pub train_class_count: Option<usize>,
}

impl OpenDataset for Library {
    const SAMPLE_NOUN: &'static str = "images with boxes";
    type Summary = BoxSummary;
    type LoaderSettings = LoaderSettings;

    fn skipped(&self) -> InvalidItems {
        self.skipped.clone()
    }

    fn summary(&self) -> Self::Summary {
        BoxSummary { drawn: drawn_classes(self), largest: self.largest.clone(), lacking: few_shot::lacking(self) }
    }

    fn description(&self) -> Description {
        describe::describe(self)
    }
}
