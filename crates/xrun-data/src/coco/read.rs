//! Reader of COCO's JSON: images, annotations, categories; `video_id` and `frame_index` where there are videos.
//!
//! Two lists are extensions of xrun: `videos` (names), and `references` (`category_id`, `file_name`, `bbox`, `video_id`), images of
//! single objects. Format: cocodataset.org, "Data format", object detection.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::boxes::raw::{Raw, RawClass, RawImage, RawObject, RawReference, Unit};
use crate::json::{integer, is_integer, object_with, optional_integer, why};
use crate::reading::invalid::InvalidCollector;
use xrun_core::dataset::error::{DataError, FATAL, REPEATED_ID};
use xrun_core::dataset::sample::IgnoreReason;

/// The file; each item is read separately, so that a malformed one hides no mistake of another.
#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    images: Vec<&'a RawValue>,
    #[serde(borrow)]
    annotations: Vec<&'a RawValue>,
    #[serde(borrow)]
    categories: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    videos: Vec<&'a RawValue>,
    #[serde(borrow)]
    references: Option<Vec<&'a RawValue>>,
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

/// Reads the text of an annotation file, whose boxes are in `unit`; `path` is for messages.
pub fn read(text: &[u8], path: &Path, unit: Unit, invalid: &mut InvalidCollector) -> Result<Raw, DataError> {
    // Some editors put a byte order mark before the text.
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    object_with(text, "an object with `images`, `annotations` and `categories`")
        .map_err(|message| DataError::file(path, format!("is not COCO detection JSON: {message}")))?;
    let file: File<'_> = serde_json::from_slice(text)
        .map_err(|error| DataError::file(path, format!("is not COCO detection JSON: {}", why(text, &error))))?;
    // What refers to an item that was not read, or to one of two, is no mistake of its own.
    let (mut whole_categories, mut whole_images) = (true, true);
    let mut classes = Vec::with_capacity(file.categories.len());
    let mut class_of = BTreeMap::new();
    let mut named = BTreeMap::new();
    for (at, raw) in file.categories.into_iter().enumerate() {
        let category: Category = match serde_json::from_str(raw.get()) {
            Ok(category) => category,
            Err(error) => {
                whole_categories = false;
                invalid.add_fatal(FATAL, || malformed(path, text, raw, "category", at, &error));
                continue;
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
    }
    let mut videos = Videos::default();
    for (at, raw) in file.videos.into_iter().enumerate() {
        let video: Video = match serde_json::from_str(raw.get()) {
            Ok(video) => video,
            Err(error) => {
                invalid.add_fatal(FATAL, || malformed(path, text, raw, "video", at, &error));
                continue;
            }
        };
        if videos.number.contains_key(&video.id) {
            invalid.add_fatal(REPEATED_ID, || DataError::file(path, format!("video id {} occurs twice", video.id)));
            continue;
        }
        videos.add(video.id, video.name);
    }
    let mut images: Vec<RawImage> = Vec::with_capacity(file.images.len());
    let mut image_of = BTreeMap::new();
    for (at, raw) in file.images.into_iter().enumerate() {
        let image: Image = match serde_json::from_str(raw.get()) {
            Ok(image) => image,
            Err(error) => {
                whole_images = false;
                invalid.add_fatal(FATAL, || malformed(path, text, raw, "image", at, &error));
                continue;
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
    }
    let mut ids = BTreeSet::new();
    for (at, raw) in file.annotations.into_iter().enumerate() {
        let annotation: Annotation = match serde_json::from_str(raw.get()) {
            Ok(annotation) => annotation,
            Err(error) => {
                invalid.add_with("malformed_annotation", path, || malformed_annotation(text, raw, at, &error));
                continue;
            }
        };
        let called =
            annotation.id.map_or_else(|| format!("annotation {at} of the list"), |id| format!("annotation {id}"));
        if annotation.id.is_some_and(|id| !ids.insert(id)) {
            invalid.add_fatal(REPEATED_ID, || {
                let line = line_of(text, raw);
                DataError::file(path, format!("the id of {called} occurs twice, the second time in line {line}"))
            });
        }
        let Some(image) = image_of.get(&annotation.image_id) else {
            if whole_images {
                invalid.add_with("unknown_image", path, || {
                    format!("{called} is of image {}, which does not exist", annotation.image_id)
                });
            }
            continue;
        };
        let Some(class) = class_of.get(&annotation.category_id) else {
            if whole_categories {
                invalid.add_with("unknown_category", path, || {
                    format!("{called} is of category {}, which does not exist", annotation.category_id)
                });
            }
            continue;
        };
        images[*image].objects.push(RawObject {
            class: *class,
            corners: corners(annotation.bbox),
            // An area in fractions is not one in pixels.
            area: annotation.area.filter(|_| unit == Unit::Pixel),
            ignored: annotation.iscrowd.is_some_and(|crowd| crowd != 0).then_some(IgnoreReason::Crowd),
            called,
        });
    }
    let Some(listed) = file.references else {
        return Ok(Raw { classes, videos: videos.names, images, references: None, has_width_and_height: true });
    };
    let mut references = Vec::with_capacity(listed.len());
    for (at, raw) in listed.into_iter().enumerate() {
        let reference: Reference = match serde_json::from_str(raw.get()) {
            Ok(reference) => reference,
            Err(error) => {
                invalid.add_with("malformed_reference", path, || {
                    let (line, message) = (line_of(text, raw), parser_message(&error));
                    format!("reference {at} of the list (line {line}) cannot be read: {message}")
                });
                continue;
            }
        };
        let Some(class) = class_of.get(&reference.category_id) else {
            if whole_categories {
                invalid.add_with("unknown_category", path, || {
                    let (file, category) = (&reference.file_name, reference.category_id);
                    format!("reference {file} is of category {category}, which does not exist")
                });
            }
            continue;
        };
        references.push(RawReference {
            class: *class,
            file: reference.file_name,
            corners: reference.bbox.map(corners),
            unit,
            video: reference.video_id.map(|id| videos.number(id)),
        });
    }
    Ok(Raw { classes, videos: videos.names, images, references: Some(references), has_width_and_height: true })
}

/// The line of the file in which an item begins, from 1.
fn line_of(text: &[u8], item: &RawValue) -> usize {
    // It is borrowed from the text.
    let begin = (item.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    text[..begin.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Message of the parser without its position, which is one within the item.
fn parser_message(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(&place).unwrap_or(&message).to_owned()
}

fn malformed(path: &Path, text: &[u8], item: &RawValue, what: &str, at: usize, error: &serde_json::Error) -> DataError {
    let (line, message) = (line_of(text, item), parser_message(error));
    DataError::file(path, format!("is not COCO detection JSON: {what} {at} of the list (line {line}): {message}"))
}

/// Message with the name of an annotation and its invalid key.
fn malformed_annotation(text: &[u8], item: &RawValue, at: usize, error: &serde_json::Error) -> String {
    let line = line_of(text, item);
    let Ok(Value::Object(keys)) = serde_json::from_str::<Value>(item.get()) else {
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
