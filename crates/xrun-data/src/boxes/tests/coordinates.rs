//! Boxes are where people see them, whatever the corners of VOC count from and however an image is rotated.

use proptest::prelude::*;

use super::*;
use crate::boxes::library::Object;
use crate::image_text::image_file::tests::turned;
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
    directory.xml("cat0", &xml("cat0.jpg", "cat", [5, 6, 15, 18]).replace("<difficult>0", "<difficult>1"));
    directory.xml("cat1", &xml("cat1.jpg", "cat", [5, 6, 50, 18]));
    directory.xml("dog0", &xml("dog0.jpg", "cat", [1, 1, 9, 9]));
    directory.xml("owl0", &xml("owl0.jpg", "dog", [1, 1, 9, 9]));
    let library = open(Format::Voc, &directory.settings(Format::Voc, OnInvalid::Skip)).unwrap();
    let ignored = library.videos.iter().map(|video| video.frames[0].objects[0].ignored);
    let expected = [Some(IgnoreReason::Difficult), Some(IgnoreReason::Difficult), None];
    assert!(ignored.take(3).eq(expected), "cat0, cat1, dog0");
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

/// An image of 32 x 24 with a white upper left quarter as stored, and this orientation.
fn quartered(orientation: u8) -> Vec<u8> {
    let white = |x, y| if x < WIDTH / 2 && y < HEIGHT / 2 { 255 } else { 0 };
    turned(image::RgbImage::from_fn(WIDTH, HEIGHT, |x, y| image::Rgb([white(x, y); 3])), orientation)
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
    let (directory, mut text) = Directory::coco();
    let name = "images/cat0.jpg";
    let path = directory.root.join(name);
    for (orientation, swapped, right, bottom) in SEEN {
        write(&path, quartered(orientation));
        let (width, height) = if swapped { (HEIGHT, WIDTH) } else { (WIDTH, HEIGHT) };
        let image = decode(&path, Path::new(name), ExifOrientation::Apply, u64::MAX).unwrap();
        assert_eq!((image.width, image.height), (width as usize, height as usize), "{orientation}");
        let x = if right { image.width - 4 } else { 3 };
        let y = if bottom { image.height - 4 } else { 3 };
        let red = |x: usize, y: usize| image.rgb[(y * image.width + x) * 3];
        let across = red(image.width - 1 - x, image.height - 1 - y);
        assert!(red(x, y) > 200 && across < 50, "{orientation}: the white quarter is elsewhere");
        let stored = decode(&path, Path::new(name), ExifOrientation::Ignore, u64::MAX).unwrap();
        assert_eq!((stored.width, stored.rgb[0] > 200), (WIDTH as usize, true), "{orientation}");
    }
    // The last one turns it by a quarter, and the annotation has its sides as they are stored.
    directory.annotate(&text);
    let mut settings = directory.settings(Format::Coco, OnInvalid::Fail);
    let message = open(Format::Coco, &settings).unwrap_err().to_string();
    assert!(message.contains("cat0.jpg: is 24 x 32 pixels by its EXIF orientation, annotated as 32 x 24"), "{message}");
    settings["exif_orientation"] = json!("ignore");
    let library = open(Format::Coco, &settings).unwrap();
    assert_eq!((library.videos[0].frames[0].width, library.exif_orientation), (32, ExifOrientation::Ignore));
    // A box in a corner of what is seen.
    text["images"][0]["width"] = json!(HEIGHT);
    text["images"][0]["height"] = json!(WIDTH);
    text["annotations"][0]["bbox"] = json!([12, 0, 12, 32]);
    directory.annotate(&text);
    let frame = &opened(&directory, Format::Coco).videos[0].frames[0];
    assert_eq!((frame.height, frame.objects[0].rectangle.bottom), (WIDTH as usize, 32.0));
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
