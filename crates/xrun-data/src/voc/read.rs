//! Reader of Pascal VOC's XML files, one an image, with a box for each object.
//!
//! Format: the VOC2012 development kit. `folder` and `path` are of the author's computer and are not used. Roboflow and LabelImg
//! put the files next to the images.

use roxmltree::{Document, Node};
use sha2::Digest;
use std::collections::BTreeMap;

use super::Corners;
use crate::boxes::open::Source;
use crate::boxes::raw::{Called, Raw, RawClass, RawImage, RawObject, Unit};
use crate::reading::confined::{Root, annotation_file, files};
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::IgnoreReason;
use xrun_core::dataset::split::Split;

/// Hint on corners that VOC does not have.
const COUNTED_OTHERWISE: &str =
    "write `corners = \"edges\"` for files of LabelImg, \"zero-based\" for pixels that are counted from 0";

/// Maximum size of an XML file, which is of one image.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Reads all annotations below `root`, in the order of their names; the digest covers their bytes. `corners` says how boxes are
/// counted.
///
/// # Errors
/// A file that does not read, or is broken and not to be left out.
pub fn read(corners: Corners, source: Source<'_>) -> Result<Raw, DataError> {
    let Source { root, invalid, digest, .. } = source;
    let mut raw = Raw::default();
    let mut number = BTreeMap::new();
    let parts = parts(root)?;
    let named = |(directory, names, part): (String, Vec<String>, Part)| {
        names.into_iter().map(move |name| (root.join(&directory).join(name), part.clone()))
    };
    for (path, Part { images, split }) in parts.into_iter().flat_map(named) {
        let bytes = annotation_file(root, &path, FILE_BYTES_MAX)?;
        digest.update(&bytes);
        let (mut image, names) = match image(&bytes, &images, corners) {
            Ok(read) => read,
            Err(message) => {
                invalid.add("broken_annotation", &path, message);
                continue;
            }
        };
        // Only now: a file that is left out brings no class that nothing shows.
        for (object, name) in image.objects.iter_mut().zip(names) {
            if corners == Corners::OneBased && object.corners[..2].iter().any(|first| (-1.0..0.0).contains(first)) {
                let called = &object.called;
                let message = format!("{called} begins at pixel 0, and VOC counts from 1; {COUNTED_OTHERWISE}");
                invalid.add("box_outside", &path, message);
                object.ignored = Some(IgnoreReason::Difficult);
            }
            object.class = *number.entry(name).or_insert_with_key(|name| {
                raw.classes.push(RawClass { name: name.clone(), supercategory: None });
                raw.classes.len() - 1
            });
        }
        image.part = split;
        raw.images.push(image);
    }
    Ok(raw)
}

/// Directory of the images of some annotation files, and their split.
#[derive(Clone)]
struct Part {
    images: String,
    split: Option<Split>,
}

/// Directories of annotation files with their names: one of them all, one of each split, or that of the images.
///
/// # Errors
/// None has an annotation file, or a directory cannot be read.
fn parts(root: &Root) -> Result<Vec<(String, Vec<String>, Part)>, DataError> {
    let first = |names: &[&str]| names.iter().find(|name| root.join(name).is_dir()).map(|name| (*name).to_owned());
    if let Some(annotations) = first(&["annotations", "Annotations"]) {
        let images = first(&["images", "JPEGImages"]);
        let missing = || DataError::file(&root.path, "has no directory `images`, as Pascal VOC data has");
        let part = Part { images: images.ok_or_else(missing)?, split: None };
        let names = files(root, &annotations, &["xml"])?;
        return Ok(vec![(annotations, names, part)]);
    }
    let beside = |directory: &str, split| -> Result<_, DataError> {
        let names = files(root, directory, &["xml"])?;
        let part = Part { images: directory.to_owned(), split };
        Ok((!names.is_empty()).then(|| (directory.to_owned(), names, part)))
    };
    let mut held_out = None;
    for directory in ["valid", "val", "validation"] {
        held_out = match held_out {
            Some(found) => Some(found),
            None => beside(directory, Some(Split::Validation))?,
        };
    }
    let train = beside("train", held_out.as_ref().map(|_| Split::Train))?;
    match (train, held_out, beside("", None)?) {
        (Some(train), held_out, _) => Ok([Some(train), held_out].into_iter().flatten().collect()),
        (None, _, Some(all)) => Ok(vec![all]),
        (None, _, None) => {
            let message = "has no directory `annotations`, as Pascal VOC data has, and no XML file next to images, in it or in \
                           train/ and valid/";
            Err(DataError::file(&root.path, message))
        }
    }
}

/// One file, and the class name of each object; the objects' class is not set.
fn image(bytes: &[u8], images: &str, corners: Corners) -> Result<(RawImage, Vec<String>), String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    // Document types can make a small file expand into gigabytes; VOC has none.
    let document = Document::parse(text).map_err(|error| format!("is not XML: {error}"))?;
    let root = document.root_element();
    if !root.has_tag_name("annotation") {
        return Err(format!("begins with <{}> where VOC has <annotation>", root.tag_name().name()));
    }
    let name = text_of(root, "filename").ok_or("has no <filename>")?;
    let side = |size, tag| {
        let pixels = number(size, tag).filter(|pixels| *pixels >= 0.0 && pixels.fract() == 0.0);
        pixels.map(|pixels| pixels as u64).ok_or_else(|| format!("<size> has no number of pixels in <{tag}>"))
    };
    let size = match child(root, "size") {
        Some(size) => Some((side(size, "width")?, side(size, "height")?)),
        None => None,
    };
    let (mut objects, mut names) = (Vec::new(), Vec::new());
    for (at, object) in root.children().filter(|node| node.has_tag_name("object")).enumerate() {
        let called = format!("object {}", at + 1);
        let class = text_of(object, "name").ok_or_else(|| format!("{called} has no <name>"))?;
        let place = child(object, "bndbox").ok_or_else(|| format!("{called} has no <bndbox>"))?;
        let corner = |tag: &str| number(place, tag).ok_or_else(|| format!("{called} has no number in <{tag}>"));
        let written = [corner("xmin")?, corner("ymin")?, corner("xmax")?, corner("ymax")?];
        names.push(class.to_owned());
        let difficult = number(object, "difficult").is_some_and(|value| value != 0.0);
        let ignored = difficult.then_some(IgnoreReason::Difficult);
        // As the file has them: messages about the box give edges.
        let called = Called::Other(format!("{called} ({})", written.map(|value| value.to_string()).join(", ")).into());
        objects.push(RawObject { class: 0, corners: edges(written, corners), area: None, ignored, called });
    }
    Ok((
        RawImage {
            file: if images.is_empty() { name.to_owned() } else { format!("{images}/{name}") },
            size,
            video: None,
            frame: 0,
            objects,
            part: None,
            unit: Unit::Pixel,
        },
        names,
    ))
}

/// Edges of a box from its corners.
fn edges([left, top, right, bottom]: [f64; 4], corners: Corners) -> [f64; 4] {
    match corners {
        Corners::OneBased => [left - 1.0, top - 1.0, right, bottom],
        Corners::ZeroBased => [left, top, right + 1.0, bottom + 1.0],
        Corners::Edges => [left, top, right, bottom],
    }
}

fn child<'a>(node: Node<'a, 'a>, tag: &str) -> Option<Node<'a, 'a>> {
    node.children().find(|child| child.has_tag_name(tag))
}

fn text_of<'a>(node: Node<'a, 'a>, tag: &str) -> Option<&'a str> {
    child(node, tag)?.text().map(str::trim).filter(|text| !text.is_empty())
}

fn number(node: Node<'_, '_>, tag: &str) -> Option<f64> {
    text_of(node, tag)?.parse().ok().filter(|value: &f64| value.is_finite())
}
