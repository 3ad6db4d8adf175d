//! Error for pipelines that train a model, in a build without Burn.

use xrun_core::experiment::pipeline::Opening;
use xrun_core::pipelines::dummy::task::DummyTask;
use xrun_core::task::TaskError;

/// Replaces the `open` of each pipeline. The type of the task is any, since there is none.
///
/// # Errors
/// Always.
pub fn open<P>(_: P, _: Opening<'_>) -> Result<DummyTask, TaskError> {
    Err(TaskError::Device(
        "this program was built without Burn and cannot train models; run `cargo build --release`".into(),
    ))
}
