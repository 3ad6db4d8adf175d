//! Which data sets exist, and how do they reach the training step?

pub mod cache;
pub mod digest;
pub mod error;
pub mod feed;
pub mod reference_video;
pub mod sample;
pub mod seed;
pub mod transform;

use crate::experiment::kinds::kinds;
use crate::problem::Problems;

kinds! {
    /// The data that a pipeline is trained on.
    pub enum Dataset {
        "reference-video" => ReferenceVideo(reference_video::settings::Settings),
    }
}

/// Adds what contradicts itself in the data's settings, and a folder that is not there.
pub fn check(dataset: &Dataset, problems: &mut Problems) {
    match dataset {
        Dataset::ReferenceVideo(settings) => reference_video::check::check(settings, problems),
    }
}
