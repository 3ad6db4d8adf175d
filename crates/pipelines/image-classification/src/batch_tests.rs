//! Batches have each image once in an epoch, and crops contain their objects.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use xrun_data::boxes::library::{Frame, Video};

struct PaintedImages;

/// Source of 20 x 10 images in the grey level of their name, with a white dot at 15, 5.
impl ImageSource for PaintedImages {
    fn image(&self, path: &Path) -> Result<HostImage, DataError> {
        let grey: u8 = path.to_str().unwrap().parse().unwrap();
        let mut rgb = vec![grey; 20 * 10 * 3];
        rgb[(5 * 20 + 15) * 3..][..3].fill(255);
        Ok(HostImage { width: 20, height: 10, rgb: rgb.into() })
    }
}

fn batches(count: u32, settings: ImageClassification) -> BatchLoader {
    let rectangle = BoundingBox { left: 14.0, top: 4.0, right: 17.0, bottom: 7.0 };
    let labelled = |number| LabelledImage { video: number, frame: 0, class: number % 2, rectangle };
    let labels = Labels {
        classes: vec!["a".into(), "b".into()],
        train: (0..count).map(labelled).collect(),
        held_out: (0..2).map(labelled).collect(),
    };
    let video = |number: u32| Video {
        name: String::new(),
        sequence: false,
        part: None,
        frames: vec![Frame { path: number.to_string().into(), width: 20, height: 10, objects: Vec::new() }],
    };
    let library = Library {
        section: "dataset.image-folder",
        root: "/".into(),
        exif_orientation: xrun_data::reading::orientation::ExifOrientation::Apply,
        classes: Vec::new(),
        videos: (0..count).map(video).collect(),
        notes: Vec::new(),
        digest: String::new(),
        skipped: xrun_core::dataset::error::InvalidItems::default(),
        largest: None,
        opening_bytes: 0,
    };
    let (library, labels) = (Arc::new(library), Arc::new(labels));
    BatchLoader { library, labels, source: Arc::new(PaintedImages), settings, size: 3, seed: 7 }
}

fn plain() -> ImageClassification {
    ImageClassification { image_size: 20, flip: false, crop: 1.0, ..ImageClassification::default() }
}

#[test]
fn each_image_occurs_once_an_epoch_and_batches_extend_into_the_next() {
    let batches = batches(7, plain());
    let greys: Vec<u8> = (0..14)
        .flat_map(|number| {
            let batch = batches.training_batch(number).unwrap();
            assert_eq!(batch.deep_size(), batch_bytes_max(3, 20), "the planned size");
            batch.pixels.chunks(20 * 20 * 3).map(|image| image[5 * 20 * 3]).collect::<Vec<_>>()
        })
        .collect();
    for epoch in greys.chunks(7) {
        let mut count: BTreeMap<u8, u32> = BTreeMap::new();
        epoch.iter().for_each(|grey| *count.entry(*grey).or_default() += 1);
        assert_eq!(count, (0..7).map(|grey| (grey, 1)).collect(), "{epoch:?}");
    }
    assert_ne!(greys[..7], greys[7..14]);
    assert_eq!(batches.training_batch(3).unwrap(), batches.training_batch(3).unwrap());
}

#[test]
fn a_crop_contains_the_centre_of_the_object_and_is_inside_the_image() {
    let source = PaintedImages.image(Path::new("3")).unwrap();
    let object = BoundingBox { left: 14.0, top: 4.0, right: 17.0, bottom: 7.0 };
    for (scale, drawn) in
        [(0.3, [0.0, 0.0]), (0.3, [1.0, 1.0]), (0.5, [0.2, 0.9]), (0.95, [1.0, 0.0]), (1.0, [0.5, 0.5])]
    {
        let window = window(&source, &object, scale, drawn);
        assert!(window.left <= 15.5 && window.right >= 15.5 && window.top <= 5.5 && window.bottom >= 5.5, "{window:?}");
        assert!(
            window.left >= 0.0 && window.top >= 0.0 && window.right <= 20.001 && window.bottom <= 10.001,
            "{window:?}"
        );
    }
}

#[test]
fn training_augments_images_and_validation_does_not() {
    let batches = batches(6, ImageClassification { flip: true, crop: 0.3, ..plain() });
    let (one, other) = (batches.training_batch(0).unwrap(), batches.training_batch(2).unwrap());
    assert_ne!(one.pixels, other.pixels);
    let held_out = batches.held_out(0..2).unwrap();
    assert_eq!(held_out, batches.held_out(0..2).unwrap());
    assert_eq!(held_out.classes, [0, 1]);
    let whole = transform::letterbox(&PaintedImages.image(Path::new("1")).unwrap(), 20).0;
    assert_eq!(held_out.pixels[20 * 20 * 3..], *whole.rgb);
}
