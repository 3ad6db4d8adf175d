//! Reader of Pascal VOC's XML files, one an image, with a box for each object.
//!
//! Format: the VOC2012 development kit. `folder` and `path` are of the author's computer and are not used. Roboflow and LabelImg
//! put the files next to the images.

use roxmltree::{Document, Node};
use sha2::Digest;

use super::Corners;
use crate::boxes::open::ReaderInput;
use crate::boxes::raw::{ClassTable, HELD_OUT, ObjectName, Raw, RawImage, RawObject, Unit};
use crate::reading::confined::{Root, annotation_file, files};
use crate::reading::survey::survey;
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
pub fn read(corners: Corners, input: ReaderInput<'_>) -> Result<Raw, DataError> {
    let ReaderInput { root, invalid, digest, .. } = input;
    let (mut raw, mut classes) = (Raw::default(), ClassTable::default());
    let parts = parts(root)?;
    let named = parts.iter().flat_map(|part| part.names.iter().map(move |name| (part, name)));
    for (Part { annotations, images, split, .. }, name) in named {
        let path = root.join(annotations).join(name);
        let bytes = annotation_file(root, &path, FILE_BYTES_MAX)?;
        digest.update(&bytes);
        let (mut image, names) = match image(&bytes, images, corners) {
            Ok(read) => read,
            Err(message) => {
                invalid.add("broken_annotation", &path, message);
                continue;
            }
        };
        // Only now: a file that is left out brings no class that nothing shows.
        for (object, name) in image.objects.iter_mut().zip(names) {
            if corners == Corners::OneBased && object.corners[..2].iter().any(|first| (-1.0..0.0).contains(first)) {
                let message = format!("{} begins at pixel 0, and VOC counts from 1; {COUNTED_OTHERWISE}", object.name);
                invalid.add("box_outside", &path, message);
                object.ignored = Some(IgnoreReason::Difficult);
            }
            object.class = classes.number(&name, None);
        }
        image.part = *split;
        raw.images.push(image);
    }
    raw.classes = classes.list;
    Ok(raw)
}

/// Annotation files of a directory, the directory of their images, and their split.
struct Part {
    annotations: String,
    names: Vec<String>,
    images: String,
    split: Option<Split>,
}

/// Directories of annotation files: one of them all, one of each split, or that of the images.
///
/// # Errors
/// None has an annotation file, or a directory cannot be read.
fn parts(root: &Root) -> Result<Vec<Part>, DataError> {
    let first = |names: &[&str]| names.iter().find(|name| root.join(name).is_dir()).map(|name| (*name).to_owned());
    let part = |annotations: &str, images: String, split| {
        Ok(Part { annotations: annotations.to_owned(), names: files(root, annotations, &["xml"])?, images, split })
    };
    if let Some(annotations) = first(&["annotations", "Annotations"]) {
        let missing = || DataError::file(&root.path, "has no directory `images`, as Pascal VOC data has");
        return Ok(vec![part(&annotations, first(&["images", "JPEGImages"]).ok_or_else(missing)?, None)?]);
    }
    let beside = |directory: &str, split| -> Result<_, DataError> {
        let part: Result<Part, DataError> = part(directory, directory.to_owned(), split);
        part.map(|part| Some(part).filter(|part| !part.names.is_empty()))
    };
    let held_out = HELD_OUT.iter().find_map(|directory| beside(directory, Some(Split::Validation)).transpose());
    let held_out = held_out.transpose()?;
    let train = beside("train", held_out.as_ref().map(|_| Split::Train))?;
    match (train, beside("", None)?) {
        (Some(train), _) => Ok(std::iter::once(train).chain(held_out).collect()),
        (None, Some(all)) => Ok(vec![all]),
        (None, None) => {
            let message = "has no directory `annotations`, as Pascal VOC data has, and no XML file next to images, in it or in \
                           train/ and valid/";
            Err(DataError::file(&root.path, format!("{message}{}", survey(&root.path))))
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
    let size =
        child(root, "size").map(|size| Ok::<_, String>((side(size, "width")?, side(size, "height")?))).transpose()?;
    let (mut objects, mut names) = (Vec::new(), Vec::new());
    for (at, object) in root.children().filter(|node| node.has_tag_name("object")).enumerate() {
        let shown = format!("object {}", at + 1);
        let class = text_of(object, "name").ok_or_else(|| format!("{shown} has no <name>"))?;
        let place = child(object, "bndbox").ok_or_else(|| format!("{shown} has no <bndbox>"))?;
        let corner = |tag: &str| number(place, tag).ok_or_else(|| format!("{shown} has no number in <{tag}>"));
        let written = [corner("xmin")?, corner("ymin")?, corner("xmax")?, corner("ymax")?];
        names.push(class.to_owned());
        let difficult = number(object, "difficult").is_some_and(|value| value != 0.0);
        let ignored = difficult.then_some(IgnoreReason::Difficult);
        // As the file has them: messages about the box give edges.
        let name = format!("{shown} ({})", written.map(|value| value.to_string()).join(", "));
        let (corners, name) = (edges(written, corners), ObjectName::Other(name.into()));
        objects.push(RawObject { class: 0, corners, area: None, ignored, name });
    }
    let file = if images.is_empty() { name.to_owned() } else { format!("{images}/{name}") };
    Ok((RawImage { size, ..RawImage::still(file, objects, Unit::Pixels) }, names))
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
