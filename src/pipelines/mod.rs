//! Which pipelines and models exist?
//!
//! To add one: a folder with `settings.rs`, and a line in each list below. `docs/add-a-pipeline.md` goes through it.

pub mod dummy;
pub mod fewshot_detection;

use crate::experiment::kinds::kinds;

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
