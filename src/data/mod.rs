//! Which data sets exist, and how do they reach the training step?

pub mod cache;
pub mod digest;
pub mod error;
pub mod feed;
pub mod json;
pub mod known;
pub mod question_answers;
#[cfg(test)]
mod real_data;
pub mod reference_video;
pub mod sample;
pub mod seed;
pub mod stamp;
pub mod transform;

use crate::experiment::kinds::kinds;
use crate::problem::Problems;

kinds! {
    /// The data that a pipeline is trained on.
    pub enum Dataset {
        "reference-video" => ReferenceVideo(reference_video::settings::Settings),
        "question-answers" => QuestionAnswers(question_answers::settings::Settings),
    }
}

/// Adds what contradicts itself in the data's settings, and a folder that is not there.
pub fn check(dataset: &Dataset, problems: &mut Problems) {
    match dataset {
        Dataset::ReferenceVideo(settings) => reference_video::check::check(settings, problems),
        Dataset::QuestionAnswers(settings) => question_answers::check::check(settings, problems),
    }
}

/// Files and folders that the data's settings name, with their keys.
pub fn paths(dataset: &mut Dataset) -> Vec<(&'static str, &mut String)> {
    let all = match dataset {
        Dataset::ReferenceVideo(settings) => vec![("dataset.reference-video.path", &mut settings.path)],
        Dataset::QuestionAnswers(settings) => vec![
            ("dataset.question-answers.path", &mut settings.path),
            ("dataset.question-answers.validation_path", &mut settings.validation_path),
            ("dataset.question-answers.encoder", &mut settings.encoder),
            ("dataset.question-answers.merges", &mut settings.merges),
        ],
    };
    all.into_iter().filter_map(|(key, path)| Some((key, path.as_mut()?))).collect()
}

/// The files of the data are hashed again when it is opened next, whatever is known of them.
pub fn verify(dataset: &Dataset) {
    match dataset {
        Dataset::ReferenceVideo(settings) => known::forget(&reference_video::open::root(settings)),
        // Read as a whole each time.
        Dataset::QuestionAnswers(_) => {}
    }
}

/// What opening the data writes first, for people; `None` when it is there. Writing may take minutes.
pub fn pending(dataset: &Dataset) -> Option<String> {
    match dataset {
        Dataset::ReferenceVideo(settings) if settings.source == reference_video::settings::Source::Generated => {
            let pending = reference_video::generate::pending(&settings.generated)?;
            let (frames, side, folder) = (pending.frames, pending.frame_size, pending.folder.display());
            let references = pending.references;
            Some(format!("{frames} frames of {side} pixels and {references} reference pictures, once, in {folder}"))
        }
        Dataset::ReferenceVideo(_) | Dataset::QuestionAnswers(_) => None,
    }
}
