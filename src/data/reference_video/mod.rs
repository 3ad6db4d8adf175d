//! Videos with a box around each object in each frame, and reference pictures by class.

pub mod assemble;
pub mod check;
pub mod coco;
pub mod coco_files;
pub mod frames;
pub mod generate;
pub mod library;
pub mod open;
pub mod orientation;
pub mod paint;
pub mod raw;
pub mod settings;
pub mod voc;
pub mod whole;
