//! Description of a data set of images with boxes for `xrun check`.

use std::collections::BTreeSet;

use super::library::{Frame, Library};
use crate::describe::{counts, names, similar_names, single, splits};
use xrun_core::dataset::description::Description;
use xrun_core::dataset::split::Split;
use xrun_core::units::pluralize;

/// Images, boxes, classes, splits and sizes.
pub(super) fn describe(library: &Library) -> Description {
    let frames = || library.videos.iter().flat_map(|video| &video.frames);
    let objects = || frames().flat_map(|frame| &frame.objects);
    let (mut boxes, mut shown) = (vec![0; library.classes.len()], vec![0; library.classes.len()]);
    objects().for_each(|object| boxes[object.class] += 1);
    for frame in frames() {
        let classes: BTreeSet<usize> = frame.objects.iter().map(|object| object.class).collect();
        classes.into_iter().for_each(|class| shown[class] += 1);
    }
    let of = |split: Option<Split>| (0..boxes.len()).filter(move |class| library.classes[*class].split == split);
    let name = |class: usize| library.classes[class].name.as_str();
    let with = |of: &[u64], class: usize| (name(class), of[class]);

    let videos = library.videos.iter().filter(|video| video.sequence).count() as u64;
    let of_videos = if videos > 0 { format!(" ({})", pluralize(videos, "video")) } else { String::new() };
    let mut lines = vec![format!(
        "{}{of_videos}, {} in {}",
        pluralize(frames().count() as u64, "image"),
        pluralize(boxes.iter().sum(), "annotated object"),
        classes_of(library.classes.len() as u64)
    )];
    lines.extend(library.notes.iter().cloned());
    let part = |part| {
        let videos = library.videos.iter().filter(|video| video.part == Some(part));
        videos.map(|video| video.frames.len() as u64).sum::<u64>()
    };
    let (train, validation) = (part(Split::Train), part(Split::Validation));
    if train + validation > 0 {
        lines.push(format!("images by annotation file or directory: {}", splits(train, validation)));
    }
    for (split, what) in [
        (Some(Split::Train), "classes"),
        (Some(Split::Validation), "classes held out from few-shot training"),
        (None, "classes not used"),
    ] {
        if of(split).next().is_some() {
            lines.push(format!("{what}: {}", counts(of(split).map(|class| with(&boxes, class)))));
        }
    }
    let area = |frame: &&Frame| frame.width * frame.height;
    if let (Some(small), Some(large)) = (frames().min_by_key(area), frames().max_by_key(area)) {
        let size = |frame: &Frame| format!("{} x {}", frame.width, frame.height);
        let sides = objects().flat_map(|object| [object.rectangle.width(), object.rectangle.height()]);
        let (least, most) = sides.fold((f32::INFINITY, 0_f32), |(least, most), side| (least.min(side), most.max(side)));
        let boxes = if least <= most { format!("; box sides {least:.1} to {most:.1}") } else { String::new() };
        lines.push(match size(small) == size(large) {
            true => format!("image size {} pixels{boxes}", size(small)),
            false => format!("image sizes {} to {} pixels{boxes}", size(small), size(large)),
        });
    }

    let used = || (0..boxes.len()).filter(|class| library.classes[*class].split.is_some());
    let mut warnings: Vec<String> = similar_names(used().map(name)).into_iter().collect();
    warnings.extend(single(used().map(|class| with(&shown, class)), "image"));
    let small = objects().filter(|object| object.rectangle.width() < 1.0 || object.rectangle.height() < 1.0).count();
    if small > 0 {
        warnings.push(format!("boxes narrower or lower than one pixel: {small}"));
    }
    // One that a list of classes leaves out has objects.
    let empty: Vec<usize> = of(None).filter(|class| boxes[*class] == 0).collect();
    if !empty.is_empty() {
        let named = names(empty.iter().map(|class| name(*class)));
        warnings.push(format!("classes without an annotation, left out: {named}"));
    }
    Description { lines, warnings }
}

fn classes_of(count: u64) -> String {
    if count == 1 { "1 class".to_owned() } else { format!("{count} classes") }
}
