//! Index of a data set of images with boxes: classes, videos, frames, boxes and reference images. Images are read on demand.

use std::path::PathBuf;

use crate::reading::decoding::Largest;
use crate::reading::orientation::ExifOrientation;
use xrun_core::dataset::error::InvalidItems;
use xrun_core::dataset::sample::{BoundingBox, IgnoreReason};
use xrun_core::dataset::split::Split;

/// The index of a data set. It holds names and numbers, never images.
#[derive(Clone, Debug, PartialEq)]
pub struct Library {
    /// Table of its settings in an experiment: `dataset.NAME`.
    pub section: &'static str,
    /// Every path below is relative to this directory, and was checked to stay inside it.
    pub root: PathBuf,
    /// Treatment of EXIF orientations; boxes and sizes are those of the resulting images.
    pub exif_orientation: ExifOrientation,
    /// Sorted by name.
    pub classes: Vec<Class>,
    /// Videos and still images, in the order of the annotations.
    pub videos: Vec<Video>,
    /// Lines that say what was taken for what.
    pub notes: Vec<String>,
    /// SHA-256 over annotations and the names and bytes of the images, in hexadecimal.
    pub digest: String,
    /// Items that were left out (`on_invalid = "skip"`).
    pub skipped: InvalidItems,
    /// The image that needs most memory while it is decoded; `None` without images.
    pub largest: Option<Largest>,
    /// Bytes that opening it took at most before the index was whole.
    pub opening_bytes: u64,
}

impl Library {
    /// Number of frames of all videos.
    pub fn sample_count(&self) -> u64 {
        self.videos.iter().map(|video| video.frames.len() as u64).sum()
    }

    /// Returns whether a class is held out for validation; otherwise a detector is one of fixed classes.
    pub fn holds_out_classes(&self) -> bool {
        self.classes.iter().any(|class| class.split == Some(Split::Validation))
    }

    /// Returns whether objects of the class are drawn from the video.
    pub fn serves(&self, video: &Video, class: usize) -> bool {
        video.part.is_none_or(|part| Some(part) == self.classes[class].split)
    }
}

/// A class of objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Name in the annotations.
    pub name: String,
    /// Its only split: few-shot means new classes, and without any all are trained on and validated on. `None` where no list names it: its objects are ignored in training and are
    /// no ground truth in validation.
    pub split: Option<Split>,
    /// Images that show the class; empty where objects are cut out of frames instead.
    pub references: Vec<Reference>,
}

/// An image of one object of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Relative to the root.
    pub path: PathBuf,
    /// The object; the whole image when `None`.
    pub rectangle: Option<BoundingBox>,
    /// The video it was cut from, so that an episode does not ask for an object in the image that shows it.
    pub video: Option<usize>,
}

/// Frames in order. A still image is a video of one frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Video {
    /// Name in the annotations.
    pub name: String,
    /// `true` for frames of one recording, which spatio-temporal metrics need.
    pub sequence: bool,
    /// Split of its annotation file, where there are two files, or by [`divide`](super::validation_split::divide): only classes of
    /// that split are drawn from it.
    pub part: Option<Split>,
    /// Frames in the order of time.
    pub frames: Vec<Frame>,
}

/// An image and the objects in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Relative to the root.
    pub path: PathBuf,
    /// In pixels, with its orientation applied.
    pub width: usize,
    /// In pixels, with its orientation applied.
    pub height: usize,
    /// Annotated objects, in the order of the annotations.
    pub objects: Vec<Object>,
}

/// An object in a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Index into [`Library::classes`].
    pub class: usize,
    /// Its box, cut to the image.
    pub rectangle: BoundingBox,
    /// Square pixels, by which COCO's metrics call it small, medium or large: as annotated, or else those of the box.
    pub area: f32,
    /// Reason why it is neither right nor wrong to find it; `None` where it is to be found.
    pub ignored: Option<IgnoreReason>,
}
