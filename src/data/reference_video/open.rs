//! From a folder to an index: which classes, videos, frames, boxes and reference pictures are there, and are they sound?

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::assemble::assemble;
use super::generate::generate;
use super::library::{Library, Split};
use super::raw::{Judge, annotation_file};
use super::settings::{Format, Settings, Source};
use super::{coco, voc};
use crate::data::error::DataError;

/// Opens the data set that the settings name. Pictures are not decoded, but each is looked for, and its size is read.
pub fn open(settings: &Settings) -> Result<Library, DataError> {
    let (root, format) = match settings.source {
        Source::Generated => (generate(&settings.generated)?, Format::Coco),
        Source::Folder => {
            let path = settings.path.as_deref().unwrap_or_default();
            (PathBuf::from(path), settings.format)
        }
    };
    let root = root
        .canonicalize()
        .map_err(|error| DataError::file(&root, format!("the data set's folder cannot be read: {error}")))?;
    let mut judge = Judge::new(settings.on_broken);
    let (raw, bytes) = match format {
        Format::Coco => {
            let path = coco_file(&root)?;
            let bytes = annotation_file(&path)?;
            (coco::read(&bytes, &path, &mut judge)?, bytes)
        }
        Format::Voc => voc::read(&root, &mut judge)?,
    };
    let mut digest = Sha256::new();
    digest.update(&bytes);
    drop(bytes);
    let library = assemble(settings, root, raw, judge, digest)?;
    check_use(&library)?;
    Ok(library)
}

/// `annotations.json`, or the only JSON file of `annotations/`.
fn coco_file(root: &Path) -> Result<PathBuf, DataError> {
    let usual = root.join("annotations.json");
    if usual.is_file() {
        return Ok(usual);
    }
    let entries = std::fs::read_dir(root.join("annotations")).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(_), false) => {
            Err(DataError::file(root, "has several JSON files in annotations/; name one annotations.json"))
        }
        (None, _) => {
            let voc = root.join("annotations").is_dir() || root.join("Annotations").is_dir();
            let hint = if voc { "; for Pascal VOC's XML set format = \"voc\"" } else { "" };
            Err(DataError::file(root, format!("has no annotations.json{hint}")))
        }
    }
}

/// Is there enough to train on and to validate with?
fn check_use(library: &Library) -> Result<(), DataError> {
    let root = library.root.display();
    for (split, least, key) in [(Split::Train, 2, "train_classes"), (Split::Validation, 1, "validation_classes")] {
        let classes: Vec<usize> =
            (0..library.classes.len()).filter(|class| library.classes[*class].split == split).collect();
        if classes.len() < least {
            let what = if split == Split::Train { "to train on" } else { "held out for validation" };
            return Err(DataError::Content(format!(
                "{root}: {} classes are {what}, at least {least} are needed; name them with `dataset.reference-video.{key}`",
                classes.len()
            )));
        }
        for class in classes {
            let name = &library.classes[class].name;
            let frames = library.videos.iter().flat_map(|video| &video.frames);
            let shown = frames.filter(|frame| frame.objects.iter().any(|o| o.class == class && !o.ignore)).count();
            let references = library.classes[class].references.len();
            if shown == 0 || references == 0 {
                return Err(DataError::Content(format!(
                    "{root}: the class \"{name}\" is in {shown} pictures and has {references} reference pictures; it needs \
                     both, or must be left out of `train_classes` and `validation_classes`"
                )));
            }
        }
    }
    Ok(())
}
