//! What would a run say about its data? `xrun check` asks.

use super::Experiment;
use crate::dataset;
use crate::dataset::error::{Broken, DataError};
use crate::task::smaller::Smaller;

/// What there is to say about data that can be used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Items of the data that a run would leave out.
    pub left_out: Broken,
    /// What else there is to say about the data, for people.
    pub notes: Vec<String>,
    /// What a run would have less of than the experiment asks for.
    pub smaller: Vec<Smaller>,
}

impl From<Vec<Smaller>> for Look {
    fn from(smaller: Vec<Smaller>) -> Self {
        Self { smaller, ..Self::default() }
    }
}

/// Looks at data that people made; what xrun generates is as it should be.
///
/// # Errors
/// All that would end a run before its first step.
pub fn look(experiment: &Experiment) -> Result<Look, DataError> {
    let Some(dataset) = &experiment.dataset else { return Ok(Look::default()) };
    let Some(found) = dataset::look::look(dataset)? else { return Ok(Look::default()) };
    let pipeline = &experiment.pipeline;
    let look = pipeline.kind().look(pipeline.any(), experiment, found.seen)?;
    let mut left_out = found.left_out;
    left_out.append(&look.left_out);
    Ok(Look { left_out, notes: found.notes, ..look })
}
