//! Summary and warnings of a small data set, by hand.

use std::path::PathBuf;

use super::super::library::{Class, Object, Video};
use super::*;
use crate::reading::orientation::ExifOrientation;
use xrun_core::dataset::sample::BoundingBox;

fn video(part: Option<Split>, size: (usize, usize), boxes: &[(usize, f32)]) -> Video {
    let object = |(class, side): &(usize, f32)| {
        let rectangle = BoundingBox { left: 2.0, top: 2.0, right: 2.0 + side, bottom: 12.0 };
        Object { class: *class, rectangle, area: rectangle.area(), ignored: None }
    };
    let objects = boxes.iter().map(object).collect();
    let frame = Frame { path: PathBuf::from("a.png"), width: size.0, height: size.1, objects };
    Video { name: "a".into(), sequence: false, part, frames: vec![frame] }
}

#[test]
fn images_boxes_classes_splits_and_sizes_are_told_with_what_is_odd() {
    let class = |name: &str, split| Class { name: name.into(), split, references: Vec::new() };
    let (train, held_out) = (Some(Split::Train), Some(Split::Validation));
    let library = Library {
        section: "dataset.coco",
        root: PathBuf::new(),
        exif_orientation: ExifOrientation::Apply,
        classes: vec![class("Queen", train), class("ace", held_out), class("queen", train), class("things", None)],
        videos: vec![
            video(train, (40, 30), &[(0, 5.0), (2, 0.5)]),
            video(train, (80, 60), &[(2, 20.25)]),
            video(held_out, (80, 60), &[(1, 7.0), (1, 8.0)]),
        ],
        digest: String::new(),
        skipped: Default::default(),
        largest: None,
        opening_bytes: 0,
    };
    let Description { lines, warnings } = describe(&library);
    insta::assert_snapshot!(lines.join("\n"), @r#"
    3 images, 5 annotated objects in 4 classes
    images by annotation file or directory: 2 to train on, 1 held out
    classes: Queen 1, queen 2
    classes held out from few-shot training: ace 2
    classes not used: things 0
    image sizes 40 x 30 to 80 x 60 pixels; box sides 0.5 to 20.2
    "#);
    insta::assert_snapshot!(warnings.join("\n"), @r#"
    classes whose names differ only in case or spaces: ("Queen", "queen"); is one a typing mistake?
    classes with a single image: "Queen", "ace"
    boxes narrower or lower than one pixel: 1
    classes without an annotation, left out: "things"
    "#);
}
