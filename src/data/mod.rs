//! Which data sets exist, and how do they reach the training step?

pub mod cache;
pub mod digest;
pub mod error;
pub mod feed;
pub mod image_text;
pub mod json;
pub mod kind;
pub mod known;
pub mod look;
pub mod named;
pub mod order;
pub mod parts;
pub mod question_answers;
#[cfg(test)]
pub(crate) mod real_data;
pub mod reference_video;
pub mod sample;
pub mod sound_clips;
pub mod stamp;
pub mod tokenizer;
pub mod transform;
pub mod written_once;

pub use kind::Dataset;
