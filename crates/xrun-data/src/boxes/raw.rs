//! Images with boxes as the annotations of any format have them, before anything is checked against the disk.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use xrun_core::dataset::sample::IgnoreReason;
use xrun_core::dataset::split::Split;

/// Names of a split to train on, the preferred first.
pub const TRAIN: [&str; 2] = ["train", "training"];
/// Names of a split to validate on, the preferred first: what is called a test serves where nothing else is held out.
pub const HELD_OUT: [&str; 5] = ["val", "valid", "validation", "test", "testing"];
/// Extensions of image files, also of those that are refused because they are of a format that is not read.
pub const IMAGE_ENDINGS: [&str; 10] = ["jpg", "jpeg", "png", "bmp", "gif", "tif", "tiff", "webp", "heic", "avif"];

/// A data set as its annotations have it.
#[derive(Debug, Default)]
pub struct Raw {
    /// Classes in the order of the annotations.
    pub classes: Vec<RawClass>,
    /// Names of the videos; two may have the same.
    pub videos: Vec<String>,
    /// Images in the order of the annotations.
    pub images: Vec<RawImage>,
    /// `None` when the format names none: then objects are cut out of the images.
    pub references: Option<Vec<RawReference>>,
    /// Lines that say what was taken for what.
    pub notes: Vec<String>,
    /// Whether the directory of an image is its class, so that no directory in it is read.
    pub is_in_class_directories: bool,
}

impl Raw {
    /// Bytes of the images, and of their objects, with the tables by which a reader finds them.
    pub fn bytes(&self) -> [u64; 2] {
        /// Entry of a map of identifiers, of which nodes are half full.
        const ENTRY: usize = 32;
        let image = |image: &RawImage| size_of::<RawImage>() + image.file.capacity() + ENTRY;
        let objects = |image: &RawImage| image.objects.capacity() * (size_of::<RawObject>() + ENTRY);
        [self.images.iter().map(image).sum::<usize>(), self.images.iter().map(objects).sum()].map(|bytes| bytes as u64)
    }
}

/// Classes by name, numbered in the order of their first occurrence.
#[derive(Debug, Default)]
pub struct ClassTable {
    /// The classes.
    pub list: Vec<RawClass>,
    numbers: BTreeMap<String, u32>,
}

impl ClassTable {
    /// Number of the class of this name; a new one is added.
    pub fn number(&mut self, name: &str, supercategory: Option<String>) -> u32 {
        self.numbers.get(name).copied().unwrap_or_else(|| {
            let number = self.list.len() as u32;
            self.numbers.insert(name.to_owned(), number);
            self.list.push(RawClass { name: name.to_owned(), supercategory });
            number
        })
    }
}

/// A class, as a category of COCO or a name of VOC.
#[derive(Debug)]
pub struct RawClass {
    /// Its name.
    pub name: String,
    /// COCO's `supercategory`; a class of `novel` is held out where the settings name no classes.
    pub supercategory: Option<String>,
}

/// An image with its objects.
#[derive(Debug)]
pub struct RawImage {
    /// Relative to the root, as written; not yet checked.
    pub file: String,
    /// Width and height as annotated, if they are.
    pub size: Option<(u64, u64)>,
    /// Index into [`Raw::videos`]; `None` for a still image.
    pub video: Option<usize>,
    /// Frames of a video are in the order of this number.
    pub frame: i64,
    /// The objects that are annotated in it.
    pub objects: Vec<RawObject>,
    /// Split of its file, where there are two files.
    pub part: Option<Split>,
    /// Unit of the corners of its objects.
    pub unit: Unit,
}

impl RawImage {
    /// A still image without a split or an annotated size.
    pub fn still(file: String, objects: Vec<RawObject>, unit: Unit) -> Self {
        Self { file, size: None, video: None, frame: 0, objects, part: None, unit }
    }

    /// A still image that is an object as a whole.
    pub fn of_class(file: String, class: u32) -> Self {
        let corners = [0.0, 0.0, 1.0, 1.0];
        let whole = RawObject { class, corners, area: None, ignored: None, name: ObjectName::Image };
        Self::still(file, vec![whole], Unit::Fractions)
    }
}

/// Directory with one of these names, the preferred first; in upper or lower case.
pub fn named<'a>(directories: &'a [String], names: &[&str]) -> Option<&'a str> {
    let named = |name: &&str| directories.iter().find(|directory| directory.eq_ignore_ascii_case(name));
    names.iter().find_map(named).map(String::as_str)
}

/// Unit of the numbers of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Pixels of the image, as in COCO.
    Pixels,
    /// Fractions of the image's width and height, from 0 to 1.
    Fractions,
}

impl Unit {
    /// The unit in pixels along left, top, right and bottom, in an image of these sides.
    pub fn pixels(self, (width, height): (u64, u64)) -> [f64; 4] {
        match self {
            Self::Pixels => [1.0; 4],
            Self::Fractions => [width, height, width, height].map(|side| side as f64),
        }
    }
}

/// An annotated object.
#[derive(Debug)]
pub struct RawObject {
    /// Index into [`Raw::classes`].
    pub class: u32,
    /// Left, top, right, bottom: distances from the left and the upper edge of the image, in [`RawImage::unit`].
    pub corners: [f64; 4],
    /// Square pixels, where the annotation says how many; then they need not be those of the box.
    pub area: Option<f32>,
    /// Reason why it is neither right nor wrong to find it; `None` where it is to be found.
    pub ignored: Option<IgnoreReason>,
    /// Its name in messages.
    pub name: ObjectName,
}

/// Name of an object in messages.
#[derive(Clone, Debug)]
pub enum ObjectName {
    /// Annotation of this `id`.
    Id(i64),
    /// Annotation without an `id`, by its index.
    Annotation(u32),
    /// Line of a file, from 1.
    Line(u32),
    /// All of the image.
    Image,
    /// Any other.
    Other(Box<String>),
}

impl fmt::Display for ObjectName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(formatter, "annotation {id}"),
            Self::Annotation(at) => write!(formatter, "annotation {at} of the list"),
            Self::Line(line) => write!(formatter, "line {line}"),
            Self::Image => formatter.write_str("the image"),
            Self::Other(name) => formatter.write_str(name),
        }
    }
}

/// A reference image of a class.
#[derive(Debug)]
pub struct RawReference {
    /// Index into [`Raw::classes`].
    pub class: u32,
    /// Relative to the root, as written; not yet checked.
    pub file: String,
    /// Left, top, right and bottom of the object in it, in [`RawReference::unit`]; `None` is all of the image.
    pub corners: Option<[f64; 4]>,
    /// Unit of the corners.
    pub unit: Unit,
    /// Index into [`Raw::videos`].
    pub video: Option<usize>,
}
