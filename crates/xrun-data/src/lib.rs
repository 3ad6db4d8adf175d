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

use xrun_core::experiment::kinds::Kinds;

/// The data sets of this crate. A format of images with boxes is one line.
pub fn kinds() -> Kinds {
    Kinds::default()
        .dataset::<synthetic_video::settings::SyntheticVideo>()
        .dataset::<coco::Coco>()
        .dataset::<voc::Voc>()
        .dataset::<yolo::Yolo>()
        .dataset::<image_folder::ImageFolder>()
        .dataset::<question_answers::settings::QuestionAnswers>()
        .dataset::<sound_clips::settings::SoundClips>()
        .dataset::<image_text::settings::ImageText>()
}

#[cfg(test)]
xrun_core::count_heap!();
