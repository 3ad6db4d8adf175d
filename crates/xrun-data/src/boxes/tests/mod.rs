//! Valid directories in COCO's and VOC's format are read exactly, and invalid ones refused or left out as configured.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{few_shot, format};
use crate::boxes::library::Library;
use crate::coco::Coco;
use crate::reading::invalid::OnInvalid;
use crate::voc::Voc;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;

#[derive(Clone, Copy)]
enum Format {
    Coco,
    Voc,
}

/// Settings of either format as their table in an experiment.
type Settings = Value;

/// Opens a directory as few-shot detection does.
fn open(format: Format, settings: &Settings) -> Result<Library, DataError> {
    fn opened<F: format::Format>(settings: &Settings) -> Result<Library, DataError> {
        format::open(&serde_json::from_value::<F>(settings.clone()).unwrap())
    }
    let library = match format {
        Format::Coco => opened::<Coco>(settings),
        Format::Voc => opened::<Voc>(settings),
    }?;
    few_shot::check(&library).map(|()| library)
}

mod coordinates;
mod layouts;
mod malformed_coco;
mod malformed_image;
mod malformed_voc;

const WIDTH: u32 = 32;
const HEIGHT: u32 = 24;
/// Two to train on and two held out, each in two images.
const CLASSES: [(&str, &str); 4] = [("cat", "base"), ("dog", "base"), ("fox", "novel"), ("owl", "novel")];

/// Valid data set, next to an image that must never be read.
struct Directory {
    _place: tempfile::TempDir,
    root: PathBuf,
    secret: PathBuf,
}

fn painted() -> image::RgbImage {
    image::RgbImage::from_fn(WIDTH, HEIGHT, |x, y| image::Rgb([(x * 7) as u8, (y * 9) as u8, (x * y) as u8]))
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    let mut file = std::fs::OpenOptions::new().create(true).truncate(true).write(true).open(path).unwrap();
    std::io::Write::write_all(&mut file, bytes.as_ref()).unwrap();
}

impl Directory {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().canonicalize().unwrap();
        let directory = Self { _place: place, root: base.join("root"), secret: base.join("secret.png") };
        std::fs::create_dir_all(directory.root.join("images")).unwrap();
        painted().save(&directory.secret).unwrap();
        directory
    }

    fn coco() -> (Self, Value) {
        let directory = Self::new();
        let (mut images, mut annotations) = (Vec::new(), Vec::new());
        for (class, (name, _)) in CLASSES.iter().enumerate() {
            for number in 0..2 {
                let file = format!("images/{name}{number}.{}", ["jpg", "png"][number]);
                painted().save(directory.root.join(&file)).unwrap();
                let id = images.len() + 1;
                images.push(json!({ "id": id, "file_name": file, "width": WIDTH, "height": HEIGHT }));
                let bbox = [4 + class, 5, 10, 12];
                annotations.push(json!({ "id": id, "image_id": id, "category_id": class, "bbox": bbox, "iscrowd": 0 }));
            }
        }
        let categories: Vec<Value> = CLASSES
            .iter()
            .enumerate()
            .map(|(id, (name, split))| json!({ "id": id, "name": name, "supercategory": split }))
            .collect();
        let text = json!({ "images": images, "annotations": annotations, "categories": categories });
        (directory, text)
    }

    fn voc() -> Self {
        let directory = Self::new();
        std::fs::create_dir(directory.root.join("annotations")).unwrap();
        for (name, _) in CLASSES {
            for number in 0..2 {
                painted().save(directory.root.join(format!("images/{name}{number}.jpg"))).unwrap();
                directory.xml(&format!("{name}{number}"), &xml(&format!("{name}{number}.jpg"), name, [5, 6, 15, 18]));
            }
        }
        directory
    }

    fn xml(&self, stem: &str, text: &str) {
        write(&self.root.join(format!("annotations/{stem}.xml")), text);
    }

    fn annotate(&self, value: &Value) {
        write(&self.root.join("annotations.json"), serde_json::to_vec(value).unwrap());
    }

    fn settings(&self, format: Format, on_invalid: OnInvalid) -> Settings {
        let held_out: &[&str] = match format {
            Format::Coco => &[],
            Format::Voc => &["fox", "owl"],
        };
        json!({ "path": self.root, "on_invalid": on_invalid, "validation_classes": held_out })
    }
}

fn xml(file: &str, class: &str, [left, top, right, bottom]: [i64; 4]) -> String {
    format!(
        "<annotation><filename>{file}</filename><size><width>{WIDTH}</width><height>{HEIGHT}</height></size>\
         <object><name>{class}</name><difficult>0</difficult><bndbox><xmin>{left}</xmin><ymin>{top}</ymin>\
         <xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox></object></annotation>"
    )
}

/// Message about a malformed directory, and what becomes of it with `on_invalid = "skip"`.
fn outcome(directory: &Directory, format: Format, change: &dyn Fn(&mut Settings)) -> String {
    let mut settings = directory.settings(format, OnInvalid::Fail);
    change(&mut settings);
    let message = open(format, &settings).map_or_else(|error| error.to_string(), |_| "accepted".into());
    assert!(message.len() < 5_000, "a message of {} bytes", message.len());
    settings["on_invalid"] = json!(OnInvalid::Skip);
    let skipped = match open(format, &settings) {
        Ok(library) => {
            assert_sound(&library);
            let whole = library.classes.len() == CLASSES.len() && library.videos.len() >= 8;
            format!("{}{}", library.skipped.by_reason(), if whole { "" } else { ", and others" })
        }
        Err(error) if error.to_string() == message => "refused".into(),
        Err(error) => format!("{error}"),
    };
    let shown = |text: String| {
        let place = directory.root.parent().unwrap();
        let text = text.replace(&place.display().to_string(), "");
        let text = text.replace(&format!("\"{}\"", place.parent().unwrap().display()), "\"above\"");
        text.chars().map(|c| if c.is_control() { '?' } else { c }).take(400).collect::<String>()
    };
    format!("{}\n    skip: {}", shown(message), shown(skipped))
}

/// Outcomes of all cases.
fn outcomes<'a>(cases: impl Iterator<Item = (&'a str, String)>) -> String {
    cases.map(|(case, outcome)| format!("{case}: {outcome}\n")).collect()
}

/// No box outside of its image, no path outside of the root.
fn assert_sound(library: &Library) {
    let inside = |path: &Path| {
        assert!(path.is_relative());
        assert!(library.root.join(path).canonicalize().unwrap().starts_with(&library.root), "{}", path.display());
    };
    for frame in library.videos.iter().flat_map(|video| &video.frames) {
        inside(&frame.path);
        for object in &frame.objects {
            let place = object.rectangle;
            assert!(object.class < library.classes.len());
            assert!(place.left >= 0.0 && place.top >= 0.0 && place.left < place.right && place.top < place.bottom);
            assert!(place.right <= frame.width as f32 && place.bottom <= frame.height as f32, "{place:?}");
        }
    }
    library.classes.iter().flat_map(|class| &class.references).for_each(|reference| inside(&reference.path));
}

fn opened(directory: &Directory, format: Format) -> Library {
    let library = open(format, &directory.settings(format, OnInvalid::Fail)).unwrap();
    assert_sound(&library);
    library
}

#[test]
fn coco_without_videos_is_read_as_still_images() {
    let (directory, mut text) = Directory::coco();
    text["annotations"][0]["bbox"] = json!([-0.5, 3, 33, 12.25]); // rounding: up to a pixel beyond the edge
    text["annotations"][1]["iscrowd"] = json!(1);
    text["images"].as_array_mut().unwrap().reverse();
    directory.annotate(&text);
    let library = opened(&directory, Format::Coco);
    let classes: Vec<_> = library.classes.iter().map(|c| (c.name.as_str(), c.split, c.references.len())).collect();
    let (train, held_out) = (Some(Split::Train), Some(Split::Validation));
    assert_eq!(classes, [("cat", train, 1), ("dog", train, 2), ("fox", held_out, 2), ("owl", held_out, 2)]);
    assert_eq!(library.videos.len(), 8);
    assert!(library.videos.iter().all(|video| !video.sequence && video.frames.len() == 1));
    assert!(library.skipped.counts.is_empty());
    let cat = &library.videos.iter().find(|video| video.name == "images/cat0.jpg").unwrap().frames[0];
    assert_eq!((cat.width, cat.height, cat.objects.len()), (32, 24, 1));
    let place = cat.objects[0].rectangle;
    assert_eq!([place.left, place.top, place.right, place.bottom], [0.0, 3.0, 32.0, 15.25]);
}

#[test]
fn frames_of_a_video_are_in_the_order_of_their_index_and_without_one_of_their_id() {
    let (directory, mut text) = Directory::coco();
    for (image, (video, index)) in [(1, Some(7)), (1, Some(-2)), (1, Some(3)), (2, None), (2, None)].iter().enumerate()
    {
        text["images"][image]["video_id"] = json!(video);
        text["images"][image]["frame_index"] = json!(index);
    }
    // Two of one name are two videos; a video that no image names is not there.
    text["videos"] = json!([{ "id": 1, "name": "walk" }, { "id": 2, "name": "walk" }, { "id": 3, "name": "empty" }]);
    directory.annotate(&text);
    let library = opened(&directory, Format::Coco);
    let sequences: Vec<Vec<String>> = library
        .videos
        .iter()
        .filter(|video| video.sequence && video.name == "walk")
        .map(|video| video.frames.iter().map(|frame| frame.path.display().to_string()).collect())
        .collect();
    assert_eq!(sequences[0], ["images/cat1.png", "images/dog0.jpg", "images/cat0.jpg"]);
    assert_eq!(sequences[1], ["images/dog1.png", "images/fox0.jpg"]);
    assert_eq!((sequences.len(), library.videos.len()), (2, 5));
}

#[test]
fn unusual_but_valid_input_is_read() {
    let (directory, mut text) = Directory::coco();
    // Names for a page's or a terminal's harm are names like any other; who shows them escapes them.
    text["categories"][0]["name"] = json!("<script>alert(1)</script>\u{1b}[2J");
    text["images"][0]["file_name"] = json!("./images/./cat0.jpg");
    text["images"][1]["license"] = json!({ "nested": [[[]]] });
    std::os::unix::fs::symlink("dog0.jpg", directory.root.join("images/link.jpg")).unwrap();
    text["images"][2]["file_name"] = json!("images/link.jpg");
    let mut camera = std::fs::read(directory.root.join("images/owl0.jpg")).unwrap();
    camera.extend([7; 5_000]); // as phones append a film
    write(&directory.root.join("images/owl0.jpg"), camera);
    let bytes = [b"\xef\xbb\xbf".as_slice(), &serde_json::to_vec(&text).unwrap()].concat();
    write(&directory.root.join("annotations.json"), bytes);
    let library = opened(&directory, Format::Coco);
    assert_eq!(library.classes[0].name, "<script>alert(1)</script>\u{1b}[2J");
    assert!(library.skipped.counts.is_empty());
    assert_eq!(library.videos[0].frames[0].path.as_os_str(), "images/cat0.jpg");
}

#[test]
fn one_bit_of_an_image_or_an_annotation_changes_the_digest() {
    let (directory, mut text) = Directory::coco();
    directory.annotate(&text);
    let before = opened(&directory, Format::Coco).digest;
    let path = directory.root.join("images/cat0.jpg");
    let mut bytes = std::fs::read(&path).unwrap();
    // Among the pixels, before the mark of the end.
    let at = bytes.len() - 4;
    bytes[at] ^= 1;
    xrun_core::files::write::replace(&path, &bytes).unwrap();
    assert_ne!(opened(&directory, Format::Coco).digest, before);
    bytes[at] ^= 1;
    xrun_core::files::write::replace(&path, &bytes).unwrap();
    assert_eq!(opened(&directory, Format::Coco).digest, before, "its content counts, not when it was written");
    text["annotations"][0]["bbox"][0] = json!(3);
    directory.annotate(&text);
    assert_ne!(opened(&directory, Format::Coco).digest, before);
}

#[test]
fn voc_is_read_and_an_image_without_objects_is_background() {
    let directory = Directory::voc();
    painted().save(directory.root.join("images/empty.jpg")).unwrap();
    directory.xml("empty", "<?xml version='1.0'?><annotation><filename>empty.jpg</filename></annotation>");
    let library = opened(&directory, Format::Voc);
    assert_eq!((library.videos.len(), library.classes.len()), (9, 4));
    let place = library.videos[0].frames[0].objects[0].rectangle;
    assert_eq!([place.left, place.top, place.right, place.bottom], [4.0, 5.0, 15.0, 18.0]);
    let empty = library.videos.iter().find(|video| video.name == "images/empty.jpg").unwrap();
    assert!(empty.frames[0].objects.is_empty());
}
