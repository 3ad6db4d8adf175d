//! What is in a data set: classes, videos, frames, boxes and reference pictures? An index; pictures are read on demand.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::drawn::{Drawn, drawn_classes};
use super::few_shot;
use crate::reading::decoding::Largest;
use crate::reading::orientation::ExifOrientation;
use xrun_core::dataset::error::{Broken, DataError};
use xrun_core::dataset::index::Index;
use xrun_core::dataset::sample::{Ignored, Rectangle};
use xrun_core::dataset::split::Split;

/// The index of a data set. It holds names and numbers, never pictures.
#[derive(Clone, Debug, PartialEq)]
pub struct Library {
    /// Where its settings stand in an experiment: `dataset.NAME`.
    pub section: &'static str,
    /// Every path below is relative to this folder, and was checked to stay inside it.
    pub root: PathBuf,
    /// How its pictures are read; boxes and sizes are of what comes out.
    pub exif_orientation: ExifOrientation,
    /// Sorted by name.
    pub classes: Vec<Class>,
    /// In the order of the annotations; still pictures are among them.
    pub videos: Vec<Video>,
    /// SHA-256 over annotations and the names and bytes of the pictures, in hexadecimal.
    pub digest: String,
    /// What was left out (`on_broken = "skip"`).
    pub left_out: Broken,
    /// The picture that needs most memory while it is decoded; `None` without pictures.
    pub largest: Option<Largest>,
}

/// The summary of images with boxes that pipelines judge them by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// The classes that episodes can be drawn from.
    pub drawn: Drawn,
    /// The picture that takes most memory to decode.
    pub largest: Option<Largest>,
    /// The requirements of few-shot episodes that it does not meet, if any.
    pub lacking: Option<DataError>,
}

/// Facts about images with boxes that the settings alone tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Number of classes to train on; `None` where the data says it.
    pub train_classes: Option<usize>,
}

impl Index for Library {
    const SAMPLES: &'static str = "images with boxes";
    type Seen = Seen;
    type Options = Options;

    fn count(&self) -> u64 {
        self.videos.iter().map(|video| video.frames.len() as u64).sum()
    }

    fn digest(&self) -> &str {
        &self.digest
    }

    fn left_out(&self) -> Broken {
        self.left_out.clone()
    }

    fn seen(&self) -> Seen {
        Seen { drawn: drawn_classes(self), largest: self.largest.clone(), lacking: few_shot::lacking(self) }
    }
}

impl Library {
    /// Whether objects of the class are drawn from the video.
    pub fn serves(&self, video: &Video, class: usize) -> bool {
        video.part.is_none_or(|part| Some(part) == self.classes[class].split)
    }
}

/// A class of objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// As the annotations name it.
    pub name: String,
    /// What it is for. No class is for two things: few-shot means new classes. `None` where no list names it: its objects are
    /// ignored in training and are no truth in validation.
    pub split: Option<Split>,
    /// Pictures that show the class; empty where objects are cut out of frames instead.
    pub references: Vec<Reference>,
}

/// A picture of one object of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Relative to the root.
    pub path: PathBuf,
    /// The object; the whole picture when `None`.
    pub rectangle: Option<Rectangle>,
    /// The video it was cut from, so that an episode does not ask for an object in the picture that shows it.
    pub video: Option<usize>,
}

/// Frames in order. A still picture is a video of one frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Video {
    /// As the annotations name it.
    pub name: String,
    /// Whether the data set says that this is a sequence; spatio-temporal metrics need one.
    pub sequence: bool,
    /// Where there are two annotation files, what its own is for: only classes that are for the same are drawn from it.
    pub part: Option<Split>,
    /// In the order of time.
    pub frames: Vec<Frame>,
}

/// A picture and what is to be found in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Relative to the root.
    pub path: PathBuf,
    /// In pixels, with its orientation applied.
    pub width: usize,
    /// In pixels, with its orientation applied.
    pub height: usize,
    /// What is to be seen in it, in the order of the annotations.
    pub objects: Vec<Object>,
}

/// An object in a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Index into [`Library::classes`].
    pub class: usize,
    /// Its box, cut to the picture.
    pub rectangle: Rectangle,
    /// Square pixels, by which COCO's metrics call it small, medium or large: as annotated, or else those of the box.
    pub area: f32,
    /// `None`: to be found.
    pub ignored: Option<Ignored>,
}
