//! Error for pipelines that train a model, in a build without Burn.

use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::DeviceKind;
use xrun_core::experiment::Experiment;
use xrun_core::task::{Task, TaskError};

/// Replaces the `open` of each pipeline.
///
/// # Errors
/// Always.
pub fn open<P>(_: P, _: &Experiment, _: DeviceKind, _: &Ledger, _: u64) -> Result<Box<dyn Task>, TaskError> {
    Err(TaskError::Device(
        "this program was built without Burn and cannot train models; run `cargo build --release`".into(),
    ))
}
