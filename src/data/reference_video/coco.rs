//! How is COCO's JSON read? Images, annotations, categories; `video_id` and `frame_index` where there are videos.
//!
//! Two lists are ours: `videos` (names), and `references` (`category_id`, `file_name`, `bbox`, `video_id`), pictures of
//! single objects. Format: cocodataset.org, "Data format", object detection.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::raw::{Judge, Raw, RawClass, RawObject, RawPicture, RawReference};
use crate::data::error::DataError;
use crate::data::json::object_with;
use crate::data::sample::Ignored;

#[derive(Deserialize)]
struct File {
    images: Vec<Image>,
    annotations: Vec<Annotation>,
    categories: Vec<Category>,
    #[serde(default)]
    videos: Vec<Video>,
    references: Option<Vec<Reference>>,
}

#[derive(Deserialize)]
struct Image {
    id: i64,
    file_name: String,
    width: Option<u64>,
    height: Option<u64>,
    video_id: Option<i64>,
    frame_index: Option<i64>,
    /// As some tools write it.
    frame_id: Option<i64>,
}

#[derive(Deserialize)]
struct Annotation {
    id: Option<i64>,
    image_id: i64,
    category_id: i64,
    bbox: [f64; 4],
    area: Option<f64>,
    #[serde(default)]
    iscrowd: i64,
}

#[derive(Deserialize)]
struct Category {
    id: i64,
    name: String,
    supercategory: Option<String>,
}

#[derive(Deserialize)]
struct Video {
    id: i64,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Reference {
    category_id: i64,
    file_name: String,
    bbox: Option<[f64; 4]>,
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

/// Reads the text of an annotation file; `path` is for messages.
pub fn read(text: &[u8], path: &Path, judge: &mut Judge) -> Result<Raw, DataError> {
    // Some editors put a byte order mark before the text.
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    object_with(text, "an object with `images`, `annotations` and `categories`")
        .map_err(|message| DataError::file(path, format!("is not COCO detection JSON: {message}")))?;
    let file: File = serde_json::from_slice(text)
        .map_err(|error| DataError::file(path, format!("is not COCO detection JSON: {error}")))?;
    let mut classes = Vec::with_capacity(file.categories.len());
    let mut class_of = BTreeMap::new();
    let mut named = BTreeMap::new();
    for category in file.categories {
        if let Some(other) = named.insert(category.name.clone(), category.id) {
            let message = format!("categories {other} and {} are both named \"{}\"", category.id, category.name);
            return Err(DataError::file(path, format!("{message}; a class has one id")));
        }
        if class_of.insert(category.id, classes.len()).is_some() {
            return Err(DataError::file(path, format!("category id {} occurs twice", category.id)));
        }
        classes.push(RawClass { name: category.name, supercategory: category.supercategory });
    }
    let mut videos = Videos::default();
    for video in file.videos {
        if videos.number.contains_key(&video.id) {
            return Err(DataError::file(path, format!("video id {} occurs twice", video.id)));
        }
        videos.add(video.id, video.name);
    }
    let mut pictures: Vec<RawPicture> = Vec::with_capacity(file.images.len());
    let mut picture_of = BTreeMap::new();
    for image in file.images {
        if picture_of.insert(image.id, pictures.len()).is_some() {
            return Err(DataError::file(path, format!("image id {} occurs twice", image.id)));
        }
        pictures.push(RawPicture {
            file: image.file_name,
            size: image.width.zip(image.height),
            video: image.video_id.map(|id| videos.number(id)),
            frame: image.frame_index.or(image.frame_id).unwrap_or(image.id),
            objects: Vec::new(),
            part: None,
        });
    }
    for (at, annotation) in file.annotations.into_iter().enumerate() {
        let called =
            annotation.id.map_or_else(|| format!("annotation {at} of the list"), |id| format!("annotation {id}"));
        let Some(picture) = picture_of.get(&annotation.image_id) else {
            let message = format!("{called} is of image {}, which does not exist", annotation.image_id);
            judge.broken("unknown_image", path, message);
            continue;
        };
        let Some(class) = class_of.get(&annotation.category_id) else {
            let message = format!("{called} is of category {}, which does not exist", annotation.category_id);
            judge.broken("unknown_category", path, message);
            continue;
        };
        pictures[*picture].objects.push(RawObject {
            class: *class,
            corners: corners(annotation.bbox),
            area: annotation.area,
            ignored: (annotation.iscrowd != 0).then_some(Ignored::Crowd),
            called,
        });
    }
    let Some(listed) = file.references else {
        return Ok(Raw { classes, videos: videos.names, pictures, references: None });
    };
    let mut references = Vec::with_capacity(listed.len());
    for reference in listed {
        let Some(class) = class_of.get(&reference.category_id) else {
            let message = format!(
                "reference {} is of category {}, which does not exist",
                reference.file_name, reference.category_id
            );
            judge.broken("unknown_category", path, message);
            continue;
        };
        references.push(RawReference {
            class: *class,
            file: reference.file_name,
            corners: reference.bbox.map(corners),
            video: reference.video_id.map(|id| videos.number(id)),
        });
    }
    Ok(Raw { classes, videos: videos.names, pictures, references: Some(references) })
}
