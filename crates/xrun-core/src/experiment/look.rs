//! Inspection of an experiment's data for `xrun check`.

use super::Experiment;
use crate::dataset;
use crate::dataset::error::{Broken, DataError};
use crate::task::smaller::Smaller;

/// Result of inspecting usable data for a pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Items that a run would leave out.
    pub left_out: Broken,
    /// Notes for people, a line each.
    pub notes: Vec<String>,
    /// Settings that a run would lower.
    pub smaller: Vec<Smaller>,
}

impl From<Vec<Smaller>> for Look {
    fn from(smaller: Vec<Smaller>) -> Self {
        Self { smaller, ..Self::default() }
    }
}

/// Inspects data of the user; generated data needs no inspection.
///
/// # Errors
/// Every fault of the data that would end a run before its first step.
pub fn look(experiment: &Experiment) -> Result<Look, DataError> {
    let Some(dataset) = &experiment.dataset else { return Ok(Look::default()) };
    let Some(inspected) = dataset::look::look(dataset)? else { return Ok(Look::default()) };
    let pipeline = &experiment.pipeline;
    let of_pipeline = pipeline.kind().look(pipeline.any(), experiment, inspected.seen)?;
    let mut left_out = inspected.left_out;
    left_out.append(&of_pipeline.left_out);
    Ok(Look { left_out, notes: inspected.notes, ..of_pipeline })
}
