//! Label files: a line an object, `class centre_x centre_y width height`, in fractions of the image's sides.
//!
//! Images are in `images/` and labels in `labels/`; or both are divided, as `images/train/` and `images/val/`, or as
//! `train/images/` and `valid/images/`. Then images of the second are validated on and never trained on. Or labels are beside their
//! images: in the directory itself, as LabelImg writes them, or in CVAT's `obj_train_data/`.

use std::collections::BTreeSet;
use std::path::Path;

use sha2::Digest;

use super::names;
use crate::boxes::open::ReaderInput;
use crate::boxes::raw::{HELD_OUT, IMAGE_ENDINGS, ObjectName, Raw, RawClass, RawImage, RawObject, TRAIN, Unit};
use crate::reading::confined::{Root, annotation_file, files, stem};
use crate::reading::invalid::{Fault, InvalidCollector};
use crate::reading::survey::survey;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;
use xrun_core::printable;

/// Maximum size of a label file, which is of one image.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Text files beside labels that are of no image.
const LISTS: [&str; 5] = ["classes.txt", "predefined_classes.txt", "train.txt", "val.txt", "test.txt"];
/// Directories of CVAT with images to validate on, and their labels.
const CVAT_HELD_OUT: [&str; 2] = ["obj_valid_data", "obj_Validation_data"];
/// Number of fields of a line.
const FIELDS: usize = 5;

/// Directory of images, directory of their labels, and their split.
type Part = (String, String, Option<Split>);

/// Reads all labels of a directory; the digest covers their bytes.
///
/// # Errors
/// The directory has not YOLO's layout, no names of classes, or files outside of it.
pub fn read(input: ReaderInput<'_>) -> Result<Raw, DataError> {
    let ReaderInput { root, invalid, digest, .. } = input;
    let classes = names::read(root, digest)?;
    let mut raw = Raw::default();
    for (images, labels, part) in parts(root)? {
        let mut texts: BTreeSet<String> = files(root, &labels, &["txt"])?.into_iter().collect();
        texts.retain(|text| !LISTS.contains(&text.as_str()));
        let mut without = texts.clone();
        for image in files(root, &images, &IMAGE_ENDINGS)? {
            let text = format!("{}.txt", stem(&image));
            without.remove(&text);
            let mut objects = Vec::new();
            // An image without a label file shows nothing that is to be found.
            if texts.contains(&text) {
                let path = root.join(&labels).join(&text);
                let bytes = annotation_file(root, &path, FILE_BYTES_MAX)?;
                digest.update(&bytes);
                match std::str::from_utf8(&bytes) {
                    Ok(text) => objects = objects_of(text, classes.len(), &path, invalid),
                    Err(_) => {
                        invalid.add("broken_annotation", &path, "is not UTF-8".into());
                        continue;
                    }
                }
            }
            let file = Path::new(&images).join(&image).display().to_string();
            let image = RawImage::still(file, objects, Unit::Fractions);
            raw.images.push(RawImage { part, ..image });
        }
        for text in without {
            let path = root.join(&labels).join(&text);
            let message = format!("labels an image that is not in {images}/");
            invalid.add("missing_image", &path, message);
        }
    }
    if raw.images.is_empty() {
        return Err(DataError::file(&root.path, "has no images in its directories `images`"));
    }
    raw.classes = classes.into_iter().map(|name| RawClass { name, supercategory: None }).collect();
    Ok(raw)
}

/// Directories of images and labels.
fn parts(root: &Root) -> Result<Vec<Part>, DataError> {
    let part = |images: &str, split| {
        let labels = images.replacen("images", "labels", 1);
        root.join(images).is_dir().then(|| (images.to_owned(), labels, split))
    };
    let divided = |names: &[&str], split| {
        let both = names.iter().flat_map(|name| [format!("images/{name}"), format!("{name}/images")]);
        both.into_iter().find_map(|name| part(&name, Some(split)))
    };
    match (divided(&TRAIN, Split::Train), divided(&HELD_OUT, Split::Validation)) {
        (Some(train), Some(held_out)) => return Ok(vec![train, held_out]),
        (Some((images, labels, _)), None) => return Ok(vec![(images, labels, None)]),
        (None, _) => {}
    }
    if let Some(all) = part("images", None) {
        return Ok(vec![all]);
    }
    // LabelImg writes labels beside the images, and CVAT so into directories of its own.
    for (train, held_out) in [("obj_train_data", &CVAT_HELD_OUT[..]), ("", &[])] {
        if files(root, train, &IMAGE_ENDINGS)?.is_empty() || files(root, train, &["txt"])?.is_empty() {
            continue;
        }
        let whole = |directory: &str, split| (directory.to_owned(), directory.to_owned(), split);
        let held_out = held_out.iter().find(|name| root.join(name).is_dir());
        return Ok(match held_out {
            Some(held_out) => vec![whole(train, Some(Split::Train)), whole(held_out, Some(Split::Validation))],
            None => vec![whole(train, None)],
        });
    }
    let message = "has neither `images` nor `images/train` nor `train/images`, as YOLO's data has, nor labels beside images; name the \
                   directory that holds one of them";
    Err(DataError::file(&root.path, format!("{message}{}", survey(&root.path))))
}

/// The objects that the lines of a label file annotate.
fn objects_of(text: &str, classes: usize, path: &Path, invalid: &mut InvalidCollector) -> Vec<RawObject> {
    let mut objects = Vec::new();
    let lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate();
    for (at, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        match object(line, classes) {
            Ok((class, corners)) => {
                let name = ObjectName::Line(at as u32 + 1);
                objects.push(RawObject { class, corners, area: None, ignored: None, name });
            }
            Err((reason, message)) => {
                invalid.add_with(reason, path, || format!("line {} {message}", at + 1));
            }
        }
    }
    objects
}

/// Class and corners in fractions; or the reason why a line is invalid, and a message.
fn object(line: &str, classes: usize) -> Result<(u32, [f64; 4]), Fault> {
    const MALFORMED: &str = "malformed_annotation";
    let fields: Vec<&str> = line.split_whitespace().take(FIELDS + 1).collect();
    let &[class, _, _, _, _] = fields.as_slice() else {
        let count = line.split_whitespace().count();
        let message = format!("has {count} fields, expected {FIELDS}: class centre_x centre_y width height");
        return Err((MALFORMED, message));
    };
    let shown = |text: &str| printable::line(text, 40);
    let number = |text: &&str| text.parse::<f64>().ok().filter(|value| value.is_finite());
    let numbers: Vec<f64> = fields[1..].iter().filter_map(number).collect();
    let &[x, y, width, height] = numbers.as_slice() else {
        return Err((MALFORMED, format!("has a field that is no number: \"{}\"", shown(line))));
    };
    if let Some(value) = numbers.iter().find(|value| !(0.0..=1.0).contains(*value)) {
        return Err((MALFORMED, format!("has {value}, expected a fraction of the image from 0 to 1")));
    }
    // Some tools write `0.0`.
    let whole = number(&class).filter(|value| value.fract() == 0.0 && *value >= 0.0);
    let Some(whole) = whole else {
        return Err((MALFORMED, format!("begins with \"{}\", expected the number of a class", shown(class))));
    };
    if whole >= classes as f64 {
        return Err(("unknown_category", format!("has the class id {}, out of range 0..{classes}", shown(class))));
    }
    let (half_width, half_height) = (width / 2.0, height / 2.0);
    Ok((whole as u32, [x - half_width, y - half_height, x + half_width, y + half_height]))
}
