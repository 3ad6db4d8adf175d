//! Reader of COCO's JSON: images, annotations, categories; `video_id` and `frame_index` where there are videos.
//!
//! Two lists are extensions of xrun: `videos` (names), and `references` (`category_id`, `file_name`, `bbox`, `video_id`), images of
//! single objects. Format: cocodataset.org, "Data format", object detection.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek};
use std::path::Path;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use sha2::{Digest, Sha256};

use crate::boxes::raw::{ObjectName, Raw, RawClass, RawImage, RawObject, RawReference, Unit};
use crate::json::{self, integer, optional_integer};
use crate::reading::invalid::InvalidCollector;
use crate::reading::json_stream::{FILE, JsonStream, Place};
use xrun_core::dataset::digest::hexadecimal;
use xrun_core::dataset::error::{DataError, FATAL, REPEATED_ID};
use xrun_core::dataset::sample::IgnoreReason;

const FORM: &str = "COCO detection JSON";
/// Keys of the lists of a file; the last two may lack.
const LISTS: [&str; 5] = ["categories", "images", "annotations", "videos", "references"];

/// Number of boxes with the area between corners from which on a file may be one of corners.
const CORNERS_MIN: u64 = 3;
/// Number of such boxes for each whose area is width times height.
const CORNERS_PER_SIZED: u64 = 10;

/// A list of a file, of which each item is read separately, so that a malformed one hides no mistake of another.
#[derive(Clone, Copy)]
struct List {
    place: Place,
    count: usize,
}

/// Looks through the whole text for its lists.
fn lists(stream: &mut JsonStream<'_, impl Read>) -> Result<[Option<List>; 5], DataError> {
    const EXPECTED: &str = "an object with `images`, `annotations` and `categories`";
    if stream.peek()? == Some(b'[') {
        return Err(stream.error(format!("begins with `[`, a list; expected {EXPECTED}")));
    }
    stream.enter(b'{', FILE, EXPECTED)?;
    let mut found = [None; 5];
    while let Some(key) = stream.key()? {
        let kind = stream.peek()?;
        let place = stream.place();
        match LISTS.iter().position(|name| *name == key) {
            Some(list) if kind == Some(b'[') => {
                if found[list].replace(List { place, count: stream.skip()? }).is_some() {
                    return Err(stream.error(format!("duplicate field `{key}`")));
                }
            }
            Some(list) if !(list == 4 && kind == Some(b'n')) => stream.enter(b'[', &format!("`{key}`"), "a list")?,
            _ => drop(stream.skip()?),
        }
    }
    stream.end()?;
    match [1, 2, 0].into_iter().find(|list| found[*list].is_none()) {
        Some(list) => Err(stream.error(format!("missing field `{}`", LISTS[list]))),
        None => Ok(found),
    }
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Image {
    #[serde(deserialize_with = "integer")]
    id: i64,
    file_name: String,
    #[serde(default, deserialize_with = "side")]
    width: Option<u64>,
    #[serde(default, deserialize_with = "side")]
    height: Option<u64>,
    #[serde(default, deserialize_with = "optional_integer")]
    video_id: Option<i64>,
    #[serde(default, deserialize_with = "optional_integer")]
    frame_index: Option<i64>,
    /// Name of `frame_index` in files of some tools.
    #[serde(default, deserialize_with = "optional_integer")]
    frame_id: Option<i64>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Annotation {
    #[serde(default, deserialize_with = "optional_integer")]
    id: Option<i64>,
    #[serde(deserialize_with = "integer")]
    image_id: i64,
    #[serde(deserialize_with = "integer")]
    category_id: i64,
    bbox: [f64; 4],
    area: Option<f64>,
    #[serde(default, deserialize_with = "optional_integer")]
    iscrowd: Option<i64>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Category {
    #[serde(deserialize_with = "integer")]
    id: i64,
    name: String,
    supercategory: Option<String>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Video {
    #[serde(deserialize_with = "integer")]
    id: i64,
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Reference {
    #[serde(deserialize_with = "integer")]
    category_id: i64,
    file_name: String,
    bbox: Option<[f64; 4]>,
    #[serde(default, deserialize_with = "optional_integer")]
    video_id: Option<i64>,
}

/// Names by number; `videos` need not list those that images name.
#[derive(Default)]
struct Videos {
    names: Vec<String>,
    number: BTreeMap<i64, usize>,
}

impl Videos {
    fn add(&mut self, id: i64, name: Option<String>) -> usize {
        self.number.insert(id, self.names.len());
        self.names.push(name.unwrap_or_else(|| format!("video {id}")));
        self.names.len() - 1
    }

    fn number(&mut self, id: i64) -> usize {
        self.number.get(&id).copied().unwrap_or_else(|| self.add(id, None))
    }
}

fn corners([left, top, width, height]: [f64; 4]) -> [f64; 4] {
    [left, top, left + width, top + height]
}

/// Side of an image in pixels.
fn side<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let pixels = optional_integer(deserializer)?;
    let wrong = |pixels| D::Error::custom(format_args!("{pixels} pixels, expected a whole number from 0"));
    pixels.map(|pixels| u64::try_from(pixels).map_err(|_| wrong(pixels))).transpose()
}

/// Reads an annotation file, whose boxes are in `unit`; `path` is for messages, and `checked` is called with the SHA-256 of its
/// bytes before any item is read. All bytes go into `digest`, too.
pub fn read(
    mut file: impl Read + Seek,
    path: &Path,
    unit: Unit,
    invalid: &mut InvalidCollector,
    digest: &mut Sha256,
    checked: impl FnOnce(&str) -> Result<(), DataError>,
) -> Result<Raw, DataError> {
    let mut own = Sha256::new();
    let mut seen = |bytes: &[u8]| {
        own.update(bytes);
        digest.update(bytes);
    };
    let found = lists(&mut JsonStream::new(&mut file, path, FORM, &mut seen)?);
    checked(&hexadecimal(&own.finalize()))?;
    let found = found?;
    let counts = found.map(|list| list.map_or(0, |list| list.count));
    let [categories, listed_images, annotations, listed_videos, listed_references] = found;
    let mut seen = |_: &[u8]| {};
    let stream = JsonStream::new(&mut file, path, FORM, &mut seen)?;
    let mut reading = Reading { stream, path, invalid };
    let mut classes = Vec::with_capacity(counts[0]);
    let (mut class_of, mut named) = (BTreeMap::new(), BTreeMap::new());
    reading.items(categories, "category", |_, read| {
        let Category { id, name, supercategory } = read.map_err(Fault::form)?;
        let other = named.insert(name.clone(), id);
        let repeated = class_of.insert(id, classes.len() as u32).is_some();
        let fault = match other {
            _ if repeated => Err(Fault::Fatal(REPEATED_ID, format!("category id {id} occurs twice"))),
            Some(other) => {
                let message = format!("categories {other} and {id} are both named \"{name}\"; a class has one id");
                Err(Fault::Fatal(FATAL, message))
            }
            None => Ok(()),
        };
        classes.push(RawClass { name, supercategory });
        fault
    })?;
    let mut videos = Videos::default();
    reading.items(listed_videos, "video", |_, read| {
        let Video { id, name } = read.map_err(Fault::form)?;
        if videos.number.contains_key(&id) {
            return Err(Fault::Fatal(REPEATED_ID, format!("video id {id} occurs twice")));
        }
        videos.add(id, name);
        Ok(())
    })?;
    let mut images: Vec<RawImage> = Vec::with_capacity(counts[1]);
    let mut image_of = BTreeMap::new();
    reading.items(listed_images, "image", |_, read| {
        let image: Image = read.map_err(Fault::form)?;
        let repeated = image_of.insert(image.id, images.len()).is_some();
        images.push(RawImage {
            size: image.width.zip(image.height),
            video: image.video_id.map(|id| videos.number(id)),
            frame: image.frame_index.or(image.frame_id).unwrap_or(image.id),
            ..RawImage::still(image.file_name, Vec::new(), unit)
        });
        if repeated { Err(Fault::Fatal(REPEATED_ID, format!("image id {} occurs twice", image.id))) } else { Ok(()) }
    })?;
    let (mut ids, mut corner_boxes, mut sized_boxes) = (BTreeSet::new(), 0, 0);
    reading.items(annotations, "annotation", |Item { at, line }, read| {
        let Annotation { id, image_id, category_id, bbox, area, iscrowd } =
            read.map_err(|error| Fault::LeftOut("malformed_annotation", error))?;
        let name = id.map_or(ObjectName::Annotation(at as u32), ObjectName::Id);
        let repeated = id.is_some_and(|id| !ids.insert(id));
        let repeated = repeated.then(|| format!("the id of {name} occurs twice, the second time in line {line}"));
        let repeated = repeated.map_or(Ok(()), |message| Err(Fault::Fatal(REPEATED_ID, message)));
        let Some(image) = image_of.get(&image_id) else {
            let message = format!("{name} is of image {image_id}, which does not exist");
            return repeated.and(Err(Fault::LeftOut("unknown_image", message)));
        };
        let Some(class) = class_of.get(&category_id) else {
            let message = format!("{name} is of category {category_id}, which does not exist");
            return repeated.and(Err(Fault::LeftOut("unknown_category", message)));
        };
        if let Some(area) = area.filter(|_| unit == Unit::Pixels) {
            let [left, top, width, height] = bbox;
            let is_area = |of: f64| (area - of).abs() <= 0.01 * area;
            corner_boxes += u64::from(is_area((width - left) * (height - top)) && !is_area(width * height));
            sized_boxes += u64::from(is_area(width * height));
        }
        let objects = &mut images[*image].objects;
        // By little: most images have few.
        if objects.len() == objects.capacity() {
            objects.reserve_exact(objects.len() / 4 + 1);
        }
        objects.push(RawObject {
            class: *class,
            corners: corners(bbox),
            // An area in fractions is not one in pixels.
            area: area.filter(|_| unit == Unit::Pixels).map(|area| area as f32),
            ignored: iscrowd.is_some_and(|crowd| crowd != 0).then_some(IgnoreReason::Crowd),
            name,
        });
        repeated
    })?;
    // Areas of outlines are smaller than boxes, and seldom by chance those between corners.
    if corner_boxes >= CORNERS_MIN && corner_boxes > CORNERS_PER_SIZED * sized_boxes {
        let message = format!(
            "the boxes are corners: the `area` of {corner_boxes} annotations is that between (x1, y1) and (x2, y2); `bbox` is x, y, \
             width and height in COCO"
        );
        return Err(DataError::file(path, message));
    }
    let mut references = Vec::with_capacity(counts[4]);
    reading.items(listed_references, "reference", |_, read| {
        let Reference { category_id, file_name: file, bbox, video_id } =
            read.map_err(|error| Fault::LeftOut("malformed_reference", error))?;
        let Some(class) = class_of.get(&category_id) else {
            let message = format!("reference {file} is of category {category_id}, which does not exist");
            return Err(Fault::LeftOut("unknown_category", message));
        };
        let video = video_id.map(|id| videos.number(id));
        references.push(RawReference { class: *class, file, corners: bbox.map(corners), unit, video });
        Ok(())
    })?;
    let references = listed_references.map(|_| references);
    Ok(Raw { classes, videos: videos.names, images, references, ..Raw::default() })
}

/// Fault of an item of a list.
enum Fault {
    /// It is refused whatever the policy, for a reason.
    Fatal(&'static str, String),
    /// It may be left out, for a reason.
    LeftOut(&'static str, String),
}

impl Fault {
    /// Fault of an item that has not the form of one.
    fn form(message: String) -> Self {
        Self::Fatal(FATAL, format!("is not {FORM}: {message}"))
    }
}

/// An item of a list: its index, and its line in the file.
struct Item {
    at: usize,
    line: u64,
}

struct Reading<'a, R> {
    stream: JsonStream<'a, R>,
    path: &'a Path,
    invalid: &'a mut InvalidCollector,
}

impl<R: Read + Seek> Reading<'_, R> {
    /// Reads the items of a list, one after the other; `noun` is one of them, in messages.
    fn items<T: DeserializeOwned>(
        &mut self,
        list: Option<List>,
        noun: &str,
        mut each: impl FnMut(Item, Result<T, String>) -> Result<(), Fault>,
    ) -> Result<(), DataError> {
        let Some(List { place, count }) = list else { return Ok(()) };
        let path = self.path;
        self.stream.enter_at(place)?;
        for at in 0..count {
            self.stream.more()?;
            self.stream.peek()?;
            let line = self.stream.place().line;
            let read = json::read(self.stream.value()?);
            let read = read.map_err(|error| format!("{noun} {at} of the list (line {line}): {}", error.message));
            match each(Item { at, line }, read) {
                Ok(()) => {}
                Err(Fault::LeftOut(reason, message)) => self.invalid.add(reason, path, message),
                Err(Fault::Fatal(reason, message)) => {
                    self.invalid.add_fatal(reason, || DataError::file(path, message));
                }
            }
        }
        Ok(())
    }
}
