//! Images in a directory for each class, as most classifiers read them: the whole image is the object.
//!
//! Directories of classes are at the root; or below `train/` and `val/`, whose images are validated on and never trained on.

use std::path::Path;

use crate::boxes::format::Format;
use crate::boxes::open::ReaderInput;
use crate::boxes::raw::{ClassTable, HELD_OUT, IMAGE_ENDINGS, ObjectName, Raw, RawImage, RawObject, Unit};
use crate::directory_settings;
use crate::reading::confined::{directories, files};
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
        let held_out = HELD_OUT.into_iter().find(|name| all.iter().any(|other| other == name));
        let parts = match held_out.filter(|_| all.iter().any(|name| name == "train")) {
            Some(held_out) => vec![("train", Some(Split::Train)), (held_out, Some(Split::Validation))],
            None => vec![("", None)],
        };
        let (mut raw, mut classes) = (Raw::default(), ClassTable::default());
        for (part, split) in parts {
            for name in directories(root, part)? {
                let directory = Path::new(part).join(&name).display().to_string();
                for image in files(root, &directory, &IMAGE_ENDINGS)? {
                    let class = classes.number(&name, None);
                    let corners = [0.0, 0.0, 1.0, 1.0];
                    let whole = RawObject { class, corners, area: None, ignored: None, name: ObjectName::Image };
                    let image = RawImage::still(format!("{directory}/{image}"), vec![whole], Unit::Fractions);
                    raw.images.push(RawImage { part: split, ..image });
                }
            }
        }
        raw.classes = classes.list;
        if raw.images.is_empty() {
            let message =
                "has no images in directories of classes, such as cat/1.jpg, or train/cat/1.jpg and val/cat/2.jpg";
            return Err(DataError::file(&root.path, message));
        }
        Ok(raw)
    }
}

#[cfg(test)]
#[path = "image_folder_tests.rs"]
mod tests;
