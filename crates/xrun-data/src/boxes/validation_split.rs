//! Split of the images into those to train on and those to validate on, for classes that are in both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::library::{Library, Video};
use crate::order::permuted;
use xrun_core::dataset::split::Split;

/// Number of images of a class that a detector needs to train on: one to find it in, another for a reference.
pub const TRAINED_MIN: usize = 2;

/// Number of images in which each class occurs, by video (a still image is a video).
pub type Shown = BTreeMap<u32, BTreeMap<u32, usize>>;

/// Videos to validate on: a fraction of those of each class, at least one, as long as `kept` images of each of their classes remain.
/// Rare classes are divided first (Sechidis et al. 2011).
pub fn held_out_videos(shown: &Shown, fraction: f64, seed: u32, kept: usize) -> BTreeSet<u32> {
    let mut by_class: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut left: BTreeMap<u32, usize> = BTreeMap::new();
    for (video, classes) in shown {
        for (class, images) in classes {
            by_class.entry(*class).or_default().push(*video);
            *left.entry(*class).or_default() += images;
        }
    }
    let mut classes: Vec<(u32, Vec<u32>)> = by_class.into_iter().collect();
    classes.sort_by_key(|(_, videos)| videos.len());
    let mut held_out = BTreeSet::new();
    for (class, videos) in classes {
        let wanted = ((videos.len() as f64 * fraction).round() as usize).max(1);
        let mut count = videos.iter().filter(|video| held_out.contains(*video)).count();
        for video in permuted(&videos, seed, "held-out pictures", u64::from(class)) {
            let is_spare = || shown[&video].iter().all(|(class, images)| left[class] >= kept + images);
            if count < wanted && !held_out.contains(&video) && is_spare() {
                shown[&video].iter().for_each(|(class, images)| *left.entry(*class).or_default() -= images);
                held_out.insert(video);
                count += 1;
            }
        }
    }
    held_out
}

/// Divides the images of a data set without held-out classes, unless it is divided already, and takes references away that are cut
/// from images to validate on.
pub fn divide(library: &mut Library, fraction: f64, seed: u32) {
    if library.videos.iter().all(|video| video.part.is_none()) {
        let held_out = held_out_videos(&shown(library), fraction, seed, TRAINED_MIN);
        for (number, video) in (0..).zip(&mut library.videos) {
            video.part = Some(if held_out.contains(&number) { Split::Validation } else { Split::Train });
        }
    }
    let is_held_out = |video: &Video| video.part == Some(Split::Validation);
    let Library { classes, videos, .. } = library;
    let frames = videos.iter().filter(|video| is_held_out(video)).flat_map(|video| &video.frames);
    let paths: BTreeSet<&Path> = frames.map(|frame| frame.path.as_path()).collect();
    for class in classes {
        class.references.retain(|reference| {
            !paths.contains(&*reference.path) && !reference.video.is_some_and(|video| is_held_out(&videos[video]))
        });
    }
}

/// Images of each class that is used. Videos without any are of a class of their own.
fn shown(library: &Library) -> Shown {
    let of_video = |video: &Video| {
        let mut images = BTreeMap::new();
        for frame in &video.frames {
            let used = frame.objects.iter().filter(|object| object.ignored.is_none());
            let used = used.filter(|object| library.classes[object.class].split.is_some());
            for class in used.map(|object| object.class as u32).collect::<BTreeSet<u32>>() {
                *images.entry(class).or_default() += 1;
            }
        }
        if images.is_empty() {
            images.insert(library.classes.len() as u32, video.frames.len());
        }
        images
    };
    (0..).zip(library.videos.iter().map(of_video)).collect()
}
