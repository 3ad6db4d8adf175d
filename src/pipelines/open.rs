//! From a plan and a device to a thing that can step.

use super::Prepared;
use super::dummy::task::Dummy;
use super::fewshot_detection::task::FewshotDetection;
use super::qat_language_model::task::QatLanguageModel;
use crate::device::Chosen;
use crate::memory::ledger::Ledger;
use crate::plan::Plan;
use crate::task::{Task, TaskError};

/// Makes the task. `first_step` is the first step that it will be asked for, so that its feed can start there.
pub fn open(
    plan: &Plan,
    prepared: Prepared,
    chosen: &Chosen,
    ledger: &Ledger,
    first_step: u64,
) -> Result<Box<dyn Task>, TaskError> {
    if !matches!(prepared, Prepared::Dummy(_)) {
        threads()?;
    }
    match prepared {
        Prepared::FewshotDetection(prepared) => {
            let task = FewshotDetection::open(*prepared, &plan.experiment, chosen.kind, ledger, first_step)?;
            Ok(Box::new(task))
        }
        Prepared::QatLanguageModel(prepared) => {
            let task = QatLanguageModel::open(*prepared, &plan.experiment, chosen.kind, ledger, first_step)?;
            Ok(Box::new(task))
        }
        Prepared::Dummy(settings) => Ok(Box::new(Dummy::new(settings, plan.experiment.experiment.seed, ledger))),
    }
}

/// Starts the threads that the backend computes on. It would start them itself, and panic where the system gives none.
fn threads() -> Result<(), TaskError> {
    match rayon::ThreadPoolBuilder::new().build_global() {
        // Without a cause they are there already.
        Err(error) if std::error::Error::source(&error).is_some() => Err(TaskError::Device(format!(
            "the threads that it computes on cannot be started: {}; `ulimit -u` says how many there may be, and \
             RAYON_NUM_THREADS asks for fewer",
            std::error::Error::source(&error).map_or_else(String::new, ToString::to_string)
        ))),
        _ => Ok(()),
    }
}
