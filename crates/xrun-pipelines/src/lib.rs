//! Pipelines of xrun, each in its own directory, their networks, and the devices that they train on.
//!
//! Only this crate and `xrun-ops` depend on Burn, this one with the feature `train`. `docs/add-a-pipeline.md` shows how to add a
//! pipeline.

#![warn(missing_docs)]

pub mod backend;
mod data_facts;
mod declaration;
pub mod federated_adapters;
pub mod fewshot_detection;
pub mod gpt2_shape;
pub mod image_classification;
pub mod leaks;
pub mod metrics;
mod model_checks;
#[cfg(feature = "train")]
pub mod nn;
pub mod qat_language_model;
#[cfg(test)]
#[path = "../../../tests/real_data.rs"]
mod real_data;
pub mod vision_language;
mod weights_header;
#[cfg(not(feature = "train"))]
mod without_burn;

use xrun_core::experiment::pipeline::{Model, Pipeline};

use federated_adapters::settings::{AudioAdapters, FederatedAdapters};
use fewshot_detection::settings::{FewshotDetection, ReferenceDetector};
use image_classification::settings::{ImageClassification, ResNet};
use qat_language_model::settings::{Gpt2, QatLanguageModel};
use vision_language::settings::{VisionLanguage, VisionLanguageModel};

/// Registers the pipelines, models and data sets built into xrun. This is the only list of them.
pub fn register_kinds() {
    Pipeline::register::<FewshotDetection>();
    Pipeline::register::<QatLanguageModel>();
    Pipeline::register::<FederatedAdapters>();
    Pipeline::register::<VisionLanguage>();
    Pipeline::register::<ImageClassification>();
    xrun_core::pipelines::register_kinds();
    Model::register::<ReferenceDetector>();
    Model::register::<Gpt2>();
    Model::register::<AudioAdapters>();
    Model::register::<VisionLanguageModel>();
    Model::register::<ResNet>();
    xrun_data::register_kinds();
}

/// Registers the built-in kinds before the first unit test.
#[cfg(test)]
#[ctor::ctor(unsafe)]
fn register() {
    register_kinds();
}

#[cfg(test)]
xrun_core::count_heap!();
