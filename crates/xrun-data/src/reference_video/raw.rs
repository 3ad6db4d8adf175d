//! What do COCO and VOC have in common? Pictures with boxes, before anything is checked against the disk.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::reference_video::library::Split;
use crate::reference_video::settings::OnBroken;
use xrun_core::dataset::error::{Broken, DataError, FATAL};
use xrun_core::dataset::sample::Ignored;

/// A data set as its annotations tell it.
#[derive(Debug, Default)]
pub struct Raw {
    /// In the order of the annotations.
    pub classes: Vec<RawClass>,
    /// Names of the videos; two may have the same.
    pub videos: Vec<String>,
    /// In the order of the annotations.
    pub pictures: Vec<RawPicture>,
    /// `None` when the format names none: then objects are cut out of the pictures.
    pub references: Option<Vec<RawReference>>,
}

/// A class, as a category of COCO or a name of VOC.
#[derive(Debug)]
pub struct RawClass {
    /// Its name.
    pub name: String,
    /// COCO's `supercategory`; a class of `novel` is held out where the settings name no classes.
    pub supercategory: Option<String>,
}

/// A picture with its objects.
#[derive(Debug)]
pub struct RawPicture {
    /// Relative to the root, as written; not yet checked.
    pub file: String,
    /// Width and height as annotated, if they are.
    pub size: Option<(u64, u64)>,
    /// Index into [`Raw::videos`]; `None` for a still picture.
    pub video: Option<usize>,
    /// Frames of a video are in the order of this number.
    pub frame: i64,
    /// What is annotated in it.
    pub objects: Vec<RawObject>,
    /// What its file is for, where there are two of them.
    pub part: Option<Split>,
}

/// An annotated object.
#[derive(Debug)]
pub struct RawObject {
    /// Index into [`Raw::classes`].
    pub class: usize,
    /// Left, top, right, bottom: distances in pixels from the left and the upper edge of the picture.
    pub corners: [f64; 4],
    /// Square pixels, where the annotation says how many; then they need not be those of the box.
    pub area: Option<f64>,
    /// Why it is neither right nor wrong to find it; `None` where it is to be found.
    pub ignored: Option<Ignored>,
    /// What to call it in a message.
    pub called: String,
}

/// A reference picture of a class.
#[derive(Debug)]
pub struct RawReference {
    /// Index into [`Raw::classes`].
    pub class: usize,
    /// Relative to the root, as written; not yet checked.
    pub file: String,
    /// Left, top, right and bottom of the object in it, in pixels; `None` is all of the picture.
    pub corners: Option<[f64; 4]>,
    /// Index into [`Raw::videos`].
    pub video: Option<usize>,
}

/// What can be done about one broken item.
const LEAVE_OUT: &str = "correct it, or leave it out with on_broken = \"skip\"";

/// Decides what becomes of broken data, counts it, and remembers the first by name: all mistakes are told at once.
#[derive(Debug)]
pub struct Judge {
    policy: OnBroken,
    /// What may be left out.
    pub found: Broken,
    /// What must not.
    fatal: Broken,
}

impl Judge {
    /// One that follows `on_broken`.
    pub fn new(policy: OnBroken) -> Self {
        Self { policy, found: Broken::default(), fatal: Broken::default() }
    }

    /// Takes down what is left out for now. The reason is a few fixed words.
    pub fn broken(&mut self, reason: &'static str, path: &Path, message: String) {
        self.found.add(reason, || DataError::file(path, message));
    }

    /// As [`Judge::broken`], with a message that takes work and is made only where it is shown.
    pub fn broken_with(&mut self, reason: &'static str, path: &Path, message: impl FnOnce() -> String) {
        self.found.add(reason, || DataError::file(path, message()));
    }

    /// Takes down what no policy leaves out, for one of the reasons that say so. The look goes on, and [`Judge::verdict`]
    /// ends it.
    pub fn fatal(&mut self, reason: &'static str, error: impl FnOnce() -> DataError) {
        self.fatal.add(reason, error);
    }

    /// Whether there is anything that no policy leaves out.
    pub fn has_fatal(&self) -> bool {
        self.fatal.total() > 0
    }

    /// When all was looked at: what there is to say about what is broken, if it must not be.
    ///
    /// # Errors
    /// Something is broken, and nothing may be left out, or not this.
    pub fn verdict(&self) -> Result<(), DataError> {
        let mut all = self.fatal.clone();
        if self.policy == OnBroken::Fail {
            all.append(&self.found);
        }
        match all.first.as_slice() {
            [] => Ok(()),
            [only] if all.total() == 1 => Err(match only.error.clone() {
                DataError::File { path, message, .. } if self.fatal.total() == 0 => {
                    DataError::File { path, message, hint: Some(LEAVE_OUT.into()) }
                }
                other => other,
            }),
            _ => Err(DataError::Several(all)),
        }
    }

    /// An error that ended the look, beside what was found before it.
    pub fn beside(mut self, error: DataError) -> DataError {
        self.fatal(FATAL, || error.clone());
        self.verdict().err().unwrap_or(error)
    }
}

/// The bytes of an annotation file below `root`, which is canonical. More than `bytes_max` are an error, and so is a
/// link that leads out of the root.
pub fn annotation_file(root: &Path, path: &Path, bytes_max: u64) -> Result<Vec<u8>, DataError> {
    let failed = |error: std::io::Error| DataError::file(path, format!("cannot be read: {error}"));
    if !path.canonicalize().map_err(failed)?.starts_with(root) {
        return Err(DataError::file(path, "is a link to a file outside of the data set's folder; copy the file there"));
    }
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(DataError::file(path, "is no file"));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("has {} bytes, at most {bytes_max} are read of an annotation file", about.len());
        return Err(DataError::file(path, message));
    }
    Ok(bytes)
}
