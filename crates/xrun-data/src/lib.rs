//! Data sets for xrun, a directory for each, and how their samples reach the training step.

#![warn(missing_docs)]

pub mod boxes;
pub mod coco;
mod describe;
pub mod feed;
pub mod image_folder;
pub mod image_text;
pub mod json;
pub mod micro_batches;
pub mod order;
pub mod question_answers;
pub mod reading;
#[cfg(test)]
#[path = "../../../tests/real_data.rs"]
mod real_data;
pub mod sound_clips;
pub mod synthetic_video;
pub mod tokenizer;
pub mod transform;
pub mod voc;
pub mod yolo;

#[cfg(test)]
xrun_core::count_heap!();
