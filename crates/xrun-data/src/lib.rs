//! Data sets for xrun, a directory for each, and how their samples reach the training step.

#![warn(missing_docs)]

pub mod boxes;
pub mod coco;
pub mod describe;
pub mod feed;
pub mod image_folder;
pub mod image_table;
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

use xrun_core::dataset::Dataset;

/// Registers the data sets of this crate. A format of images with boxes is one line.
pub fn register_kinds() {
    Dataset::register::<synthetic_video::settings::SyntheticVideo>();
    Dataset::register::<coco::Coco>();
    Dataset::register::<voc::Voc>();
    Dataset::register::<yolo::Yolo>();
    Dataset::register::<image_folder::ImageFolder>();
    Dataset::register::<image_table::ImageTable>();
    Dataset::register::<question_answers::settings::QuestionAnswers>();
    Dataset::register::<sound_clips::settings::SoundClips>();
    Dataset::register::<image_text::settings::ImageText>();
}

#[cfg(test)]
xrun_core::count_heap!();
