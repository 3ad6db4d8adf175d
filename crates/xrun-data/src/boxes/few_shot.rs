//! Requirements of episodes on images with boxes: classes to train on, others that are held out if any are, images of each.

use std::collections::BTreeSet;

use super::library::Library;
use super::validation_split::TRAINED_MIN;
use crate::describe::names;
use xrun_core::dataset::error::{DataError, InvalidItems, UNUSABLE_CLASS};
use xrun_core::dataset::split::Split;
use xrun_core::printable;
use xrun_core::units::pluralize;

/// Refuses data that has too little to train on or to validate with. The error names all that is missing.
///
/// # Errors
/// There are too few classes, or one that is to be used has no image or no reference image.
pub fn check(library: &Library) -> Result<(), DataError> {
    lacking(library).map_or(Ok(()), Err)
}

/// All that episodes lack; `None` where they can be drawn. If no class is held out, each needs images to train on and, if the data is
/// not divided, another to validate on.
pub fn lacking(library: &Library) -> Option<DataError> {
    let section = library.section;
    let is_few_shot = library.holds_out_classes();
    let is_divided = library.videos.iter().any(|video| video.part.is_some());
    let (shown_min, needs): (u64, &str) = match (is_few_shot, is_divided) {
        (true, _) => (1, "both"),
        (false, true) => (TRAINED_MIN as u64, "two images to train on"),
        (false, false) => (TRAINED_MIN as u64 + 1, "three images: two to train on, one to validate on"),
    };
    let mut shown_of = vec![0_u64; library.classes.len()];
    for video in &library.videos {
        for frame in &video.frames {
            let used = frame.objects.iter().filter(|object| object.ignored.is_none());
            let classes: BTreeSet<usize> =
                used.map(|object| object.class).filter(|class| library.serves(video, *class)).collect();
            classes.into_iter().for_each(|class| shown_of[class] += 1);
        }
    }
    let mut found = InvalidItems::default();
    let of_training = (Split::Train, if is_few_shot { 2 } else { 1 }, "train_classes");
    let held_out = is_few_shot.then_some((Split::Validation, 1, "validation_classes"));
    for (split, least, key) in std::iter::once(of_training).chain(held_out) {
        let classes: Vec<usize> =
            (0..library.classes.len()).filter(|class| library.classes[*class].split == Some(split)).collect();
        if classes.len() < least {
            let what = if split == Split::Train { "to train on" } else { "held out for validation" };
            let (count, there) = (classes.len(), names(library.classes.iter().map(|class| class.name.as_str())));
            let message = format!(
                "classes {what}: {count}, at least {least} are needed; name them here (the data has the classes {there})"
            );
            found.add(UNUSABLE_CLASS, || DataError::value(format!("{section}.{key}"), message));
        }
        for class in classes {
            let name = printable::line(&library.classes[class].name, 60);
            let shown = shown_of[class];
            let references = library.classes[class].references.len();
            if shown < shown_min || references == 0 {
                let images = pluralize(shown, if is_few_shot || !is_divided { "image" } else { "training image" });
                let message = format!(
                    "the class \"{name}\" is in {images} and has {references} reference images; it needs {needs}: name \
                     classes that have them"
                );
                found.add(UNUSABLE_CLASS, || DataError::value(format!("{section}.{key}"), message));
            }
        }
    }
    match (found.total(), found.first.pop()) {
        (1, Some(only)) => Some(only.error),
        (_, Some(last)) => {
            found.first.push(last);
            Some(DataError::Several(found))
        }
        (_, None) => None,
    }
}
