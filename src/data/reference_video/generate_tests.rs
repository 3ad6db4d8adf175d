//! Is what is generated the same each time, sound, and whole after an interruption?

use std::collections::BTreeSet;

use super::super::library::Split;
use super::super::open::open;
use super::super::settings::Settings;
use super::*;

fn small(seed: u32) -> Settings {
    let generated = Generated {
        train_classes: 4,
        validation_classes: 3,
        videos_per_class: 2,
        frames_per_video: 6,
        references_per_class: 2,
        seed,
        ..Generated::default()
    };
    Settings { generated, ..Settings::default() }
}

fn painted(seed: u32) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    write_all(&small(seed).generated, folder.path()).unwrap();
    let path = Some(folder.path().display().to_string());
    let settings = Settings { source: super::super::settings::Source::Folder, path, ..small(seed) };
    let digest = open(&settings).unwrap().digest;
    (folder, digest)
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_does_not() {
    let (one, first) = painted(1);
    let (_two, second) = painted(1);
    let (_other, third) = painted(2);
    assert_eq!(first, second);
    assert_ne!(first, third);
    let frame = one.path().join("frames/video_0003/0002.jpg");
    assert!(frame.is_file());
}

#[test]
fn held_out_classes_are_in_no_training_video_and_every_box_is_inside_its_frame() {
    let (folder, _) = painted(3);
    let path = Some(folder.path().display().to_string());
    let library = open(&Settings { source: super::super::settings::Source::Folder, path, ..small(3) }).unwrap();
    let mut boxes = 0;
    for video in &library.videos {
        assert!(video.sequence && video.frames.len() == 6);
        let objects = video.frames.iter().flat_map(|frame| &frame.objects);
        let splits: BTreeSet<Split> = objects.map(|object| library.classes[object.class].split).collect();
        assert!(splits.len() <= 1, "{} shows classes of both splits", video.name);
        for frame in &video.frames {
            for object in &frame.objects {
                let place = object.rectangle;
                assert!(place.left >= 0.0 && place.right <= frame.width as f32 && place.area() > 0.0);
                boxes += 1;
            }
        }
    }
    assert!(boxes > 40, "{boxes} boxes in 84 frames");
    assert_eq!(library.classes.iter().filter(|class| class.split == Split::Validation).count(), 3);
}

/// `XRUN_CONTACT_SHEET=/tmp/sheet.png cargo test contact_sheet` paints what a person should look at.
#[test]
fn contact_sheet() {
    let Some(place) = std::env::var_os("XRUN_CONTACT_SHEET") else { return };
    let library = open(&Settings::default()).unwrap();
    let mut sheet = image::RgbImage::new(12 * 100, 10 * 100);
    for (row, video) in library.videos.iter().step_by(13).take(10).enumerate() {
        for (column, frame) in video.frames.iter().take(12).enumerate() {
            let mut picture = image::open(library.root.join(&frame.path)).unwrap().into_rgb8();
            for object in &frame.objects {
                let place = object.rectangle;
                for x in place.left as u32..place.right as u32 {
                    picture.put_pixel(x, place.top as u32, image::Rgb([0, 255, 0]));
                }
                for y in place.top as u32..place.bottom as u32 {
                    picture.put_pixel(place.left as u32, y, image::Rgb([0, 255, 0]));
                }
            }
            image::imageops::replace(&mut sheet, &picture, column as i64 * 100, row as i64 * 100);
        }
    }
    sheet.save(place).unwrap();
}
