//! What do COCO and VOC have in common? Pictures with boxes, before anything is checked against the disk.

use std::collections::BTreeMap;
use std::path::Path;

use crate::data::error::DataError;
use crate::data::reference_video::settings::OnBroken;

/// A data set as its annotations tell it.
#[derive(Debug, Default)]
pub struct Raw {
    pub classes: Vec<RawClass>,
    pub pictures: Vec<RawPicture>,
    /// `None` when the format names none: then objects are cut out of the pictures.
    pub references: Option<Vec<RawReference>>,
}

#[derive(Debug)]
pub struct RawClass {
    pub name: String,
    pub supercategory: Option<String>,
}

#[derive(Debug)]
pub struct RawPicture {
    /// Relative to the root, as written; not yet checked.
    pub file: String,
    /// Width and height as annotated, if they are.
    pub size: Option<(u64, u64)>,
    pub video: Option<String>,
    pub frame: i64,
    pub objects: Vec<RawObject>,
}

#[derive(Debug)]
pub struct RawObject {
    /// Index into [`Raw::classes`].
    pub class: usize,
    /// Left, top, right, bottom.
    pub corners: [f64; 4],
    pub ignore: bool,
    /// What to call it in a message.
    pub called: String,
}

#[derive(Debug)]
pub struct RawReference {
    pub class: usize,
    pub file: String,
    pub corners: Option<[f64; 4]>,
    pub video: Option<String>,
}

/// Decides what becomes of broken data, and counts.
#[derive(Debug)]
pub struct Judge {
    pub policy: OnBroken,
    pub skipped: BTreeMap<String, u64>,
}

impl Judge {
    pub fn new(policy: OnBroken) -> Self {
        Self { policy, skipped: BTreeMap::new() }
    }

    /// An error, or a count under a reason: a few fixed words.
    pub fn broken(&mut self, reason: &'static str, path: &Path, message: String) -> Result<(), DataError> {
        match self.policy {
            OnBroken::Fail => {
                Err(DataError::file(path, format!("{message}; correct it, or leave it out with on_broken = \"skip\"")))
            }
            OnBroken::Skip => {
                *self.skipped.entry(reason.to_owned()).or_default() += 1;
                Ok(())
            }
        }
    }
}

/// More than this is no annotation file.
const ANNOTATION_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// The bytes of an annotation file.
pub fn annotation_file(path: &Path) -> Result<Vec<u8>, DataError> {
    let failed = |error: std::io::Error| DataError::file(path, format!("cannot be read: {error}"));
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() || about.len() > ANNOTATION_BYTES_MAX {
        return Err(DataError::file(path, format!("is no annotation file ({} bytes)", about.len())));
    }
    std::fs::read(path).map_err(failed)
}
