//! Boxes are where people see them, whatever the corners of VOC count from and however an image is rotated.

use proptest::prelude::*;

use super::*;
use crate::boxes::library::Object;
use crate::reading::decoding::decode;
use crate::reading::orientation::ExifOrientation;
use crate::voc::Corners;
use xrun_core::dataset::sample::IgnoreReason;

/// The objects of the further image `extra.png`, which holds one cat with these corners.
fn objects(corners: [i64; 4], change: &dyn Fn(&mut Settings)) -> Result<Vec<Object>, String> {
    let directory = Directory::voc();
    painted().save(directory.root.join("images/extra.png")).unwrap();
    directory.xml("extra", &xml("extra.png", "cat", corners));
    let mut settings = directory.settings(Format::Voc, OnInvalid::Fail);
    change(&mut settings);
    let library = open(Format::Voc, &settings).map_err(|error| error.to_string())?;
    assert_sound(&library);
    let video = library.videos.into_iter().find(|video| video.name == "images/extra.png").unwrap();
    Ok(video.frames.into_iter().next().unwrap().objects)
}

fn edges(objects: &[Object]) -> [f32; 4] {
    let place = objects[0].rectangle;
    [place.left, place.top, place.right, place.bottom]
}

/// Detectron2's `pascal_voc.py` reads VOC's own in the same way: 1, 1 to width, height is the whole image.
#[test]
fn a_box_of_the_whole_image_is_the_same_in_all_corner_conventions() {
    let (width, height) = (i64::from(WIDTH), i64::from(HEIGHT));
    let whole = [0.0, 0.0, WIDTH as f32, HEIGHT as f32];
    for (corners, written) in [
        (Corners::OneBased, [1, 1, width, height]),
        (Corners::ZeroBased, [0, 0, width - 1, height - 1]),
        (Corners::Edges, [0, 0, width, height]),
    ] {
        let found = objects(written, &|settings| settings["corners"] = json!(corners)).unwrap();
        assert_eq!(edges(&found), whole, "{corners:?}");
        assert_eq!((found[0].area, found[0].ignored), ((WIDTH * HEIGHT) as f32, None));
    }
}

/// The Blood Cell set has one, 504, 337 to 504, 337.
#[test]
fn a_box_from_a_pixel_to_itself_is_one_pixel_and_between_edges_it_is_empty() {
    assert_eq!(edges(&objects([7, 9, 7, 9], &|_| {}).unwrap()), [6.0, 8.0, 7.0, 9.0]);
    let message = objects([7, 9, 7, 9], &|settings| settings["corners"] = json!("edges")).unwrap_err();
    assert!(message.contains("object 1 (7, 9, 7, 9)") && message.contains("empty"), "{message}");
}

#[test]
fn a_voc_coordinate_of_0_is_refused_with_the_key_to_set() {
    let message = objects([0, 9, 7, 12], &|_| {}).unwrap_err();
    for words in ["extra.xml", "object 1 (0, 9, 7, 12) begins at pixel 0", "corners = \"edges\"", "LabelImg"] {
        assert!(message.contains(words), "{words}: {message}");
    }
    let left_out = objects([0, 9, 7, 12], &|settings| settings["on_invalid"] = json!("skip")).unwrap();
    assert_eq!(left_out[0].ignored, Some(IgnoreReason::Difficult), "what can be seen of it is not background");
}

#[test]
fn difficult_and_skipped_objects_are_no_crowds() {
    let directory = Directory::voc();
    let difficult = xml("cat0.jpg", "cat", [5, 6, 15, 18]).replace("<difficult>0", "<difficult>1");
    directory.xml("cat0", &difficult);
    directory.xml("cat1", &xml("cat1.jpg", "cat", [5, 6, 50, 18]));
    painted().save(directory.root.join("images/extra.png")).unwrap();
    directory.xml("extra", &xml("extra.png", "cat", [1, 1, 9, 9]));
    let library = open(Format::Voc, &directory.settings(Format::Voc, OnInvalid::Skip)).unwrap();
    for name in ["images/cat0.jpg", "images/cat1.jpg"] {
        let video = library.videos.iter().find(|video| video.name == name).unwrap();
        assert_eq!(video.frames[0].objects[0].ignored, Some(IgnoreReason::Difficult), "{name}");
    }
}

#[test]
fn coco_areas_are_those_of_outlines_and_crowds_are_kept() {
    let (directory, mut text) = Directory::coco();
    text["annotations"][0]["area"] = json!(31.5);
    text["annotations"][0]["bbox"] = json!([2, 3, 10, 8]);
    text["annotations"][2]["iscrowd"] = json!(1);
    directory.annotate(&text);
    let library = opened(&directory, Format::Coco);
    let object = |at: usize| library.videos[at].frames[0].objects[0].clone();
    assert_eq!((object(0).area, object(2).ignored), (31.5, Some(IgnoreReason::Crowd)));
    assert_eq!(object(1).area, object(1).rectangle.area(), "the area of the box by default");
}

/// The EXIF data that says nothing but an orientation: TIFF 6.0, little endian, one entry.
fn exif(orientation: u8) -> Vec<u8> {
    let entry = [0x12, 0x01, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0];
    [b"II*\0\x08\0\0\0\x01\0".as_slice(), &entry, &[0; 4]].concat()
}

/// An image of 32 x 24 with a white upper left quarter as stored, and this orientation.
fn turned(path: &Path, orientation: u8) {
    let stored = image::RgbImage::from_fn(WIDTH, HEIGHT, |x, y| {
        image::Rgb([if x < WIDTH / 2 && y < HEIGHT / 2 { 255 } else { 0 }; 3])
    });
    stored.save(path).unwrap();
    let bytes = std::fs::read(path).unwrap();
    if path.extension().unwrap() == "png" {
        let mut with_exif = Vec::new();
        let mut encoder = image::codecs::png::PngEncoder::new(&mut with_exif);
        image::ImageEncoder::set_exif_metadata(&mut encoder, exif(orientation)).unwrap();
        image::ImageEncoder::write_image(encoder, &stored, WIDTH, HEIGHT, image::ExtendedColorType::Rgb8).unwrap();
        return write(path, with_exif);
    }
    let segment = [b"Exif\0\0".as_slice(), &exif(orientation)].concat();
    let marker = [0xff, 0xe1, 0, segment.len() as u8 + 2];
    write(path, [&bytes[..2], &marker, &segment, &bytes[2..]].concat());
}

/// Position of the white quarter by TIFF 6.0, "Orientation", which defines the first row and column.
const SEEN: [(u8, bool, bool, bool); 8] = [
    // Orientation, sides changed, at the right, at the bottom.
    (1, false, false, false),
    (2, false, true, false),
    (3, false, true, true),
    (4, false, false, true),
    (5, true, false, false),
    (6, true, true, false),
    (7, true, true, true),
    (8, true, false, true),
];

#[test]
fn images_are_decoded_and_measured_in_their_exif_orientation() {
    for kind in ["jpg", "png"] {
        let directory = Directory::voc();
        for (orientation, swapped, right, bottom) in SEEN {
            let name = format!("images/cat{orientation}.{kind}");
            let path = directory.root.join(&name);
            turned(&path, orientation);
            let (width, height) = if swapped { (HEIGHT, WIDTH) } else { (WIDTH, HEIGHT) };
            let image = decode(&path, Path::new(&name), ExifOrientation::Apply, u64::MAX).unwrap();
            assert_eq!((image.width, image.height), (width as usize, height as usize), "{name}");
            let x = if right { width - 4 } else { 3 };
            let y = if bottom { height - 4 } else { 3 };
            let (x, y, row) = (x as usize, y as usize, image.width);
            assert!(image.rgb[(y * row + x) * 3] > 200, "{name}: the white quarter is elsewhere");
            let across = image.rgb[((image.height - 1 - y) * row + row - 1 - x) * 3];
            assert!(across < 50, "{name}");
            let stored = decode(&path, Path::new(&name), ExifOrientation::Ignore, u64::MAX).unwrap();
            assert_eq!((stored.width, stored.rgb[0] > 200), (WIDTH as usize, true), "{name}");
        }
        // A box in a corner of what is seen: orientation 6 of 32 x 24 is 24 x 32.
        let box_below = format!(
            "<annotation><filename>cat6.{kind}</filename><object><name>cat</name><bndbox><xmin>13</xmin><ymin>1</ymin>\
             <xmax>24</xmax><ymax>16</ymax></bndbox></object></annotation>"
        );
        directory.xml("turned", &box_below);
        let library = opened(&directory, Format::Voc);
        let frame = &library.videos.iter().find(|video| video.name.contains("cat6")).unwrap().frames[0];
        assert_eq!((frame.width, frame.height), (24, 32));
        assert_eq!(frame.objects[0].rectangle.bottom, 16.0);
    }
}

#[test]
fn a_declared_size_in_stored_orientation_is_reported() {
    let (directory, mut text) = Directory::coco();
    turned(&directory.root.join("images/cat0.jpg"), 6);
    directory.annotate(&text);
    let message = open(Format::Coco, &directory.settings(Format::Coco, OnInvalid::Fail)).unwrap_err().to_string();
    for words in ["images/cat0.jpg: is 24 x 32 pixels, annotated as 32 x 24", "EXIF", "exif_orientation = \"ignore\""] {
        assert!(message.contains(words), "{words}: {message}");
    }
    let mut stored = directory.settings(Format::Coco, OnInvalid::Fail);
    stored["exif_orientation"] = json!("ignore");
    let library = open(Format::Coco, &stored).unwrap();
    assert_eq!((library.videos[0].frames[0].width, library.exif_orientation), (32, ExifOrientation::Ignore));
    text["images"][0]["width"] = json!(HEIGHT);
    text["images"][0]["height"] = json!(WIDTH);
    directory.annotate(&text);
    assert_eq!(opened(&directory, Format::Coco).videos[0].frames[0].height, WIDTH as usize);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn boxes_of_any_numbers_are_inside_their_image_or_skipped(
        corners in proptest::collection::vec(proptest::array::uniform4(prop_oneof![any::<f64>(), -2.0..34.0f64]), 1..20)
    ) {
        let (directory, mut text) = Directory::coco();
        let written = corners.len();
        for bbox in corners.into_iter().filter(|bbox| bbox.iter().all(|value| value.is_finite())) {
            let annotation = json!({ "image_id": 1, "category_id": 0, "bbox": bbox });
            text["annotations"].as_array_mut().unwrap().push(annotation);
        }
        directory.annotate(&text);
        let library = open(Format::Coco, &directory.settings(Format::Coco, OnInvalid::Skip)).unwrap();
        assert_sound(&library);
        let frames = library.videos.iter().flat_map(|video| &video.frames);
        // What can be seen of one that is left out stays as a mask.
        let kept = frames.flat_map(|frame| &frame.objects).filter(|object| object.ignored.is_none()).count();
        let skipped: u64 = library.skipped.counts.values().sum();
        prop_assert!(kept as u64 + skipped <= (8 + written) as u64 && kept >= 8);
        prop_assert_eq!(kept as u64 + skipped, text["annotations"].as_array().unwrap().len() as u64);
    }
}
