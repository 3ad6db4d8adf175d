//! Reader of COCO's JSON: images, annotations, categories; `video_id` and `frame_index` where there are videos.
//!
//! Two lists are extensions of xrun: `videos` (names), and `references` (`category_id`, `file_name`, `bbox`, `video_id`), images of
//! single objects. Format: cocodataset.org, "Data format", object detection.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek};
use std::path::Path;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::boxes::raw::{Called, Raw, RawClass, RawImage, RawObject, RawReference, Unit};
use crate::json::{integer, is_integer, optional_integer};
use crate::reading::invalid::InvalidCollector;
use crate::reading::json_stream::{FILE, JsonStream, Place};
use xrun_core::dataset::digest::hexadecimal;
use xrun_core::dataset::error::{DataError, FATAL, REPEATED_ID};
use xrun_core::dataset::sample::IgnoreReason;

const FORM: &str = "COCO detection JSON";
/// Keys of the lists of a file; the last two may lack.
const LISTS: [&str; 5] = ["categories", "images", "annotations", "videos", "references"];

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
struct Category {
    #[serde(deserialize_with = "integer")]
    id: i64,
    name: String,
    supercategory: Option<String>,
}

#[derive(Deserialize)]
struct Video {
    #[serde(deserialize_with = "integer")]
    id: i64,
    name: Option<String>,
}

#[derive(Deserialize)]
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
    let mut stream = JsonStream::new(&mut file, path, FORM, &mut seen)?;
    // What refers to an item that was not read, or to one of two, is no mistake of its own.
    let (mut whole_categories, mut whole_images) = (true, true);
    let mut classes = Vec::with_capacity(counts[0]);
    let mut class_of = BTreeMap::new();
    let mut named = BTreeMap::new();
    items(&mut stream, categories, |Item { at, line, .. }, read| {
        let category: Category = match read {
            Ok(category) => category,
            Err(error) => {
                whole_categories = false;
                invalid.add_fatal(FATAL, || malformed(path, line, "category", at, &error));
                return;
            }
        };
        if let Some(other) = named.insert(category.name.clone(), category.id) {
            let message = format!("categories {other} and {} are both named \"{}\"", category.id, category.name);
            invalid.add_fatal(FATAL, || DataError::file(path, format!("{message}; a class has one id")));
        }
        if class_of.insert(category.id, classes.len()).is_some() {
            whole_categories = false;
            invalid
                .add_fatal(REPEATED_ID, || DataError::file(path, format!("category id {} occurs twice", category.id)));
        }
        classes.push(RawClass { name: category.name, supercategory: category.supercategory });
    })?;
    let mut videos = Videos::default();
    items(&mut stream, listed_videos, |Item { at, line, .. }, read| {
        let video: Video = match read {
            Ok(video) => video,
            Err(error) => {
                invalid.add_fatal(FATAL, || malformed(path, line, "video", at, &error));
                return;
            }
        };
        if videos.number.contains_key(&video.id) {
            invalid.add_fatal(REPEATED_ID, || DataError::file(path, format!("video id {} occurs twice", video.id)));
            return;
        }
        videos.add(video.id, video.name);
    })?;
    let mut images: Vec<RawImage> = Vec::with_capacity(counts[1]);
    let mut image_of = BTreeMap::new();
    items(&mut stream, listed_images, |Item { at, line, .. }, read| {
        let image: Image = match read {
            Ok(image) => image,
            Err(error) => {
                whole_images = false;
                invalid.add_fatal(FATAL, || malformed(path, line, "image", at, &error));
                return;
            }
        };
        if image_of.insert(image.id, images.len()).is_some() {
            // One of the two may have lost its own id, and with it all that refers to that.
            whole_images = false;
            invalid.add_fatal(REPEATED_ID, || DataError::file(path, format!("image id {} occurs twice", image.id)));
        }
        images.push(RawImage {
            file: image.file_name,
            size: image.width.zip(image.height),
            video: image.video_id.map(|id| videos.number(id)),
            frame: image.frame_index.or(image.frame_id).unwrap_or(image.id),
            objects: Vec::new(),
            part: None,
            unit,
        });
    })?;
    let mut ids = BTreeSet::new();
    items(&mut stream, annotations, |Item { at, line, raw }, read| {
        let annotation: Annotation = match read {
            Ok(annotation) => annotation,
            Err(error) => {
                invalid.add_with("malformed_annotation", path, || malformed_annotation(line, raw, at, &error));
                return;
            }
        };
        let called = annotation.id.map_or(Called::Annotation(at as u32), Called::Id);
        if annotation.id.is_some_and(|id| !ids.insert(id)) {
            invalid.add_fatal(REPEATED_ID, || {
                DataError::file(path, format!("the id of {called} occurs twice, the second time in line {line}"))
            });
        }
        let Some(image) = image_of.get(&annotation.image_id) else {
            if whole_images {
                invalid.add_with("unknown_image", path, || {
                    format!("{called} is of image {}, which does not exist", annotation.image_id)
                });
            }
            return;
        };
        let Some(class) = class_of.get(&annotation.category_id) else {
            if whole_categories {
                invalid.add_with("unknown_category", path, || {
                    format!("{called} is of category {}, which does not exist", annotation.category_id)
                });
            }
            return;
        };
        images[*image].objects.push(RawObject {
            class: *class,
            corners: corners(annotation.bbox),
            // An area in fractions is not one in pixels.
            area: annotation.area.filter(|_| unit == Unit::Pixel).map(|area| area as f32),
            ignored: annotation.iscrowd.is_some_and(|crowd| crowd != 0).then_some(IgnoreReason::Crowd),
            called,
        });
    })?;
    if listed_references.is_none() {
        return Ok(Raw { classes, videos: videos.names, images, references: None, has_width_and_height: true });
    }
    let mut references = Vec::with_capacity(counts[4]);
    items(&mut stream, listed_references, |Item { at, line, .. }, read| {
        let reference: Reference = match read {
            Ok(reference) => reference,
            Err(error) => {
                invalid.add_with("malformed_reference", path, || {
                    let message = parser_message(&error);
                    format!("reference {at} of the list (line {line}) cannot be read: {message}")
                });
                return;
            }
        };
        let Some(class) = class_of.get(&reference.category_id) else {
            if whole_categories {
                invalid.add_with("unknown_category", path, || {
                    let (file, category) = (&reference.file_name, reference.category_id);
                    format!("reference {file} is of category {category}, which does not exist")
                });
            }
            return;
        };
        references.push(RawReference {
            class: *class,
            file: reference.file_name,
            corners: reference.bbox.map(corners),
            unit,
            video: reference.video_id.map(|id| videos.number(id)),
        });
    })?;
    Ok(Raw { classes, videos: videos.names, images, references: Some(references), has_width_and_height: true })
}

/// An item of a list: its index, its line in the file, and its text.
struct Item<'a> {
    at: usize,
    line: u64,
    raw: &'a [u8],
}

/// Reads the items of a list, one after the other.
fn items<T: DeserializeOwned>(
    stream: &mut JsonStream<'_, impl Read + Seek>,
    list: Option<List>,
    mut each: impl FnMut(Item<'_>, serde_json::Result<T>),
) -> Result<(), DataError> {
    let Some(List { place, count }) = list else { return Ok(()) };
    stream.enter_at(place)?;
    for at in 0..count {
        stream.more()?;
        stream.peek()?;
        let line = stream.place().line;
        let raw = stream.value()?;
        each(Item { at, line, raw }, serde_json::from_slice(raw));
    }
    Ok(())
}

/// Message of the parser without its position, which is one within the item.
fn parser_message(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(&place).unwrap_or(&message).to_owned()
}

fn malformed(path: &Path, line: u64, what: &str, at: usize, error: &serde_json::Error) -> DataError {
    let message = parser_message(error);
    DataError::file(path, format!("is not COCO detection JSON: {what} {at} of the list (line {line}): {message}"))
}

/// Message with the name of an annotation and its invalid key.
fn malformed_annotation(line: u64, item: &[u8], at: usize, error: &serde_json::Error) -> String {
    let Ok(Value::Object(keys)) = serde_json::from_slice::<Value>(item) else {
        return format!("annotation {at} of the list (line {line}) cannot be read: {}", parser_message(error));
    };
    let called = match keys.get("id") {
        Some(id @ (Value::Number(_) | Value::String(_))) => format!("annotation {id} (line {line})"),
        _ => format!("annotation {at} of the list (line {line})"),
    };
    let is_box =
        |value: &Value| value.as_array().is_some_and(|list| list.len() == 4 && list.iter().all(Value::is_number));
    let wrong = |key: &str, needed: bool, right: &dyn Fn(&Value) -> bool, expected: &str| match keys.get(key) {
        None if needed => Some(format!("{called} has no `{key}`, which is {expected}")),
        Some(value) if !right(value) && (needed || !value.is_null()) => {
            Some(format!("{called} has `{key}` = {value}, expected {expected}"))
        }
        _ => None,
    };
    wrong("bbox", true, &is_box, "a list of four numbers: left, top, width, height")
        .or_else(|| wrong("category_id", true, &is_integer, "a whole number, the id of a category"))
        .or_else(|| wrong("image_id", true, &is_integer, "a whole number, the id of an image"))
        .or_else(|| wrong("id", false, &is_integer, "a whole number"))
        .or_else(|| wrong("area", false, &Value::is_number, "a number"))
        .or_else(|| wrong("iscrowd", false, &is_integer, "0 or 1"))
        .unwrap_or_else(|| format!("{called} cannot be read: {}", parser_message(error)))
}
