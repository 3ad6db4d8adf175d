//! Opens a directory of clips: checks the table and every file, and makes the index.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::generate;
use super::library::{Class, ClassSplit, Clip, Column, Library};
use super::settings::{SoundClips, Source};
use super::sound;
use super::table::{self, Row, Table};
use crate::reading::confined::{Root, annotation_file, confined};
use crate::reading::invalid::{Fault, InvalidCollector, OnInvalid};
use crate::reading::other_files;
use xrun_core::dataset::digest::hexadecimal;
use xrun_core::dataset::digest_cache::DigestCache;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;
use xrun_core::dataset::{cache, generated};
use xrun_core::files::file;
use xrun_core::printable;

/// Maximum size of a table of clips.
const TABLE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Directory of the clips.
pub const AUDIO: &str = "audio";
/// Maximum number of folds that a message names.
const FOLDS_NAMED_MAX: usize = 20;

/// Opens the data set that the settings name; a generated one is written now if it is not there. All clips of a directory are
/// read once, and none is kept.
///
/// # Errors
/// All that would end a run before its first step.
pub fn open(settings: &SoundClips) -> Result<Library, DataError> {
    match settings.source {
        Source::Generated => open_generated(settings, generate::generate_in(&settings.generated, &cache::directory())?),
        Source::Directory => open_directory(settings, &root(settings)),
    }
}

/// The directory of the data set.
pub fn root(settings: &SoundClips) -> PathBuf {
    match settings.source {
        Source::Generated => generate::set(&settings.generated).directory(&cache::directory()),
        Source::Directory => PathBuf::from(settings.path.as_deref().unwrap_or_default()),
    }
}

/// Opens a generated set. No part of it is ever left out: results on it would not compare.
pub(super) fn open_generated(settings: &SoundClips, root: PathBuf) -> Result<Library, DataError> {
    let strict = SoundClips { on_invalid: OnInvalid::Fail, ..settings.clone() };
    open_directory(&strict, &root).map_err(|error| generated::damaged(&root, error))
}

fn open_directory(settings: &SoundClips, root: &Path) -> Result<Library, DataError> {
    let root = Root::open(root, settings.follow_links, settings.link_root.as_deref())?;
    let library =
        InvalidCollector::collect(settings.on_invalid, |invalid| read_directory(settings, root.clone(), invalid))?;
    // Invalid clips may be the reason why a fold is empty, and were reported in its place.
    check_use(&root.path, &library)?;
    Ok(library)
}

fn read_directory(settings: &SoundClips, root: Root, invalid: &mut InvalidCollector) -> Result<Library, DataError> {
    let mut known = match settings.source {
        Source::Generated => DigestCache::open_generated(&root.path),
        Source::Directory => DigestCache::open(&root.path),
    };
    let (mut digest, mut table_bytes) = (Sha256::new(), 0);
    let (place, audio, Table { rows, categories, columns }) = match table::find(&root.path) {
        None => (root.path.clone(), "", table::of_directories(&root)?),
        Some(place) => {
            let bytes = annotation_file(&root, &place, TABLE_BYTES_MAX)?;
            let name = place.strip_prefix(&root.path).unwrap_or(&place).to_string_lossy().into_owned();
            known.expect(&name, &xrun_core::dataset::digest::digest(&bytes), &place)?;
            table_bytes = bytes.len() as u64;
            digest.update(table_bytes.to_le_bytes());
            digest.update(&bytes);
            let table = table::read(&bytes, &place, invalid)?;
            (place, AUDIO, table)
        }
    };
    let ignored = match settings.source {
        Source::Generated => Vec::new(),
        Source::Directory => {
            let used = rows.iter().map(|row| Path::new(audio).join(&row.file));
            other_files::notes(&root, used, &["wav"], "sound", audio.is_empty())
        }
    };
    let (mut silent, mut decoding_bytes) = (0, 0);
    let mut kept: Vec<Row> = Vec::with_capacity(rows.len());
    for row in rows {
        let name = Path::new(audio).join(&row.file).display().to_string();
        // Clips of directories are in no line.
        let (at, of) = match row.line {
            0 => Default::default(),
            line => (format!("line {line}: "), format!(" ({name} is in line {line} of the table)")),
        };
        // The whole path: where a clip was looked for is half of the answer.
        let whole = root.join(&name);
        match confined(&root, &name) {
            Ok(Some(_)) => {}
            Ok(None) => {
                invalid.add("missing_clip", &place, format!("{at}{} is not there", whole.display()));
                continue;
            }
            Err(error) => {
                invalid.add("outside", &place, format!("{at}{error}"));
                continue;
            }
        }
        let about = std::fs::metadata(&whole).map_or(0, |about| about.len());
        if about > sound::FILE_BYTES_MAX {
            invalid.add("too_large", &whole, format!("{at}has {about} bytes, at most {}", sound::FILE_BYTES_MAX));
            continue;
        }
        digest.update(name.as_bytes());
        digest.update(about.to_le_bytes());
        digest.update(known.digest(&name, &whole)?.as_bytes());
        let mut samples = about / GENERATED_SAMPLE_BYTES;
        // What xrun wrote has the bytes that it wrote: they were hashed.
        if settings.source == Source::Directory {
            match heard(&whole) {
                Ok(sound) => {
                    silent += u64::from(sound.is_silent());
                    samples = sound.samples.len() as u64;
                }
                Err((reason, message)) => {
                    invalid.add(reason, &whole, format!("{message}{of}"));
                    continue;
                }
            }
        }
        decoding_bytes = sound::decoding_bytes(about, samples).max(decoding_bytes);
        kept.push(row);
    }
    let opening_bytes = table_bytes + known.bytes_max();
    known.save();
    // Of what was left out nothing is a class.
    let used: BTreeSet<u32> = kept.iter().map(|row| row.target).collect();
    let class = |(target, name): (u32, String)| match settings.source {
        Source::Generated => {
            let words = name.split('-').map(str::to_owned).collect();
            Class { split: generate::split(target), words, name, target }
        }
        Source::Directory => Class { split: ClassSplit::Federated, words: vec![name.clone()], name, target },
    };
    let mut classes: Vec<Class> =
        categories.into_iter().filter(|(target, _)| used.contains(target)).map(class).collect();
    classes.sort_by_key(|class| (class.split, class.target));
    let number: BTreeMap<u32, u32> = (0..).zip(&classes).map(|(number, class)| (class.target, number)).collect();
    let columns = columns.into_iter().enumerate().map(|(at, (name, values))| {
        let of_clip = kept.iter().map(|row| row.values[at]).collect();
        Column { name, values, of_clip }
    });
    let clip = |row: &Row| Clip { file: row.file.clone(), class: number[&row.target], fold: row.fold };
    Ok(Library {
        directory: root.path.join(audio),
        clips: kept.iter().map(clip).collect(),
        classes,
        columns: columns.collect(),
        validation_fold: settings.validation_fold,
        silent,
        ignored,
        digest: hexadecimal(&digest.finalize()),
        skipped: invalid.found.clone(),
        decoding_bytes,
        opening_bytes,
    })
}

/// Bytes of a sample in a generated file.
const GENERATED_SAMPLE_BYTES: u64 = 2;

/// The sound in a file.
fn heard(path: &Path) -> Result<sound::Sound, Fault> {
    let failed = |error: std::io::Error| ("unreadable", format!("cannot be read: {error}"));
    sound::read(&file::bytes(path, sound::FILE_BYTES_MAX).map_err(failed)?, u64::MAX)
}

/// Refuses data that has too little to train on or to validate with.
fn check_use(root: &Path, library: &Library) -> Result<(), DataError> {
    let classes = library.classes_of(ClassSplit::Federated).len();
    if classes < 2 {
        return Err(DataError::file(root, format!("has {classes} classes of clips, at least 2 are needed")));
    }
    let mut folds: Vec<u32> = library.clips.iter().map(|clip| clip.fold).collect();
    folds.sort_unstable();
    folds.dedup();
    let fold = library.validation_fold;
    for (split, what) in [(Split::Validation, "in"), (Split::Train, "outside of")] {
        if library.clips_of(ClassSplit::Federated, split).is_empty() {
            let named: Vec<String> = folds.iter().take(FOLDS_NAMED_MAX).map(u32::to_string).collect();
            let message = format!(
                "no clip is {what} fold {fold}, which `dataset.sound-clips.validation_fold` holds out; the folds are {}",
                named.join(", ")
            );
            return Err(DataError::file(root, message));
        }
    }
    // A class without training clips cannot be learned.
    let mut trained = vec![false; library.classes.len()];
    let train = library.clips.iter().filter(|clip| library.split(clip) == Split::Train);
    train.for_each(|clip| trained[clip.class as usize] = true);
    match trained.iter().position(|trained| !trained) {
        Some(class) => {
            let name = printable::line(&library.classes[class].name, 60);
            let message = format!("all clips of the class \"{name}\" are in fold {fold}, which is held out");
            Err(DataError::file(root, message))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
