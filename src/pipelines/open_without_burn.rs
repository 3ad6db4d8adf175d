//! A build without Burn opens the dummy pipeline and says what is missing for the others.

use super::Prepared;
use super::dummy::task::Dummy;
use crate::device::Chosen;
use crate::memory::ledger::Ledger;
use crate::plan::Plan;
use crate::task::{Task, TaskError};

/// Makes the task. `first_step` is the first step that it will be asked for, so that its feed can start there.
pub fn open(
    plan: &Plan,
    prepared: Prepared,
    _chosen: &Chosen,
    ledger: &Ledger,
    _first_step: u64,
) -> Result<Box<dyn Task>, TaskError> {
    match prepared {
        Prepared::FewshotDetection(_) | Prepared::QatLanguageModel(_) => Err(TaskError::Device(
            "this xrun was built without Burn and trains no models (cargo build --release)".into(),
        )),
        Prepared::Dummy(settings) => Ok(Box::new(Dummy::new(settings, plan.experiment.experiment.seed, ledger))),
    }
}
