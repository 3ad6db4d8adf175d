//! Which data sets exist, and how do they reach the training step?

pub mod cache;
pub mod digest;
pub mod error;
pub mod feed;
pub mod json;
pub mod kind;
pub mod known;
pub mod look;
pub mod question_answers;
#[cfg(test)]
mod real_data;
pub mod reference_video;
pub mod sample;
pub mod stamp;
pub mod transform;

pub use kind::Dataset;
