//! How are Pascal VOC's XML files read? One a picture, with a box for each object.
//!
//! Format: the VOC2012 development kit. `folder` and `path` are of the author's computer and are not used.

use std::path::{Path, PathBuf};

use roxmltree::{Document, Node};

use super::raw::{Judge, Raw, RawClass, RawObject, RawPicture, annotation_file};
use crate::data::error::DataError;

/// Reads all annotations below `root`; also returns their bytes for the digest, in the order of their names.
pub fn read(root: &Path, judge: &mut Judge) -> Result<(Raw, Vec<u8>), DataError> {
    let annotations = folder(root, &["annotations", "Annotations"])?;
    let pictures = folder(root, &["images", "JPEGImages"])?;
    let images = pictures.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut files: Vec<PathBuf> = std::fs::read_dir(&annotations)
        .map_err(|error| DataError::file(&annotations, format!("cannot be read: {error}")))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("xml")))
        .collect();
    files.sort();
    let mut raw = Raw::default();
    let mut all = Vec::new();
    for path in files {
        let bytes = annotation_file(&path)?;
        match picture(&bytes, &images, &mut raw.classes) {
            Ok(picture) => raw.pictures.push(picture),
            Err(message) => judge.broken("broken_annotation", &path, message)?,
        }
        all.extend(bytes);
    }
    Ok((raw, all))
}

fn folder(root: &Path, names: &[&str]) -> Result<PathBuf, DataError> {
    let found = names.iter().map(|name| root.join(name)).find(|path| path.is_dir());
    found.ok_or_else(|| DataError::file(root, format!("has no folder `{}`, as Pascal VOC data has", names[0])))
}

/// One file. New class names are added to `classes`.
fn picture(bytes: &[u8], images: &str, classes: &mut Vec<RawClass>) -> Result<RawPicture, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    // Document types can make a small file expand into gigabytes; VOC has none.
    let document = Document::parse(text).map_err(|error| format!("is not XML: {error}"))?;
    let root = document.root_element();
    if !root.has_tag_name("annotation") {
        return Err(format!("begins with <{}> where VOC has <annotation>", root.tag_name().name()));
    }
    let name = text_of(root, "filename").ok_or("has no <filename>")?;
    let size = child(root, "size").and_then(|size| Some((number(size, "width")?, number(size, "height")?)));
    let mut objects = Vec::new();
    for (at, object) in root.children().filter(|node| node.has_tag_name("object")).enumerate() {
        let called = format!("object {}", at + 1);
        let class = text_of(object, "name").ok_or_else(|| format!("{called} has no <name>"))?;
        let place = child(object, "bndbox").ok_or_else(|| format!("{called} has no <bndbox>"))?;
        let corner = |tag| number(place, tag).ok_or_else(|| format!("{called} has no number in <{tag}>"));
        let corners = [corner("xmin")?, corner("ymin")?, corner("xmax")?, corner("ymax")?];
        let known = classes.iter().position(|known| known.name == class);
        let class = known.unwrap_or_else(|| {
            classes.push(RawClass { name: class.to_owned(), supercategory: None });
            classes.len() - 1
        });
        let ignore = number(object, "difficult").is_some_and(|value| value != 0.0);
        objects.push(RawObject { class, corners, ignore, called });
    }
    let size = size.map(|(width, height)| (width as u64, height as u64));
    Ok(RawPicture { file: format!("{images}/{name}"), size, video: None, frame: 0, objects })
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
