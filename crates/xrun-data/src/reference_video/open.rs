//! From a folder to an index: which classes, videos, frames, boxes and reference pictures are there, and are they sound?

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::assemble::assemble;
use super::check::SECTION;
use super::generate::{self, generate};
use super::library::{Library, Split};
use super::settings::{Format, Settings, Source};
use super::{coco, coco_files, voc};
use crate::reading::broken::{Judge, OnBroken};
use crate::reading::confined::annotation_file;
use xrun_core::dataset::digest::digest as digest_of;
use xrun_core::dataset::error::{Broken, DataError, UNUSABLE_CLASS};
use xrun_core::dataset::known::Known;
use xrun_core::dataset::written_once;
use xrun_core::printable;

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
    open_folder(&strict, root.clone(), Format::Coco).map_err(|error| written_once::damaged(&root, error))
}

fn open_folder(settings: &Settings, root: PathBuf, format: Format) -> Result<Library, DataError> {
    let root = root
        .canonicalize()
        .map_err(|error| DataError::file(&root, format!("the data set's folder cannot be read: {error}")))?;
    let mut judge = Judge::new(settings.on_broken);
    match read_folder(settings, root, format, &mut judge) {
        Err(fatal) => Err(judge.beside(fatal)),
        Ok(library) => {
            // What is broken may be why a class has no pictures: that alone is said.
            judge.verdict()?;
            check_use(&library)?;
            Ok(library)
        }
    }
}

fn read_folder(settings: &Settings, root: PathBuf, format: Format, judge: &mut Judge) -> Result<Library, DataError> {
    let mut digest = Sha256::new();
    let known = match settings.source {
        Source::Generated => Known::of_generated(&root),
        Source::Folder => Known::open(&root),
    };
    let raw = match format {
        Format::Coco => {
            let files = coco_files::find(&root, settings)?;
            let mut read = |path: &Path| {
                let bytes = annotation_file(&root, path, COCO_BYTES_MAX)?;
                digest.update(&bytes);
                known.expect(generate::ANNOTATIONS, &digest_of(&bytes), path)?;
                let mut raw = coco::read(&bytes, path, judge)?;
                coco_files::place_pictures(&mut raw, &root, path);
                Ok(raw)
            };
            let raw = read(&files.train)?;
            match &files.validation {
                Some(path) => coco_files::together(raw, read(path)?),
                None => raw,
            }
        }
        Format::Voc => voc::read(&root, settings.voc_corners, judge, &mut digest)?,
    };
    assemble(settings, root, raw, judge, digest, known)
}

/// As many classes are named in a message.
const CLASSES_NAMED_MAX: usize = 20;

/// Is there enough to train on and to validate with? All that is missing is said at once.
fn check_use(library: &Library) -> Result<(), DataError> {
    let mut shown_of = vec![0_u64; library.classes.len()];
    for video in &library.videos {
        for frame in &video.frames {
            let used = frame.objects.iter().filter(|object| object.ignored.is_none());
            let classes: BTreeSet<usize> =
                used.map(|object| object.class).filter(|class| library.serves(video, *class)).collect();
            classes.into_iter().for_each(|class| shown_of[class] += 1);
        }
    }
    let mut found = Broken::default();
    for (split, least, key) in [(Split::Train, 2, "train_classes"), (Split::Validation, 1, "validation_classes")] {
        let classes: Vec<usize> =
            (0..library.classes.len()).filter(|class| library.classes[*class].split == split).collect();
        if classes.len() < least {
            let what = if split == Split::Train { "to train on" } else { "held out for validation" };
            let there = match classes.len() {
                1 => "1 class is".to_owned(),
                count => format!("{count} classes are"),
            };
            let message =
                format!("{there} {what}, at least {least} are needed; name them here ({})", classes_there(library));
            found.add(UNUSABLE_CLASS, || DataError::value(format!("{SECTION}.{key}"), message));
        }
        for class in classes {
            let name = printable::line(&library.classes[class].name, 60);
            let shown = shown_of[class];
            let references = library.classes[class].references.len();
            if shown == 0 || references == 0 {
                let usable = usable(library, split, &shown_of);
                let message = format!(
                    "the class \"{name}\" is in {shown} pictures and has {references} reference pictures; it needs \
                     both. Without it, and all that lack them: `{key} = [{usable}]`"
                );
                found.add(UNUSABLE_CLASS, || DataError::value(format!("{SECTION}.{key}"), message));
            }
        }
    }
    match (found.total(), found.first.pop()) {
        (1, Some(only)) => Err(only.error),
        (_, Some(last)) => {
            found.first.push(last);
            Err(DataError::Several(found))
        }
        (_, None) => Ok(()),
    }
}

/// The names of the classes of a split that can be used, as a list in TOML.
fn usable(library: &Library, split: Split, shown: &[u64]) -> String {
    let classes = library.classes.iter().zip(shown);
    let usable = classes.filter(|(class, shown)| class.split == split && **shown > 0 && !class.references.is_empty());
    let named: Vec<String> =
        usable.take(CLASSES_NAMED_MAX).map(|(class, _)| format!("\"{}\"", printable::line(&class.name, 60))).collect();
    named.join(", ")
}

fn classes_there(library: &Library) -> String {
    let named = library.classes.iter().take(CLASSES_NAMED_MAX);
    let named: Vec<String> = named.map(|class| format!("\"{}\"", printable::line(&class.name, 60))).collect();
    let more = library.classes.len().saturating_sub(CLASSES_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("the data has the classes {}{more}", named.join(", "))
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
