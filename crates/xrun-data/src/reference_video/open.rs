//! From a folder to an index: which classes, videos, frames, boxes and reference pictures are there, and are they sound?

use std::path::{Path, PathBuf};

use sha2::Digest;

use super::check::SECTION;
use super::generate::{self, generate};
use super::settings::{Format, Settings, Source};
use super::{coco, coco_files, voc};
use crate::boxes::library::Library;
use crate::boxes::open::{self, Rules};
use crate::boxes::raw::Raw;
use crate::reading::broken::OnBroken;
use crate::reading::confined::annotation_file;
use xrun_core::dataset::digest::digest as digest_of;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::known::Known;
use xrun_core::dataset::written_once;

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

/// Opens data that xrun wrote itself. Nothing of it is ever left out: results on it would not compare.
fn open_generated(settings: &Settings, root: PathBuf) -> Result<Library, DataError> {
    let strict = Settings { on_broken: OnBroken::Fail, ..settings.clone() };
    open_folder(&strict, root.clone(), Format::Coco).map_err(|error| written_once::damaged(&root, error))
}

/// The settings that every format has.
pub fn rules(settings: &Settings) -> Rules<'_> {
    Rules {
        section: SECTION,
        exif_orientation: settings.exif_orientation,
        on_broken: settings.on_broken,
        train_classes: &settings.train_classes,
        validation_classes: &settings.validation_classes,
    }
}

fn open_folder(settings: &Settings, root: PathBuf, format: Format) -> Result<Library, DataError> {
    let known: fn(&Path) -> Known = match settings.source {
        Source::Generated => Known::of_generated,
        Source::Folder => Known::open,
    };
    open::folder(rules(settings), &root, known, |source| match format {
        Format::Coco => read_coco(settings, source),
        Format::Voc => voc::read(source.root, settings.voc_corners, source.judge, source.digest),
    })
}

fn read_coco(settings: &Settings, source: open::Source<'_>) -> Result<Raw, DataError> {
    let open::Source { root, known, judge, digest } = source;
    let files = coco_files::find(root, settings)?;
    let mut read = |path: &Path| {
        let bytes = annotation_file(root, path, COCO_BYTES_MAX)?;
        digest.update(&bytes);
        known.expect(generate::ANNOTATIONS, &digest_of(&bytes), path)?;
        let mut raw = coco::read(&bytes, path, judge)?;
        coco_files::place_pictures(&mut raw, root, path);
        Ok(raw)
    };
    let raw = read(&files.train)?;
    match &files.validation {
        Some(path) => Ok(coco_files::together(raw, read(path)?)),
        None => Ok(raw),
    }
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
