//! Inspection of an experiment's data for `xrun check`.

use super::Experiment;
use super::pipeline::DataSummary;
use crate::dataset;
use crate::dataset::description::Description;
use crate::dataset::error::{DataError, InvalidItems};
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
    let Some(dataset) = &experiment.dataset else { return Ok(Inspection::default()) };
    let Some(inspected) = dataset::inspect::inspect(dataset)? else { return Ok(Inspection::default()) };
    let of_pipeline = experiment.pipeline.inspect(experiment, DataSummary(inspected.summary))?;
    let mut skipped = inspected.skipped;
    skipped.append(&of_pipeline.skipped);
    Ok(Inspection { skipped, notes: inspected.notes, description: inspected.description, ..of_pipeline })
}
