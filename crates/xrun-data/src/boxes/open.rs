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

/// The settings that every format has.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Table of the settings in an experiment: `dataset.NAME`.
    pub section: &'static str,
    /// Treatment of EXIF orientations; boxes are those of the resulting images.
    pub exif_orientation: ExifOrientation,
    /// The policy for data that cannot be used.
    pub on_invalid: OnInvalid,
    /// Names of the classes to train on; all that are not held out where it is empty.
    pub train_classes: &'a [String],
    /// Names of the classes held out; those of the supercategory `novel` where it is empty.
    pub validation_classes: &'a [String],
    /// The directory.
    pub path: Option<&'a str>,
    /// Whether symlinks are followed out of the directory.
    pub follow_links: bool,
    /// Directory that they may lead into.
    pub link_root: Option<&'a str>,
}

/// The input of the reader of a format: it gives the annotations as they are written, and puts their bytes into the digest.
pub struct Source<'a> {
    /// The directory of the data set.
    pub root: &'a Root,
    /// Digests and sizes of its files that are known already.
    pub known: &'a DigestCache,
    /// Collects invalid items.
    pub invalid: &'a mut InvalidCollector,
    /// The digest of the data set.
    pub digest: &'a mut Sha256,
}

/// Opens a directory. Images are not decoded, but each must exist, have a readable size, and not be cut off.
///
/// # Errors
/// All that would end a run before its first step, whatever its pipeline.
pub fn dataset(
    rules: Rules<'_>,
    root: &Path,
    known: fn(&Path) -> DigestCache,
    read: impl FnOnce(Source<'_>) -> Result<Raw, DataError>,
) -> Result<Library, DataError> {
    let root = Root::open(root, rules.follow_links, rules.link_root)?;
    InvalidCollector::collect(rules.on_invalid, |invalid| {
        let (mut digest, known) = (Sha256::new(), known(&root.path));
        let raw = read(Source { root: &root, known: &known, invalid, digest: &mut digest })?;
        assemble(rules, root, raw, invalid, digest, known)
    })
}

/// Adds classes that are written twice, or that are held out and trained on.
pub fn check_classes(rules: &Rules<'_>, problems: &mut Problems) {
    let key = |name: &str| format!("{}.{name}", rules.section);
    for (name, list) in [("train_classes", rules.train_classes), ("validation_classes", rules.validation_classes)] {
        let twice = list.iter().enumerate().find(|(at, class)| list[..*at].contains(class));
        if let Some((_, class)) = twice {
            problems.add(Problem::new(key(name), format!("\"{class}\" is written twice")).help("keep one of them"));
        }
    }
    if let Some(class) = rules.validation_classes.iter().find(|class| rules.train_classes.contains(class)) {
        let message = format!("\"{class}\" is held out, and `train_classes` trains on it");
        let problem = Problem::new(key("validation_classes"), message).related(key("train_classes"));
        problems.add(problem.help("a class held out must never be trained on: take it out of one of the lists"));
    }
}
