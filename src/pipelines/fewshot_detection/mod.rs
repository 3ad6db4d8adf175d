//! Few-shot reference detection over video frames, as in docs/origins.md.

pub mod assignment;
pub mod batch;
pub mod check;
pub mod coco_files;
pub mod decode;
pub mod drawn;
pub mod episode;
mod growth;
mod hoard;
#[cfg(feature = "train")]
pub mod leaks;
#[cfg(feature = "train")]
pub mod losses;
pub mod mix;
#[cfg(feature = "train")]
pub mod model;
pub mod pictures;
#[cfg(feature = "train")]
pub mod pixels;
pub mod prepare;
pub mod scoring;
pub mod settings;
#[cfg(feature = "train")]
pub mod task;
#[cfg(feature = "train")]
pub mod validation;
