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
