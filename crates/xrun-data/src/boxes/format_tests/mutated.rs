//! Whatever the bytes of an annotation file: no panic, no box outside its image, no path outside the root.

use proptest::prelude::*;

use super::*;

/// Hostile and careless values.
const PIECES: [&str; 24] = [
    "-1",
    "0",
    "1e308",
    "-1e308",
    "1e999",
    "NaN",
    "9223372036854775807",
    "18446744073709551616",
    "32.5",
    "null",
    "true",
    "\"\"",
    "\"../secret.png\"",
    "\"/etc/passwd\"",
    "\"images\"",
    "\"images/cat0.jpg\"",
    "[]",
    "{}",
    "[[[[",
    "}",
    "\"",
    "<!DOCTYPE a [<!ENTITY b \"c\">]>",
    "&lt;",
    "</object><object>",
];

#[derive(Clone, Debug)]
enum Change {
    Byte(usize, u8),
    Cut(usize, usize),
    Piece(usize, usize),
    Repeat(usize, usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = 0..10_000usize;
    let change = prop_oneof![
        (at.clone(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (at.clone(), 1..40usize).prop_map(|(at, length)| Change::Cut(at, length)),
        (at.clone(), 0..PIECES.len()).prop_map(|(at, piece)| Change::Piece(at, piece)),
        (at, 1..200usize).prop_map(|(at, length)| Change::Repeat(at, length)),
    ];
    proptest::collection::vec(change, 1..6)
}

fn changed(text: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for change in changes {
        let (Change::Byte(at, _) | Change::Cut(at, _) | Change::Piece(at, _) | Change::Repeat(at, _)) = change;
        let at = at % bytes.len().max(1);
        let end = |length: usize| (at + length).min(bytes.len());
        match change {
            Change::Byte(_, byte) => bytes.insert(at, *byte),
            Change::Cut(_, length) => drop(bytes.drain(at..end(*length))),
            Change::Piece(_, piece) => drop(bytes.splice(at..end(3), PIECES[*piece].bytes())),
            Change::Repeat(_, length) => {
                let part = bytes[at..end(*length)].to_vec();
                drop(bytes.splice(at..at, part));
            }
        }
    }
    bytes
}

/// Replaces the value at a random place of the tree.
fn replaced(value: &mut Value, way: &[usize], new: &Value) {
    let [first, rest @ ..] = way else { return *value = new.clone() };
    let length = match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    };
    match value {
        _ if length == 0 => *value = new.clone(),
        Value::Array(list) => replaced(&mut list[first % length], rest, new),
        Value::Object(map) => {
            map.values_mut().skip(first % length).take(1).for_each(|inner| replaced(inner, rest, new))
        }
        _ => {}
    }
}

fn reads(directory: &Directory, format: Format) -> Result<bool, TestCaseError> {
    let mut accepted = false;
    for policy in [OnInvalid::Fail, OnInvalid::Skip] {
        match open(format, &directory.settings(format, policy)) {
            Ok(library) => {
                assert_sound(&library);
                accepted = true;
            }
            Err(error) => {
                let message = error.to_string();
                prop_assert!(message.len() < 5_000 && !message.is_empty());
            }
        }
    }
    Ok(accepted)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let (coco, _) = Directory::coco();
        write(&coco.root.join("annotations.json"), &bytes);
        prop_assert!(!reads(&coco, Format::Coco)?);
    }

    #[test]
    fn mutated_coco_text_does_no_harm(all in proptest::collection::vec(changes(), 4)) {
        let (directory, text) = Directory::coco();
        let text = serde_json::to_vec(&text).unwrap();
        for changes in all {
            write(&directory.root.join("annotations.json"), changed(&text, &changes));
            reads(&directory, Format::Coco)?;
        }
    }

    #[test]
    fn coco_with_other_values_does_no_harm(
        ways in proptest::collection::vec((proptest::collection::vec(any::<usize>(), 1..5), 0..PIECES.len()), 1..6)
    ) {
        let (directory, mut text) = Directory::coco();
        text["references"] = json!([{ "category_id": 0, "file_name": "images/cat0.jpg", "bbox": [1, 2, 3, 4], "video_id": 1 }]);
        text["images"][0]["video_id"] = json!(1);
        for (way, piece) in ways {
            let new = serde_json::from_str(PIECES[piece]).unwrap_or_else(|_| json!(PIECES[piece]));
            replaced(&mut text, &way, &new);
        }
        directory.annotate(&text);
        reads(&directory, Format::Coco)?;
    }

    #[test]
    fn mutated_voc_text_does_no_harm(all in proptest::collection::vec(changes(), 4)) {
        let directory = Directory::voc();
        let text = xml("cat0.jpg", "cat", [5, 6, 15, 18]);
        for changes in all {
            write(&directory.root.join("annotations/cat0.xml"), changed(text.as_bytes(), &changes));
            reads(&directory, Format::Voc)?;
        }
    }

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
