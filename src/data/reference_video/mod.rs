//! Videos with a box around each object in each frame, and reference pictures by class.

pub mod library;
pub mod settings;
