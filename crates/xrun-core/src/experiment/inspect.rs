//! Inspection of an experiment's data for `xrun check`.

use std::any::Any;

use serde::Deserialize;

use super::Experiment;
use crate::dataset::description::Description;
use crate::dataset::error::{DataError, InvalidItems};
use crate::dataset::open_dataset::{AnyDataset, OpenDataset};
use crate::task::lowered::LoweredSetting;

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

/// Inspects data of the user; generated data needs no inspection.
///
/// # Errors
/// Every fault of the data that would end a run before its first step.
pub fn inspect(experiment: &Experiment) -> Result<Inspection, DataError> {
    let Some(dataset) = experiment.dataset.as_ref().filter(|dataset| !dataset.files().is_empty()) else {
        return Ok(Inspection::default());
    };
    let (inspected, opened) = dataset.inspect()?;
    let seen = InspectedData { summary: inspected.summary, opened };
    let of_pipeline = experiment.pipeline.inspect(experiment, seen)?;
    let mut skipped = inspected.skipped;
    skipped.append(&of_pipeline.skipped);
    Ok(Inspection { skipped, notes: inspected.notes, description: inspected.description, ..of_pipeline })
}
