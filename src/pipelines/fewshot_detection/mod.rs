//! Few-shot reference detection over video frames: stage 2 of seed 003.

pub mod settings;
