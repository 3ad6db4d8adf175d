//! Images in a directory for each class, as most classifiers read them: the whole image is the object.
//!
//! Directories of classes are at the root; or below `train/` and `val/` or `test/`, whose images are validated on and never trained
//! on.

use std::path::Path;

use crate::boxes::format::Format;
use crate::boxes::open::ReaderInput;
use crate::boxes::raw::{ClassTable, HELD_OUT, IMAGE_ENDINGS, Raw, RawImage, TRAIN, named};
use crate::directory_settings;
use crate::reading::confined::{directories, files};
use crate::reading::survey::survey;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;

directory_settings! {
    /// Images in a directory for each class, whose name is the class: `cat/1.jpg`, or `train/cat/1.jpg` and `val/cat/2.jpg`.
    ImageFolder {}
}

impl Format for ImageFolder {
    const NAME: &'static str = "image-folder";
    const SECTION: &'static str = "dataset.image-folder";
    const ADVICE: &'static str = "name the directory that holds a directory of images for each class";

    fn read(&self, input: ReaderInput<'_>) -> Result<Raw, DataError> {
        let root = input.root;
        let all = directories(root, "")?;
        let parts = match (named(&all, &TRAIN), named(&all, &HELD_OUT)) {
            (Some(train), Some(held_out)) => vec![(train, Some(Split::Train)), (held_out, Some(Split::Validation))],
            // Without directories of classes in it, it is a class like any other, or no image has a class.
            (Some(train), None) if all.len() == 1 || !directories(root, train)?.is_empty() => vec![(train, None)],
            _ => vec![("", None)],
        };
        let mut classes = ClassTable::default();
        let mut raw = Raw { is_in_class_directories: true, ..Raw::default() };
        for (part, split) in &parts {
            for name in directories(root, part)? {
                let directory = Path::new(part).join(&name).display().to_string();
                for image in files(root, &directory, &IMAGE_ENDINGS)? {
                    let class = classes.number(&name, None);
                    let image = RawImage::of_class(format!("{directory}/{image}"), class);
                    raw.images.push(RawImage { part: *split, ..image });
                }
            }
        }
        raw.classes = classes.list;
        if raw.images.is_empty() {
            let message = format!(
                "has no images in directories of classes, such as cat/1.jpg, or train/cat/1.jpg and val/cat/2.jpg{}",
                survey(&root.path)
            );
            return Err(DataError::file(&root.path, message));
        }
        if let [(train, Some(_)), (held_out, _)] = parts.as_slice() {
            raw.notes.push(format!("{train}/ is trained on, {held_out}/ held out"));
        }
        Ok(raw)
    }
}

#[cfg(test)]
#[path = "image_folder_tests.rs"]
mod tests;
