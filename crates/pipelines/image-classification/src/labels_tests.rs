//! Classes and the split of images.

use std::collections::BTreeSet;

use super::*;
use xrun_core::dataset::error::InvalidItems;
use xrun_core::dataset::sample::IgnoreReason;
use xrun_data::boxes::library::{Class, Object, Video};
use xrun_data::reading::orientation::ExifOrientation;

/// Square object of a class with this side.
fn object(class: usize, side: f32) -> Object {
    let rectangle = BoundingBox { left: 0.0, top: 0.0, right: side, bottom: side };
    Object { class, rectangle, area: side * side, ignored: None }
}

fn library(videos: Vec<(Option<Split>, Vec<Vec<Object>>)>) -> Library {
    let class = |name: &str, split| Class { name: name.into(), split, references: Vec::new() };
    let videos = videos.into_iter().map(|(part, frames)| Video {
        name: String::new(),
        sequence: frames.len() > 1,
        part,
        frames: frames
            .into_iter()
            .map(|objects| Frame { path: "a.png".into(), width: 40, height: 40, objects })
            .collect(),
    });
    Library {
        section: "dataset.image-folder",
        root: "/".into(),
        exif_orientation: ExifOrientation::Apply,
        classes: vec![
            class("cat", Some(Split::Train)),
            class("dog", Some(Split::Validation)),
            class("fox", None),
            class("owl", Some(Split::Train)),
        ],
        videos: videos.collect(),
        notes: Vec::new(),
        digest: String::new(),
        skipped: InvalidItems::default(),
        largest: None,
        opening_bytes: 0,
    }
}

#[test]
fn the_class_is_that_of_the_largest_used_object_and_classes_are_numbered_without_gaps() {
    let mut crowd = object(0, 30.0);
    crowd.ignored = Some(IgnoreReason::Crowd);
    let library = library(vec![
        (Some(Split::Train), vec![vec![object(0, 5.0), object(3, 9.0), object(2, 20.0), crowd]]),
        (Some(Split::Train), vec![vec![object(1, 5.0), object(3, 5.0)]]),
        (Some(Split::Train), vec![vec![], vec![object(2, 5.0)]]),
        (Some(Split::Validation), vec![vec![object(1, 5.0)]]),
    ]);
    let labels = Labels::new(&library, 0.2, 1).unwrap();
    assert_eq!(labels.classes, ["dog", "owl"], "held-out classes are included, unused ones are not");
    let classes: Vec<u32> = labels.train.iter().map(|labelled| labelled.class).collect();
    assert_eq!((classes, labels.held_out[0].class, labels.held_out.len()), (vec![1, 0], 0, 1));
    assert_eq!(labels.majority_fraction(1), 1.0);
}

#[test]
fn a_fraction_of_each_class_is_held_out_with_all_frames_of_a_video() {
    let still = |class| (None, vec![vec![object(class, 5.0)]]);
    let mut videos: Vec<_> = (0..10).map(|_| still(0)).collect();
    videos.extend((0..3).map(|_| (None, vec![vec![object(3, 5.0)]; 4])));
    videos.push(still(1));
    let library = library(videos);
    let draw = |seed| Labels::new(&library, 0.2, seed).unwrap();
    let labels = draw(1);
    let count = |all: &[LabelledImage], class| all.iter().filter(|labelled| labelled.class == class).count();
    assert_eq!([0, 1, 2].map(|class| count(&labels.held_out, class)), [2, 0, 4], "none of a class with a single image");
    assert_eq!([0, 1, 2].map(|class| count(&labels.train, class)), [8, 1, 8]);
    let videos = |all: &[LabelledImage]| all.iter().map(|labelled| labelled.video).collect::<BTreeSet<_>>();
    assert!(videos(&labels.train).is_disjoint(&videos(&labels.held_out)));
    assert_eq!(labels, draw(1));
    assert!((2..9).any(|seed| videos(&draw(seed).held_out) != videos(&labels.held_out)), "the seed draws");
}

#[test]
fn unusable_data_is_refused_with_the_reason() {
    let still = |part, class| (part, vec![vec![object(class, 5.0)]]);
    let (train, held_out) = (Some(Split::Train), Some(Split::Validation));
    let messages = [
        vec![still(None, 0), still(None, 0)],
        vec![],
        vec![still(None, 0), still(None, 1)],
        vec![still(train, 0), still(train, 1), still(held_out, 3)],
    ]
    .map(|videos| Labels::new(&library(videos), 0.2, 1).unwrap_err().to_string());
    insta::assert_snapshot!(messages.join("\n"), @r#"
    at least 2 classes are needed, found 1 in 1 training image; the class of an image is that of its largest box
    at least 2 classes are needed, found 0 in 0 training images; the class of an image is that of its largest box
    no image can be held out for validation: at least one class needs two images or videos, found 2 images of 2 classes
    `dataset.image-folder.train_classes`: the class "owl" occurs in the validation part of the data but not in the training part; add training images of it, or list the classes to use in `train_classes`
    "#);
}
