//! Examples are the same whatever the cache holds, and the caps are kept.

use image::{ImageFormat, Rgb, RgbImage};

use super::super::image_file::tests::{encoded, turned};
use super::super::open::open;
use super::super::settings::{ImageText, Source};
use super::*;
use xrun_core::bounded::buffer::BufferSet;
use xrun_core::files::write::replace;

/// Two images in a file of four examples, one of them turned by its camera.
fn directory() -> (tempfile::TempDir, ImageText) {
    let directory = tempfile::tempdir().unwrap();
    let half = RgbImage::from_fn(32, 16, |x, _| if x < 16 { Rgb([250, 250, 250]) } else { Rgb([5, 5, 5]) });
    replace(&directory.path().join("a.jpg"), &turned(half, 6)).unwrap();
    let flat = RgbImage::from_pixel(64, 20, Rgb([10, 20, 30]));
    replace(&directory.path().join("b.png"), &encoded(flat, ImageFormat::Png)).unwrap();
    let line = |image: &str, answer: &str| {
        format!("{{\"text\": \"What?\", \"image\": \"{image}\", \"response\": \"{answer}\"}}\n")
    };
    let text = line("a.jpg", "{\\\"a\\\": \\\"日本 é\\\"}") + &line("a.jpg", "red") + &line("b.png", "blue");
    replace(&directory.path().join("a.jsonl"), text.as_bytes()).unwrap();
    let path = Some(directory.path().join("a.jsonl").display().to_string());
    let settings = ImageText { source: Source::Messages, path, image_size: 8, ..ImageText::default() };
    (directory, settings)
}

fn store(settings: &ImageText, limits: &Limits, ledger: &Ledger) -> ImageTextStore {
    let library = open(settings).unwrap();
    let tokenizer = library.tokenizer(&settings.loader_settings().vocabulary).unwrap();
    ImageTextStore::new(library, tokenizer, &settings.loader_settings(), limits, ledger)
}

#[test]
fn examples_do_not_depend_on_the_cache_and_originals_are_dropped() {
    let (_directory, settings) = directory();
    let ledger = Ledger::default();
    let store = store(&settings, &Limits::default(), &ledger);
    assert_eq!((store.count(Split::Train), store.count(Split::Validation), store.count(Split::Unseen)), (2, 1, 0));
    let first = store.example(Split::Train, 0).unwrap();
    // A quarter to the right: what was left is above.
    assert_eq!((first.image.width, first.image.height), (8, 8));
    assert!(first.image.rgb[0] > 240 && *first.image.rgb.last().unwrap() < 15);
    assert_eq!(first.text.answer_text, "{\"a\": \"日本 é\"}");
    assert_eq!(store.tokenizer.decode(&first.text.answer), first.text.answer_text);
    assert_eq!(store.tokenizer.decode(&first.text.prompt), "question: What?\nanswer: ");
    assert_eq!(store.text(Split::Train, 0).unwrap(), first.text);
    // The second question of an image finds it decoded.
    let second = store.example(Split::Train, 1).unwrap();
    assert_eq!((second.image, store.cache.counters().hits, store.cache.counters().misses), (first.image.clone(), 1, 1));
    assert_eq!(store.image_key(Split::Train, 0), store.image_key(Split::Train, 1));
    assert_eq!(&store.example(Split::Validation, 0).unwrap().image.rgb[..3], [10, 20, 30]);
    let original = store.original(Split::Train, 1).unwrap();
    assert_eq!((original.width, original.height), (16, 32));
    let none = ImageText { image_cache: Bytes(0), ..settings };
    let ledger = Ledger::default();
    let bare = self::store(&none, &Limits::default(), &ledger);
    assert_eq!(bare.example(Split::Train, 0).unwrap(), first);
    assert_eq!(bare.example(Split::Train, 0).unwrap(), first);
    assert_eq!((bare.cache.counters().hits, bare.cache.counters().too_large), (0, 2));
}

#[test]
fn held_bytes_are_in_the_ledger_and_within_the_plan() {
    let (_directory, settings) = directory();
    let one = (8 * 8 * 3 + size_of::<HostImage>()) as u64;
    let small = ImageText { image_cache: Bytes(one), ..settings };
    let ledger = Ledger::default();
    let store = store(&small, &Limits::default(), &ledger);
    let held = |name: &str| ledger.read().into_iter().find(|owner| owner.name == name).map(|owner| owner.bytes);
    assert_eq!(held("dataset_index"), Some(store.library.index_bytes()));
    store.example(Split::Train, 0).unwrap();
    store.example(Split::Validation, 0).unwrap();
    assert_eq!((held("image_cache"), store.cache.counters().evictions), (Some(one), 1));
    assert_eq!(held("decoding"), Some(0));
    assert_eq!(store.cache.evict_to_fraction(0.0), one);
    let names: Vec<&str> = store.buffers.all().into_iter().map(|buffer| buffer.name).collect();
    assert_eq!(names, ["image_cache", "decoding", "dataset_index", "vocabulary_learning"]);
    assert_eq!(store.buffers.cache.working_set_bytes, Some(2 * one));
}

#[test]
fn a_record_that_changed_during_the_run_is_named_by_line() {
    let (directory, settings) = directory();
    let ledger = Ledger::default();
    let store = store(&settings, &Limits::default(), &ledger);
    let message_of = |split, number| store.example(split, number).unwrap_err().to_string();
    // Damage that only decoding shows.
    let mut bytes = std::fs::read(directory.path().join("b.png")).unwrap();
    bytes[45..60].fill(0);
    replace(&directory.path().join("b.png"), &bytes).unwrap();
    let message = message_of(Split::Validation, 0);
    assert!(message.contains("a.jsonl: line 3: b.png: the image cannot be read"), "{message}");
    std::fs::remove_file(directory.path().join("b.png")).unwrap();
    assert!(message_of(Split::Validation, 0).contains("is not there"));
    let large = RgbImage::from_pixel(900, 900, Rgb([1, 2, 3]));
    replace(&directory.path().join("b.png"), &encoded(large, ImageFormat::Png)).unwrap();
    let message = message_of(Split::Validation, 0);
    assert!(message.contains("another image when the run began"), "{message}");
    let mut file = std::fs::OpenOptions::new().write(true).open(directory.path().join("a.jsonl")).unwrap();
    std::io::Write::write_all(&mut file, b"garbage").unwrap();
    let message = message_of(Split::Train, 0);
    assert!(message.contains("line 1: ") && message.contains("was changed during the run"), "{message}");
}
