//! Directories in YOLO's layouts, sound and broken.

use std::path::Path;

use super::*;
use crate::boxes::format;
use crate::boxes::library::Library;
use crate::reading::invalid::OnInvalid;
use xrun_core::dataset::split::Split;
use xrun_core::files::write;
use xrun_core::problem::Problems;

fn put(root: &Path, name: &str, text: impl AsRef<[u8]>) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    write::replace(&path, text.as_ref()).unwrap();
}

fn image(root: &Path, name: &str) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    image::RgbImage::from_pixel(40, 20, image::Rgb([9, 8, 7])).save(path).unwrap();
}

/// Two images of two classes, one of which shows nothing.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "data.yaml", "names:\n  0: cat\n  1: dog\n");
    image(directory.path(), "images/a.png");
    image(directory.path(), "images/b.jpg");
    put(directory.path(), "labels/a.txt", "0 0.5 0.5 0.5 0.5\n1 0.25 0.5 0.5 1\n");
    directory
}

fn opened(directory: &Path, on_invalid: OnInvalid) -> Result<Library, DataError> {
    let path = Some(directory.display().to_string());
    format::open(&Yolo { path, on_invalid, ..Yolo::default() })
}

#[test]
fn fractions_become_pixels_and_an_image_without_labels_is_background() {
    let directory = directory();
    let library = opened(directory.path(), OnInvalid::Fail).unwrap();
    let names: Vec<&str> = library.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!((names, library.videos.len()), (vec!["cat", "dog"], 2));
    let objects = &library.videos[0].frames[0].objects;
    let place = |at: usize| {
        let place = objects[at].rectangle;
        (objects[at].class, [place.left, place.top, place.right, place.bottom])
    };
    assert_eq!((place(0), place(1)), ((0, [10.0, 5.0, 30.0, 15.0]), (1, [0.0, 0.0, 20.0, 20.0])));
    assert!(library.videos[1].frames[0].objects.is_empty());
    assert!(library.videos.iter().all(|video| video.part.is_none()) && library.notes.is_empty());
    put(directory.path(), "images/c.mp4", "");
    assert!(opened(directory.path(), OnInvalid::Fail).unwrap().notes[0].starts_with("1 other file ignored"));
}

#[test]
fn two_splits_are_found_in_both_layouts_and_the_test_split_is_ignored() {
    for (train, held_out, other) in
        [("images/train", "images/val", "images/test"), ("train/images", "valid/images", "test/images")]
    {
        let directory = tempfile::tempdir().unwrap();
        put(directory.path(), "classes.txt", "cat\ndog\n");
        for (name, place) in [("a", train), ("b", held_out), ("c", other)] {
            image(directory.path(), &format!("{place}/{name}.png"));
            put(directory.path(), &format!("{}/{name}.txt", place.replace("images", "labels")), "1 0.5 0.5 0.5 0.5");
        }
        let library = opened(directory.path(), OnInvalid::Fail).unwrap();
        let found: Vec<_> = library.videos.iter().map(|video| (video.name.as_str(), video.part)).collect();
        let (first, second) = (format!("{train}/a.png"), format!("{held_out}/b.png"));
        assert_eq!(found, [(first.as_str(), Some(Split::Train)), (second.as_str(), Some(Split::Validation))]);
    }
}

#[test]
fn labels_beside_their_images_are_read_as_labelimg_and_cvat_write_them() {
    for (names, place, held_out) in [
        ("classes.txt", "", None),
        ("obj.names", "obj_train_data/", None),
        ("obj.names", "obj_train_data/", Some("obj_valid_data/")),
        ("obj.names", "obj_train_data/", Some("obj_Validation_data/")),
    ] {
        let directory = tempfile::tempdir().unwrap();
        put(directory.path(), names, "cat\ndog\n");
        put(directory.path(), "train.txt", "data/obj_train_data/a.png\n");
        for place in std::iter::once(place).chain(held_out) {
            image(directory.path(), &format!("{place}a.png"));
            put(directory.path(), &format!("{place}a.txt"), "1 0.5 0.5 0.5 0.5");
        }
        let library = opened(directory.path(), OnInvalid::Fail).unwrap();
        let found: Vec<_> = library.videos.iter().map(|video| (video.name.clone(), video.part)).collect();
        let expected = match held_out {
            None => vec![(format!("{place}a.png"), None)],
            Some(other) => {
                vec![(format!("{place}a.png"), Some(Split::Train)), (format!("{other}a.png"), Some(Split::Validation))]
            }
        };
        assert_eq!(found, expected, "{names} {place}");
        assert!(library.videos.iter().all(|video| video.frames[0].objects.len() == 1));
    }
}

#[test]
fn the_digest_changes_with_a_label_a_name_and_an_image() {
    let directory = directory();
    let digest = || opened(directory.path(), OnInvalid::Fail).unwrap().digest;
    let mut found = vec![digest(), digest()];
    put(directory.path(), "labels/a.txt", "0 0.5 0.5 0.5 0.25\n");
    found.push(digest());
    put(directory.path(), "data.yaml", "names: [cat, fox]\n");
    found.push(digest());
    image::RgbImage::new(40, 20).save(directory.path().join("images/b.jpg")).unwrap();
    found.push(digest());
    found.dedup();
    assert_eq!(found.len(), 4, "the same twice, and then three others");
}

#[test]
fn invalid_lines_are_reported_with_their_file_or_skipped() {
    let lines = [
        "0 0.5 0.5 0.5",
        "0 0.5 nan 0.5 0.5",
        "0 20 10 5 5",
        "cat 0.5 0.5 0.5 0.5",
        "2 0.5 0.5 0.5 0.5",
        "0 0.5 0.5 0 0.5",
        "0 0.9 0.5 0.9 0.5",
        "1 0.25 0.5 0.5 1",
    ];
    let shown = |line: &str| {
        let directory = directory();
        put(directory.path(), "labels/a.txt", format!("1 0.25 0.5 0.5 1\n{line}\n"));
        let message = opened(directory.path(), OnInvalid::Fail).unwrap_err().to_string();
        let place = directory.path().canonicalize().unwrap().display().to_string();
        let library = opened(directory.path(), OnInvalid::Skip).unwrap();
        let kept = library.videos[0].frames[0].objects.iter().filter(|object| object.ignored.is_none()).count();
        assert_eq!(kept, 1, "{line}");
        format!("{line}\n    {}\n    skip: {}\n", message.replace(&place, ""), library.skipped.by_reason())
    };
    insta::assert_snapshot!(lines.map(shown).concat());
}

#[test]
fn a_label_without_an_image_and_a_binary_label_are_invalid() {
    let directory = directory();
    put(directory.path(), "labels/z.txt", "0 0.5 0.5 0.5 0.5");
    put(directory.path(), "labels/b.txt", [0xff, 0xfe, b'0']);
    let message = opened(directory.path(), OnInvalid::Fail).unwrap_err().to_string();
    assert!(
        message.contains("labels an image that is not in images/") && message.contains("is not UTF-8"),
        "{message}"
    );
    let library = opened(directory.path(), OnInvalid::Skip).unwrap();
    assert_eq!((library.videos.len(), library.skipped.total()), (1, 2));
}

#[test]
fn a_directory_of_another_format_is_refused() {
    let empty = tempfile::tempdir().unwrap();
    let refused = |part: &str| {
        let message = opened(empty.path(), OnInvalid::Skip).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    };
    refused("neither data.yaml nor classes.txt");
    put(empty.path(), "classes.txt", "cat\n");
    refused("has neither `images` nor `images/train`");
    std::fs::create_dir(empty.path().join("images")).unwrap();
    refused("has no images");
    let mut problems = Problems::default();
    format::check(&Yolo::default(), &mut problems);
    assert!(format!("{problems:?}").contains("`path` is missing"), "{problems:?}");
}

#[test]
fn nothing_outside_of_the_directory_is_read() {
    let outside = tempfile::tempdir().unwrap();
    image(outside.path(), "images/x.png");
    put(outside.path(), "x.txt", "0 0.5 0.5 0.5 0.5");
    put(outside.path(), "classes.txt", "secret\n");
    for (from, to) in [("x.txt", "labels/b.txt"), ("images", "images/train"), ("classes.txt", "data.yaml")] {
        let directory = directory();
        let place = directory.path().join(to);
        let _ = std::fs::remove_file(&place);
        std::os::unix::fs::symlink(outside.path().join(from), &place).unwrap();
        let message = opened(directory.path(), OnInvalid::Skip).unwrap_err().to_string();
        let is_refused = message.contains("outside of the data set's directory") && !message.contains("secret");
        assert!(is_refused, "{to}: {message}");
    }
}
