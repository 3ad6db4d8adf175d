//! From a folder to an index: which classes, videos, frames, boxes and reference pictures are there, and are they sound?

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::assemble::assemble;
use super::generate::{self, generate};
use super::library::{Library, Split};
use super::raw::{Judge, LEAVE_OUT, annotation_file};
use super::settings::{Format, OnBroken, Settings, Source};
use super::{coco, voc};
use crate::data::digest::digest as digest_of;
use crate::data::error::DataError;
use crate::data::known::Known;

/// More than this is no annotation file.
const COCO_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Opens the data set that the settings name. Pictures are not decoded, but each is looked for, its size is read, and
/// whether its end is there.
pub fn open(settings: &Settings) -> Result<Library, DataError> {
    match settings.source {
        Source::Generated => open_generated(settings, generate(&settings.generated)?),
        Source::Folder => {
            let path = settings.path.as_deref().unwrap_or_default();
            open_folder(settings, PathBuf::from(path), settings.format)
        }
    }
}

/// The folder of the data set.
pub fn root(settings: &Settings) -> PathBuf {
    match settings.source {
        Source::Generated => generate::folder(&settings.generated),
        Source::Folder => PathBuf::from(settings.path.as_deref().unwrap_or_default()),
    }
}

/// What xrun wrote itself is never left out in part: results on it would not compare.
fn open_generated(settings: &Settings, root: PathBuf) -> Result<Library, DataError> {
    let strict = Settings { on_broken: OnBroken::Fail, ..settings.clone() };
    open_folder(&strict, root.clone(), Format::Coco).map_err(|error| match error {
        DataError::File { path, message } => {
            let cause = message.strip_suffix(LEAVE_OUT).unwrap_or(&message);
            let advice = "the generated data set is damaged; delete this folder, and it is generated again";
            DataError::file(&root, format!("{advice} ({path}: {cause})"))
        }
        DataError::Content(message) => DataError::content(message),
    })
}

fn open_folder(settings: &Settings, root: PathBuf, format: Format) -> Result<Library, DataError> {
    let root = root
        .canonicalize()
        .map_err(|error| DataError::file(&root, format!("the data set's folder cannot be read: {error}")))?;
    let mut judge = Judge::new(settings.on_broken);
    let mut digest = Sha256::new();
    let known = match settings.source {
        Source::Generated => Known::of_generated(&root),
        Source::Folder => Known::open(&root),
    };
    let raw = match format {
        Format::Coco => {
            let path = coco_file(&root)?;
            let bytes = annotation_file(&root, &path, COCO_BYTES_MAX)?;
            digest.update(&bytes);
            known.expect(generate::ANNOTATIONS, &digest_of(&bytes), &path)?;
            coco::read(&bytes, &path, &mut judge)?
        }
        Format::Voc => voc::read(&root, settings.voc_corners, &mut judge, &mut digest)?,
    };
    let library = assemble(settings, root, raw, judge, digest, known)?;
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
    let mut shown = vec![0_u64; library.classes.len()];
    for frame in library.videos.iter().flat_map(|video| &video.frames) {
        let classes: BTreeSet<usize> = frame.objects.iter().filter(|o| o.ignored.is_none()).map(|o| o.class).collect();
        classes.into_iter().for_each(|class| shown[class] += 1);
    }
    for (split, least, key) in [(Split::Train, 2, "train_classes"), (Split::Validation, 1, "validation_classes")] {
        let classes: Vec<usize> =
            (0..library.classes.len()).filter(|class| library.classes[*class].split == split).collect();
        if classes.len() < least {
            let what = if split == Split::Train { "to train on" } else { "held out for validation" };
            return Err(DataError::content(format!(
                "{root}: {} classes are {what}, at least {least} are needed; name them with `dataset.reference-video.{key}`",
                classes.len()
            )));
        }
        for class in classes {
            let name = &library.classes[class].name;
            let shown = shown[class];
            let references = library.classes[class].references.len();
            if shown == 0 || references == 0 {
                return Err(DataError::content(format!(
                    "{root}: the class \"{name}\" is in {shown} pictures and has {references} reference pictures; it needs \
                     both, or must be left out of `train_classes` and `validation_classes`"
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
