//! Few-shot reference detection over video frames: stage 2 of seed 003.

pub mod assignment;
pub mod batch;
pub mod decode;
pub mod episode;
pub mod settings;
