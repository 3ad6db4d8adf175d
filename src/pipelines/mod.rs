//! Which pipelines and models exist?
//!
//! To add one: a folder with `settings.rs`, and a line in each list below. `docs/add-a-pipeline.md` goes through it.

pub mod dummy;
pub mod fewshot_detection;
#[cfg(feature = "train")]
mod open;
#[cfg(not(feature = "train"))]
#[path = "open_without_burn.rs"]
mod open;

pub use open::open;

use crate::experiment::Experiment;
use crate::experiment::kinds::kinds;
use crate::memory::ledger::Ledger;
use crate::task::{TaskError, TaskFacts};

kinds! {
    /// The task: what a step and a validation do.
    pub enum Pipeline {
        "fewshot-detection" => FewshotDetection(fewshot_detection::settings::Settings),
        "dummy" => Dummy(dummy::settings::Settings),
    }
}

kinds! {
    /// The network that a pipeline trains.
    pub enum Model {
        "reference-detector" => ReferenceDetector(fewshot_detection::settings::Model),
    }
}

/// What a task was prepared with before the plan: opened data that the task takes over.
#[derive(Debug)]
pub enum Prepared {
    Dummy(dummy::settings::Settings),
}

/// Looks at the data, without Burn and without a device; what it says goes into the plan.
pub fn prepare(experiment: &Experiment, _: &Ledger) -> Result<(TaskFacts, Prepared), TaskError> {
    match &experiment.pipeline {
        Pipeline::Dummy(settings) => Ok((dummy::task::facts(settings), Prepared::Dummy(settings.clone()))),
        Pipeline::FewshotDetection(_) => Err(TaskError::Data("not here yet".into())),
    }
}
