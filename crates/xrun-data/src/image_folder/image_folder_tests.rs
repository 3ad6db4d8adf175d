//! Directories of images by class, with and without parts.

use std::path::Path;

use super::*;
use crate::boxes::format;
use crate::boxes::library::Library;
use crate::reading::invalid::OnInvalid;

fn image(root: &Path, name: &str) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    image::RgbImage::from_pixel(8, 4, image::Rgb([9, 8, 7])).save(path).unwrap();
}

fn opened(directory: &Path) -> Result<Library, DataError> {
    let path = Some(directory.display().to_string());
    format::open(&ImageFolder { path, on_invalid: OnInvalid::Fail, ..ImageFolder::default() })
}

#[test]
fn the_directory_is_the_class_and_the_image_is_the_object() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["owl/1.png", "cat/2.JPG", "cat/1.png", "cat/.hidden.png"] {
        image(directory.path(), name);
    }
    std::fs::create_dir(directory.path().join("empty")).unwrap();
    let library = opened(directory.path()).unwrap();
    let found = library.videos.iter().map(|video| {
        let object = &video.frames[0].objects[0];
        let class = library.classes[object.class].name.as_str();
        (video.name.as_str(), class, object.rectangle.right, object.rectangle.bottom, video.part)
    });
    let expected = [("cat/1.png", "cat"), ("cat/2.JPG", "cat"), ("owl/1.png", "owl")];
    assert!(found.eq(expected.map(|(image, class)| (image, class, 8.0, 4.0, None))));
}

#[test]
fn splits_need_two_directories() {
    let directory = tempfile::tempdir().unwrap();
    image(directory.path(), "train/2.png");
    let message = opened(directory.path()).unwrap_err().to_string();
    assert!(message.contains("has no images in directories of classes"), "{message}");
    image(directory.path(), "plane/1.png");
    assert_eq!(opened(directory.path()).unwrap().classes.len(), 2, "trains are a class like any other");
    image(directory.path(), "train/cat/1.png");
    let library = opened(directory.path()).unwrap();
    assert_eq!((library.classes[0].name.as_str(), library.videos[0].part), ("cat", None));
    for held_out in ["Testing", "val"] {
        let name = format!("{held_out}/cat/{held_out}.png");
        image(directory.path(), &name);
        let library = opened(directory.path()).unwrap();
        assert_eq!(library.videos[1].name, name, "a test serves without a validation");
    }
    image(directory.path(), "val/owl/3.png");
    let library = opened(directory.path()).unwrap();
    let parts: Vec<_> = library.videos.iter().map(|video| video.part).collect();
    let (train, held_out) = (Some(Split::Train), Some(Split::Validation));
    assert_eq!((parts, library.classes.len()), (vec![train, held_out, held_out], 2));
}

#[test]
fn a_directory_without_classes_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    image(directory.path(), "1.png");
    let message = opened(directory.path()).unwrap_err().to_string();
    assert!(message.contains("has no images in directories of classes"), "{message}");
}
