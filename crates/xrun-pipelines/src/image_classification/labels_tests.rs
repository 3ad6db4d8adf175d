//! Which picture has which class, and which are held out.

use std::collections::BTreeSet;

use super::*;
use xrun_core::dataset::error::InvalidItems;
use xrun_core::dataset::sample::IgnoreReason;
use xrun_data::boxes::library::{Class, Object, Video};
use xrun_data::reading::orientation::ExifOrientation;

/// An object of a class with this side.
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
        digest: String::new(),
        left_out: InvalidItems::default(),
        largest: None,
    }
}

#[test]
fn the_largest_object_that_counts_is_the_class_and_classes_are_numbered_without_gaps() {
    let mut crowd = object(0, 30.0);
    crowd.ignored = Some(IgnoreReason::Crowd);
    let library = library(vec![
        (Some(Split::Train), vec![vec![object(0, 5.0), object(3, 9.0), object(2, 20.0), crowd]]),
        (Some(Split::Train), vec![vec![object(1, 5.0), object(3, 5.0)]]),
        (Some(Split::Train), vec![vec![], vec![object(2, 5.0)]]),
        (Some(Split::Validation), vec![vec![object(1, 5.0)]]),
    ]);
    let labels = Labels::new(&library, 0.2, 1).unwrap();
    assert_eq!(labels.classes, ["dog", "owl"], "of a held-out class as of any, and not of one that is not used");
    let classes: Vec<u32> = labels.train.iter().map(|labelled| labelled.class).collect();
    assert_eq!((classes, labels.held_out[0].class, labels.held_out.len()), (vec![1, 0], 0, 1));
    assert_eq!(labels.largest_share(1), 1.0);
}

#[test]
fn a_share_of_each_class_is_held_out_with_all_frames_of_a_video() {
    let still = |class| (None, vec![vec![object(class, 5.0)]]);
    let mut videos: Vec<_> = (0..10).map(|_| still(0)).collect();
    videos.extend((0..3).map(|_| (None, vec![vec![object(3, 5.0)]; 4])));
    videos.push(still(1));
    let library = library(videos);
    let of = |seed| Labels::new(&library, 0.2, seed).unwrap();
    let labels = of(1);
    let count = |all: &[Labelled], class| all.iter().filter(|labelled| labelled.class == class).count();
    assert_eq!([0, 1, 2].map(|class| count(&labels.held_out, class)), [2, 0, 4], "none of one picture alone");
    assert_eq!([0, 1, 2].map(|class| count(&labels.train, class)), [8, 1, 8]);
    let videos = |all: &[Labelled]| all.iter().map(|labelled| labelled.video).collect::<BTreeSet<_>>();
    assert!(videos(&labels.train).is_disjoint(&videos(&labels.held_out)));
    assert_eq!(labels, of(1));
    assert!((2..9).any(|seed| videos(&of(seed).held_out) != videos(&labels.held_out)), "the seed draws");
}

#[test]
fn data_that_cannot_be_learnt_is_refused_with_the_reason() {
    let still = |part, class| (part, vec![vec![object(class, 5.0)]]);
    let (train, held_out) = (Some(Split::Train), Some(Split::Validation));
    for (videos, words) in [
        (vec![still(None, 0), still(None, 0)], "show 1 classes, and at least 2 are needed"),
        (vec![], "show 0 classes"),
        (vec![still(None, 0), still(None, 1)], "no picture is held out"),
        (
            vec![still(train, 0), still(train, 1), still(held_out, 3)],
            "the class \"owl\" is shown in the part to validate",
        ),
    ] {
        let said = Labels::new(&library(videos), 0.2, 1).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
}
