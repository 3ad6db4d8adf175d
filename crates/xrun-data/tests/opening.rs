//! The peak of the heap while data of strangers is opened and decoded. The only test of its process, as the heap is counted in all of it.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test writes samples and stops at what is wrong")]

use std::path::Path;

use serde_json::{Value, json};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::{HostImage, ImageSource};
use xrun_core::heap;
use xrun_core::settings::sections::Limits;
use xrun_core::units::Bytes;
use xrun_data::boxes::classes::{ClassIndex, index_classes, table_bytes};
use xrun_data::boxes::format;
use xrun_data::boxes::frames::{Buffers, FrameStore, index_bytes};
use xrun_data::coco::Coco;
use xrun_data::question_answers::files::open_questions;
use xrun_data::question_answers::squad::QuestionLocation;
use xrun_data::reading::decoding::{decode_bytes, decoding_bytes};
use xrun_data::reading::invalid::{InvalidCollector, OnInvalid};
use xrun_data::reading::named_image::read_image_file;
use xrun_data::reading::orientation::ExifOrientation;
use xrun_data::tokenizer::{Tokenizer, Words};

xrun_core::count_heap!();

/// Highest bytes of the heap beyond those before, while something is made; what is made is still held.
fn peak<T>(make: impl FnOnce() -> T) -> (T, u64) {
    heap::take_peak();
    let before = heap::read().bytes;
    let made = make();
    (made, heap::take_peak() - before)
}

fn assert_close(name: &str, peak: u64, index: u64) {
    assert!(peak * 4 <= index * 5, "{name}: {peak} bytes at the peak, and the index has {index}");
}

fn questions(path: &Path) -> u64 {
    let (opened, peak) = peak(|| open_questions(path, &mut InvalidCollector::new(OnInvalid::Fail)).unwrap());
    let (_, index) = opened;
    assert_close("questions", peak, (index.places.capacity() * size_of::<QuestionLocation>()) as u64);
    index.articles.into()
}

/// A PNG of 40 x 40 pixels with a chunk before its pixels.
fn png_with(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let png = HostImage { width: 40, height: 40, rgb: vec![7; 40 * 40 * 3].into() }.to_png().unwrap();
    let mut chunk = name.to_vec();
    chunk.extend(content);
    let sum = crc32fast::hash(&chunk).to_be_bytes();
    [&png[..33], &(content.len() as u32).to_be_bytes(), &chunk, &sum, &png[33..]].concat()
}

/// 12 MB of zeros as zlib stores them: the pixels of a black PNG.
fn zeros() -> Vec<u8> {
    let png = HostImage { width: 2000, height: 2000, rgb: vec![0; 2000 * 2000 * 3].into() }.to_png().unwrap();
    let (mut rest, mut zlib) = (&png[8..], Vec::new());
    // Chunks: length, name, content, checksum.
    while let Some((length, chunk)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        if chunk.starts_with(b"IDAT") {
            zlib.extend(&chunk[4..][..length]);
        }
        rest = &chunk[length + 8..];
    }
    zlib
}

/// Writes annotations of eight classes, and returns the settings that read them.
fn annotated(root: &Path, images: Vec<Value>, annotations: Vec<Value>, mut settings: Value) -> Coco {
    let categories: Vec<Value> = (0..8).map(|id| json!({ "id": id, "name": format!("class {id}") })).collect();
    let text = json!({ "images": images, "annotations": annotations, "categories": categories }).to_string();
    std::fs::write(root.join("annotations.json"), text).unwrap();
    settings["path"] = json!(root);
    serde_json::from_value(settings).unwrap()
}

#[test]
fn opening_takes_little_more_than_the_index_and_decoding_no_more_than_its_limit() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);

    let row = |number: u32| {
        let (id, context) = (number.to_string(), format!("Ann met Bob {number} times."));
        let answers = json!({ "text": ["Ann"], "answer_start": [0] });
        let title = format!("Article {number}");
        json!({ "id": id, "title": title, "context": context, "question": "Who met Bob?", "answers": answers })
            .to_string()
    };
    std::fs::write(at("rows.jsonl"), (0..60_000).map(row).collect::<Vec<_>>().join("\n")).unwrap();
    let asked = json!({ "id": "a", "question": "Who?", "answers": [{ "text": "Ann", "answer_start": 0 }] });
    let paragraphs = vec![json!({ "context": "Ann met Bob.", "qas": [asked] }); 80_000];
    let squad = json!({ "data": [{ "title": "T", "paragraphs": paragraphs }] });
    std::fs::write(at("squad.json"), squad.to_string()).unwrap();
    drop(squad);
    assert_eq!(questions(&at("rows.jsonl")), 60_000, "each title is another article");
    assert_eq!(questions(&at("squad.json")), 1);

    let root = at("coco");
    let png = HostImage { width: 640, height: 640, rgb: vec![7; 640 * 640 * 3].into() }.to_png().unwrap();
    std::fs::create_dir(&root).unwrap();
    for image in 0..4 {
        std::fs::write(root.join(format!("{image}.png")), &png).unwrap();
    }
    let boxes = (0..80_000).map(|id| {
        let (left, top) = ((id / 4 % 600) as f64 + 0.25, id / 2400);
        json!({ "id": id, "image_id": id % 4, "category_id": id % 8, "bbox": [left, top, 9.5, 9], "segmentation": [] })
    });
    let images = (0..4).map(|image| json!({ "id": image, "file_name": format!("{image}.png") }));
    let settings = annotated(&root, images.collect(), boxes.collect(), json!({ "validation_classes": ["class 7"] }));
    let (mut library, opened) = peak(|| format::open(&settings).unwrap());
    let index = index_bytes(&library);
    assert_close("boxes", opened, index);
    assert!(library.opening_bytes.max(index) >= opened, "{} declared, {opened} taken", library.opening_bytes);

    // Many images of few objects, as COCO has: the index is names as much as boxes.
    let many = at("many");
    std::fs::create_dir(&many).unwrap();
    for image in 0..2000 {
        std::os::unix::fs::symlink("../coco/0.png", many.join(format!("{image:012}.png"))).unwrap();
    }
    let images = (0..2000).map(|image| json!({ "id": image, "file_name": format!("{image:012}.png") }));
    let boxes =
        (0..14_000).map(|id| json!({ "id": id, "image_id": id / 7, "category_id": id % 2, "bbox": [id % 7, 2, 3, 4] }));
    let links = json!({ "follow_links": true, "link_root": directory.path() });
    let settings = annotated(&many, images.collect(), boxes.collect(), links);
    let before = heap::read().bytes;
    let (many, opened) = peak(|| format::open(&settings).unwrap());
    let (held, index) = (heap::read().bytes - before, index_bytes(&many));
    assert_close("many images, held", held, index);
    assert_close("many images", opened, index);
    assert!(many.opening_bytes >= opened, "{} declared, {opened} taken", many.opening_bytes);
    let (classes, taken) = peak(|| index_classes(&many));
    let most = table_bytes(&many) + classes.iter().map(ClassIndex::bytes).sum::<u64>();
    assert!(taken <= most + 64 * 1024, "{taken} bytes for the classes, {most} declared");
    drop((classes, many));

    let mut words = Words::default();
    (0..20_000).for_each(|number: u32| words.add(&format!(" w{:x}", number.wrapping_mul(2_654_435_761)), 2).unwrap());
    let (tokenizer, taken) = peak(|| Tokenizer::learn(&words, 2000).unwrap());
    let ledger = Ledger::default();
    let (buffer, _registration) = tokenizer.register_learning(&ledger).unwrap();
    assert!(taken <= buffer.cap.bytes && buffer.cap.bytes < 4 * taken, "{taken} bytes, {} declared", buffer.cap.bytes);
    assert_eq!((ledger.read()[0].peak_bytes, ledger.read()[0].bytes), (buffer.cap.bytes, 0));

    // As if the largest image were any.
    library.largest = None;
    // A decompression bomb in a chunk that decoders inflate: read without it, in the bytes that the plan has for it.
    let zeros = zeros();
    for (name, head) in [(b"iCCP", &b"x\0\0"[..]), (b"zTXt", b"x\0\0"), (b"iTXt", b"x\0\x01\0\0\0")] {
        let bomb = png_with(name, &[head, &zeros].concat());
        for image in 0..4 {
            std::fs::write(root.join(format!("{image}.png")), &bomb).unwrap();
        }
        let most = decoding_bytes(40, 40, bomb.len() as u64);
        let ledger = Ledger::default();
        let limits = Limits { workers: 1, decode_memory: Bytes(32 << 20), ..Limits::default() };
        let store = FrameStore::new(&library, &ledger, &Buffers::new(&library, &limits, 0));
        let decoding = || ledger.read().into_iter().find(|owner| owner.name == "decoding").unwrap();
        let (image, taken) = peak(|| store.image(Path::new("0.png")).unwrap());
        assert_eq!((image.width, image.rgb[0]), (40, 7));
        assert!(taken <= most && decoding().peak_bytes == most, "{taken} bytes, {most} declared");
        let (named, taken) = peak(|| read_image_file(&root.join("0.png"), limits.decode_memory).unwrap());
        let (_, decoded) = peak(|| decode_bytes(&named, ExifOrientation::Apply, limits.decode_memory.0).unwrap());
        assert!(taken.max(decoded) <= most, "{taken} and {decoded} bytes, {most} declared");
        let refused: Result<_, DataError> =
            decode_bytes(&named, ExifOrientation::Apply, most - 1).map_err(DataError::content);
        assert!(refused.is_err());
    }
}
