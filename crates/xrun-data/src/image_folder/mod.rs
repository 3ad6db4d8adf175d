//! Images in a directory for each class, as most classifiers read them: the whole image is the object.
//!
//! Directories of classes are at the root; or below `train/` and `val/`, whose images are validated on and never trained on.

use std::collections::{BTreeMap, BTreeSet};

use crate::boxes::format::Format;
use crate::boxes::open::Source;
use crate::boxes::raw::{Called, IMAGE_ENDINGS, Raw, RawClass, RawImage, RawObject, Unit};
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

    fn read(&self, source: Source<'_>) -> Result<Raw, DataError> {
        let root = source.root;
        let all: BTreeSet<String> = directories(root, "")?.into_iter().collect();
        let held_out = ["val", "valid", "validation"].into_iter().find(|name| all.contains(*name));
        let parts = match held_out.filter(|_| all.contains("train")) {
            Some(held_out) => vec![("train", Some(Split::Train)), (held_out, Some(Split::Validation))],
            None => vec![("", None)],
        };
        let (mut raw, mut number) = (Raw::default(), BTreeMap::new());
        for (part, split) in parts {
            let prefix = if part.is_empty() { String::new() } else { format!("{part}/") };
            for name in directories(root, part)? {
                let directory = format!("{prefix}{name}");
                let images = files(root, &directory, &IMAGE_ENDINGS)?;
                if images.is_empty() {
                    continue;
                }
                let class = *number.entry(name).or_insert_with_key(|name| {
                    raw.classes.push(RawClass { name: name.clone(), supercategory: None });
                    raw.classes.len() - 1
                });
                raw.images.extend(images.into_iter().map(|image| RawImage {
                    file: format!("{directory}/{image}"),
                    size: None,
                    video: None,
                    frame: 0,
                    objects: vec![RawObject {
                        class,
                        corners: [0.0, 0.0, 1.0, 1.0],
                        area: None,
                        ignored: None,
                        called: Called::Image,
                    }],
                    part: split,
                    unit: Unit::Fraction,
                }));
            }
        }
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
