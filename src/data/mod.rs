//! Which data sets exist, and how do they reach the training step?

pub mod error;
pub mod feed;
pub mod reference_video;
pub mod sample;
pub mod seed;
pub mod transform;

use crate::experiment::kinds::kinds;

kinds! {
    /// The data that a pipeline is trained on.
    pub enum Dataset {
        "reference-video" => ReferenceVideo(reference_video::settings::Settings),
    }
}
