//! Annotation files of a directory in COCO's layout, and the directories of their images.
//!
//! COCO itself has `annotations/instances_train2017.json` and `annotations/instances_val2017.json`, whose images are in
//! `train2017/` and `val2017/` and are named without that directory. Subsets have names such as `instances_minitrain2017.json`, CVAT
//! has `instances_default.json` with `images/default/`, and Roboflow `train/_annotations.coco.json` next to the images.

use std::path::{Path, PathBuf};

use super::{Coco, read};
use crate::boxes::format::Format;
use crate::boxes::open::ReaderInput;
use crate::boxes::raw::{ClassTable, HELD_OUT, Raw, RawClass};
use crate::reading::confined::{Root, directories, leads_down, open_annotations};
use crate::reading::survey::survey;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;
use xrun_core::printable;

/// Largest annotation file in bytes.
const FILE_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// The annotation file that needs no setting; a generated set has it, too.
pub const ANNOTATIONS: &str = "annotations.json";
/// Annotation file of a Roboflow export, in the directory of its images.
const BESIDE_IMAGES: &str = "_annotations.coco.json";
/// Beginnings of the names of files with boxes, the preferred first.
const BOXES: [&str; 3] = ["instances", "person_keypoints", ""];
/// Maximum number of files that a message names.
const LISTED_MAX: usize = 8;
/// Number of images that are tried to find their directory.
const TRIED_MAX: usize = 16;

/// The annotation files of a data set.
#[derive(Debug, PartialEq)]
struct Files {
    /// The file to train on, or the only one.
    train: PathBuf,
    /// The file to validate on; `None` where classes alone divide the images.
    validation: Option<PathBuf>,
}

/// Reads the annotation files of a directory; the digest covers their bytes.
///
/// # Errors
/// No file, several among which none is clearly meant, or one that is not COCO's JSON.
pub fn read(settings: &Coco, input: ReaderInput<'_>) -> Result<Raw, DataError> {
    let ReaderInput { root, digest_cache, invalid, digest } = input;
    let files = find(root, settings)?;
    let mut read = |path: &Path| {
        let file = open_annotations(root, path, FILE_BYTES_MAX)?;
        let checked = |digest: &str| digest_cache.expect(ANNOTATIONS, digest, path);
        let mut raw = read::read(file, path, settings.box_units, invalid, digest, checked)?;
        locate_images(&mut raw, root, path);
        Ok(raw)
    };
    let raw = read(&files.train)?;
    match &files.validation {
        Some(path) => Ok(together(raw, read(path)?)),
        None => Ok(raw),
    }
}

/// The files that the settings name, or else those of the usual names.
fn find(root: &Root, settings: &Coco) -> Result<Files, DataError> {
    let there = json_files(&root.path);
    let named = |key: &str, name: &String| match root.join(name) {
        path if path.is_file() => Ok(path),
        path => {
            let message = format!("there is no file {}{}", path.display(), listed(&root.path, &there));
            Err(DataError::value(format!("{}.{key}", Coco::SECTION), message))
        }
    };
    let validation = settings.validation_annotations.as_ref();
    let validation = validation.map(|name| named("validation_annotations", name)).transpose()?;
    if let Some(name) = &settings.annotations {
        return Ok(Files { train: named("annotations", name)?, validation });
    }
    let usual = root.join(ANNOTATIONS);
    if usual.is_file() {
        return Ok(Files { train: usual, validation });
    }
    if there.is_empty()
        && let Some(found) = beside_images(root, validation.as_ref())
    {
        return Ok(found);
    }
    let others: Vec<&PathBuf> = there.iter().filter(|path| Some(*path) != validation.as_ref()).collect();
    // The only file of a split, among those of the first kind that has one.
    let of = |part: &str| {
        let named = |path: &PathBuf, kind: &str| {
            let stem = stem(path).to_lowercase();
            stem.starts_with(kind) && stem.contains(part)
        };
        let of_kind = |kind: &&str| others.iter().copied().filter(|path| named(path, kind)).collect::<Vec<_>>();
        match BOXES.iter().map(of_kind).find(|found| !found.is_empty()).as_deref() {
            Some([only]) => Some((*only).clone()),
            _ => None,
        }
    };
    match (others.as_slice(), of("train")) {
        ([only], _) => Ok(Files { train: (*only).clone(), validation }),
        ([], _) => {
            let message = format!(
                "has neither annotations.json nor a JSON file in annotations/ nor train/{BESIDE_IMAGES}; name the file with \
                 `annotations`{}",
                survey(&root.path)
            );
            Err(DataError::file(&root.path, message))
        }
        (_, Some(train)) => Ok(Files { train, validation: validation.or_else(|| of("val")) }),
        (_, None) => Err(DataError::file(
            &root.path,
            format!(
                "has several JSON files in annotations/; name one with `annotations`, and one to validate on with \
                 `validation_annotations`{}",
                listed(&root.path, &there)
            ),
        )),
    }
}

/// Annotation files next to their images: that of the root, or those of its splits.
fn beside_images(root: &Root, validation: Option<&PathBuf>) -> Option<Files> {
    let file = |directory: &str| Some(root.join(directory).join(BESIDE_IMAGES)).filter(|path| path.is_file());
    let train = file("train").or_else(|| file(""))?;
    let held_out = || HELD_OUT.into_iter().find_map(file);
    let validation = validation.cloned().or_else(|| held_out().filter(|_| train != root.join(BESIDE_IMAGES)));
    Some(Files { train, validation })
}

/// JSON files of `annotations/`, sorted by name.
fn json_files(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root.join("annotations")).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    found.sort();
    found
}

fn listed(root: &Path, files: &[PathBuf]) -> String {
    let name = |path: &PathBuf| printable::line(&path.strip_prefix(root).unwrap_or(path).to_string_lossy(), 80);
    let names: Vec<String> = files.iter().take(LISTED_MAX).map(name).collect();
    match files.len() {
        0 => String::new(),
        count if count > LISTED_MAX => format!(" (there are {} and {} more)", names.join(", "), count - LISTED_MAX),
        _ => format!(" (there are {})", names.join(", ")),
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

/// Puts the directory of the images before their names, where they are named without it.
fn locate_images(raw: &mut Raw, root: &Root, annotations: &Path) {
    // As tools write them on Windows.
    let names = || raw.images.iter().map(|image| image.file.replace('\\', "/")).take(TRIED_MAX);
    let holds = |directory: &String| names().any(|name| leads_down(&name) && root.join(directory).join(name).is_file());
    let beside = annotations.parent().and_then(|directory| directory.strip_prefix(&root.path).ok());
    let beside = beside.map_or_else(String::new, |directory| directory.to_string_lossy().into_owned());
    let stem = stem(annotations).to_lowercase();
    // Directories that the file is named after, the longest name first: `train2017` of `instances_minitrain2017`.
    let named_after = |above: &'static str| {
        let mut found = directories(root, above).unwrap_or_default();
        found.retain(|name| stem.ends_with(&name.to_lowercase()));
        found.sort_by_key(|name| std::cmp::Reverse(name.len()));
        found.into_iter().map(move |name| if above.is_empty() { name } else { format!("{above}/{name}") })
    };
    let candidates = std::iter::once(String::new())
        .chain(named_after(""))
        .chain(["images".to_owned()])
        .chain(named_after("images"))
        .chain([beside]);
    let directory = candidates.into_iter().filter(|directory| leads_down(directory)).find(holds).unwrap_or_default();
    if directory.is_empty() {
        return;
    }
    for image in &mut raw.images {
        image.file = format!("{directory}/{}", image.file);
    }
}

/// Joins both files to one data set: classes are the same where their names are, and each image has its split.
fn together(mut train: Raw, validation: Raw) -> Raw {
    train.images.iter_mut().for_each(|image| image.part = Some(Split::Train));
    let mut classes = ClassTable::default();
    let mut number = |class: RawClass| classes.number(&class.name, class.supercategory);
    // The classes of the first file have different names, and keep their numbers.
    std::mem::take(&mut train.classes).into_iter().for_each(|class| _ = number(class));
    let class_of: Vec<u32> = validation.classes.into_iter().map(number).collect();
    let videos = train.videos.len();
    train.videos.extend(validation.videos);
    train.images.extend(validation.images.into_iter().map(|mut image| {
        image.part = Some(Split::Validation);
        image.video = image.video.map(|video| video + videos);
        image.objects.iter_mut().for_each(|object| object.class = class_of[object.class as usize]);
        image
    }));
    let mut references = validation.references.unwrap_or_default();
    for reference in &mut references {
        reference.class = class_of[reference.class as usize];
        reference.video = reference.video.map(|video| video + videos);
    }
    if !references.is_empty() {
        train.references.get_or_insert_default().extend(references);
    }
    Raw { classes: classes.list, ..train }
}
