//! Opens a directory of images with boxes: the steps that all formats share, around the reader of one.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::assemble::assemble;
use super::library::Library;
use super::raw::Raw;
use crate::reading::confined::Root;
use crate::reading::invalid::{InvalidCollector, OnInvalid};
use crate::reading::orientation::ExifOrientation;
use xrun_core::dataset::digest_cache::DigestCache;
use xrun_core::dataset::error::DataError;
use xrun_core::problem::{Problem, Problems};

/// Settings that every format has.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryOptions<'a> {
    /// Table of the settings in an experiment: `dataset.NAME`.
    pub section: &'static str,
    /// Treatment of EXIF orientations; boxes are those of the resulting images.
    pub exif_orientation: ExifOrientation,
    /// Policy for data that cannot be used.
    pub on_invalid: OnInvalid,
    /// Names of the classes to train on. If empty: all classes that are not held out.
    pub train_classes: &'a [String],
    /// Names of the classes held out. If empty: those of the supercategory `novel`.
    pub validation_classes: &'a [String],
    /// Directory.
    pub path: Option<&'a str>,
    /// Whether symlinks are followed out of the directory.
    pub follow_links: bool,
    /// Directory below which targets of symlinks may lie, besides the data set's own.
    pub link_root: Option<&'a str>,
}

/// Input of the reader of a format. The reader returns the annotations unchanged and adds their bytes to `digest`.
pub struct ReaderInput<'a> {
    /// Directory of the data set.
    pub root: &'a Root,
    /// Known digests and sizes of its files.
    pub digest_cache: &'a DigestCache,
    /// Collector of invalid items.
    pub invalid: &'a mut InvalidCollector,
    /// Digest of the data set.
    pub digest: &'a mut Sha256,
}

/// Opens a directory. Images are not decoded, but each must exist, have a readable size, and not be cut off.
///
/// # Errors
/// All that would end a run before its first step, whatever its pipeline.
pub fn dataset(
    options: DirectoryOptions<'_>,
    root: &Path,
    open_cache: fn(&Path) -> DigestCache,
    read: impl FnOnce(ReaderInput<'_>) -> Result<Raw, DataError>,
) -> Result<Library, DataError> {
    let root = Root::open(root, options.follow_links, options.link_root)?;
    InvalidCollector::collect(options.on_invalid, |invalid| {
        let (mut digest, digest_cache) = (Sha256::new(), open_cache(&root.path));
        let raw = read(ReaderInput { root: &root, digest_cache: &digest_cache, invalid, digest: &mut digest })?;
        assemble(options, root, raw, invalid, digest, digest_cache)
    })
}

/// Adds a problem for a class that is listed twice, or both held out and trained on.
pub fn check_classes(options: &DirectoryOptions<'_>, problems: &mut Problems) {
    let key = |name: &str| format!("{}.{name}", options.section);
    for (name, list) in [("train_classes", options.train_classes), ("validation_classes", options.validation_classes)] {
        let twice = list.iter().enumerate().find(|(at, class)| list[..*at].contains(class));
        if let Some((_, class)) = twice {
            problems.add(Problem::new(key(name), format!("\"{class}\" is written twice")).help("keep one of them"));
        }
    }
    if let Some(class) = options.validation_classes.iter().find(|class| options.train_classes.contains(class)) {
        let message = format!("\"{class}\" is held out, and `train_classes` trains on it");
        let problem = Problem::new(key("validation_classes"), message).related(key("train_classes"));
        problems.add(problem.help("a class held out must never be trained on: take it out of one of the lists"));
    }
}
