//! Sequence of detection and triplet steps, and the number of batches in an epoch.

use super::settings::FewshotDetection;
use xrun_core::dataset::split::Split;
use xrun_data::boxes::library::{Library, Object, Video};

/// Kind of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Episode: detection of the classes that references show.
    Detection,
    /// Triplet loss on embeddings.
    Triplet,
}

/// Kind of step `step` (from 1). In any run of steps the fraction of triplet steps is `triplet_ratio` to within one step; the first
/// is a detection step unless all are triplet steps.
pub fn step_kind(step: u64, triplet_ratio: f64) -> StepKind {
    let triplets_until = |step: u64| (step as f64 * triplet_ratio).floor();
    match triplets_until(step) > triplets_until(step.saturating_sub(1)) {
        true => StepKind::Triplet,
        false => StepKind::Detection,
    }
}

/// Number of batches in an epoch: detection episodes, and triplet batches according to `triplet_ratio`.
///
/// With `auto_episodes` the number of episodes is that of the frames that show a training class over `n_way * n_query` (with at most
/// the classes of the data), rounded up: one pass over the data on average. It is divided by `1 - triplet_ratio` and rounded up; if
/// all steps are triplet steps, it is the number of triplet batches.
pub fn batches_per_epoch(library: &Library, settings: &FewshotDetection) -> u64 {
    let of_training = |video: &Video, object: &Object| {
        let split = library.classes[object.class].split;
        object.ignored.is_none() && split == Some(Split::Train) && library.serves(video, object.class)
    };
    let frames = library.videos.iter().flat_map(|video| video.frames.iter().map(move |frame| (video, frame)));
    let training_frames =
        frames.filter(|(video, frame)| frame.objects.iter().any(|object| of_training(video, object))).count();
    let train_classes = library.classes.iter().filter(|class| class.split == Some(Split::Train)).count();
    let queries = settings.n_way.min(train_classes).max(1) * settings.n_query.max(1);
    let automatic = training_frames.div_ceil(queries).max(1) as u64;
    let episodes = if settings.auto_episodes { automatic } else { settings.episodes.unwrap_or(automatic) };
    let detection_ratio = 1.0 - settings.triplet_ratio;
    match detection_ratio > 0.0 {
        // The subtraction rounds: 7 / 0.7 must not become 11.
        true => (episodes as f64 / detection_ratio - 1e-9).ceil() as u64,
        false => episodes,
    }
}

#[cfg(test)]
mod tests {
    use super::super::episode::tests::{SHAPE, library};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_epoch_is_one_pass_over_the_training_frames_and_triplet_batches() {
        // 5 train classes x 3 videos x 5 frames, and the last frame of the videos of the class before the first (unused).
        let library = library(SHAPE);
        let batches = |settings: FewshotDetection| batches_per_epoch(&library, &settings);
        let alone = FewshotDetection { triplet_ratio: 0.0, n_way: 3, n_query: 4, ..FewshotDetection::default() };
        assert_eq!(batches(alone.clone()), 7, "78 frames over 3 * 4, rounded up");
        assert_eq!(batches(FewshotDetection { triplet_ratio: 0.3, ..alone.clone() }), 10, "7 of 10 are episodes");
        assert_eq!(batches(FewshotDetection { triplet_ratio: 1.0, ..alone.clone() }), 7);
        assert_eq!(batches(FewshotDetection { n_way: 50, ..alone.clone() }), 4, "78 over 5 * 4: there are 5 classes");
        let fixed = FewshotDetection { auto_episodes: false, episodes: Some(100), triplet_ratio: 0.5, ..alone };
        assert_eq!(batches(fixed), 200);
    }

    proptest! {
        #[test]
        fn every_run_of_steps_has_the_ratio_of_triplets(ratio in 0.0f64..=1.0, start in 1u64..10_000, length in 1u64..500) {
            let triplets = (start..start + length).filter(|&step| step_kind(step, ratio) == StepKind::Triplet).count();
            prop_assert!((triplets as f64 - length as f64 * ratio).abs() < 1.0 + 1e-6);
            prop_assert!(step_kind(1, ratio) == StepKind::Detection || ratio == 1.0);
            prop_assert_eq!(step_kind(start, 1.0), StepKind::Triplet);
            prop_assert_eq!(step_kind(start, 0.0), StepKind::Detection);
        }
    }
}
