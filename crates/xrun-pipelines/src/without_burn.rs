//! What does a build without Burn say of pipelines that train a model?

use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::Kind;
use xrun_core::experiment::Experiment;
use xrun_core::task::{Task, TaskError};

/// Takes the place of a pipeline's own `open`.
///
/// # Errors
/// Always.
pub fn open<P>(_: P, _: &Experiment, _: Kind, _: &Ledger, _: u64) -> Result<Box<dyn Task>, TaskError> {
    Err(TaskError::Device("this program was built without Burn and trains no models (cargo build --release)".into()))
}
