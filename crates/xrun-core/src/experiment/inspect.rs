//! Inspection of an experiment's data for `xrun check`.

use super::Experiment;
use super::pipeline::{InspectedData, Inspection};
use crate::dataset::error::DataError;

/// Inspects data of the user; generated data needs no inspection.
///
/// # Errors
/// Every fault of the data that would end a run before its first step.
pub fn inspect(experiment: &Experiment) -> Result<Inspection, DataError> {
    let Some(dataset) = experiment.dataset.as_ref().filter(|dataset| !dataset.files().is_empty()) else {
        return Ok(Inspection::default());
    };
    let (inspected, opened) = dataset.inspect()?;
    let seen = InspectedData::new(inspected.summary, opened);
    let of_pipeline = experiment.pipeline.inspect(experiment, seen)?;
    let mut skipped = inspected.skipped;
    skipped.append(&of_pipeline.skipped);
    let notes = inspected.notes.into_iter().chain(of_pipeline.notes).collect();
    Ok(Inspection { skipped, notes, description: inspected.description, lowered: of_pipeline.lowered })
}
