//! What does a build without Burn say of pipelines that train a model?

use crate::bounded::ledger::Ledger;
use crate::device::Kind;
use crate::experiment::Experiment;
use crate::task::{Task, TaskError};

/// Takes the place of a pipeline's own `open`.
///
/// # Errors
/// Always.
pub fn open<P>(_: P, _: &Experiment, _: Kind, _: &Ledger, _: u64) -> Result<Box<dyn Task>, TaskError> {
    Err(TaskError::Device("this program was built without Burn and trains no models (cargo build --release)".into()))
}
