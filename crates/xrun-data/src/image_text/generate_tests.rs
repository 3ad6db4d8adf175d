//! Generated sets are valid, and the same each time.

use super::super::ExampleCounts;
use super::super::library::Library;
use super::super::open::open_generated;
use super::super::paint::{COLOURS, SHAPES, is_unseen};
use super::super::settings::ImageText;
use super::*;
use xrun_core::dataset::open_dataset::OpenDataset;
use xrun_core::dataset::split::Split;

fn small() -> Generated {
    Generated { examples: 600, held_out_examples: 60, unseen_examples: 40, image_size: 32, seed: 3 }
}

fn opened(settings: &Generated, cache: &Path) -> Library {
    let directory = generate_in(settings, cache).unwrap();
    open_generated(&ImageText { generated: settings.clone(), ..ImageText::default() }, &directory).unwrap()
}

#[test]
fn splits_have_disjoint_pairs_and_answers_match_their_questions() {
    let cache = tempfile::tempdir().unwrap();
    let library = opened(&small(), cache.path());
    assert_eq!(
        library.summary(),
        ExampleCounts { train: 600, held_out: 60, unseen: 40, images: 700, texts: Vec::new() }
    );
    let shape_of = |name: &serde_json::Value| SHAPES.iter().position(|shape| *shape == name).unwrap();
    let colour_of = |name: &serde_json::Value| COLOURS.iter().position(|(colour, _)| *colour == name).unwrap();
    for split in Split::ALL {
        for number in 0..library.places(split).len() as u64 {
            let (_, record) = library.record(split, number).unwrap();
            let answer: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&record.answer).unwrap();
            let keys: Vec<&str> = answer.keys().map(String::as_str).collect();
            match record.question.strip_prefix("give ") {
                Some(pair) => assert_eq!(pair.split(" and ").collect::<Vec<_>>(), keys),
                None => assert_eq!((record.question.as_str(), keys), ("describe the picture", FIELDS.to_vec())),
            }
            if let (Some(shape), Some(colour)) = (answer.get("shape"), answer.get("colour")) {
                assert_eq!(is_unseen(shape_of(shape), colour_of(colour)), split == Split::Unseen);
            }
        }
    }
    let unseen = (0..4).flat_map(|shape| (0..6).map(move |colour| is_unseen(shape, colour)));
    assert_eq!(unseen.filter(|unseen| *unseen).count(), 6);
}

#[test]
fn generated_bytes_are_reproducible_and_damage_is_reported() {
    let settings = Generated { examples: 20, held_out_examples: 8, unseen_examples: 8, ..small() };
    let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    assert!(set(&settings).missing(one.path()).is_some());
    let digests = [&one, &other].map(|cache| opened(&settings, cache.path()).digest);
    assert_eq!(digests[0], digests[1]);
    assert_eq!((set(&settings).missing(one.path()), images(&settings)), (None, 36));
    let directory = generate_in(&settings, one.path()).unwrap();
    // The bytes are part of every result that was taken with them.
    let sums = std::fs::read(directory.join(digest_cache::SUMS)).unwrap();
    assert_eq!(digest(&sums), "24cc47c90d4bf07a218bf8c370d90d1f500d5bc86b7495becc6c4216cd210721");
    let line = std::fs::read_to_string(directory.join(FILES[2])).unwrap();
    assert!(line.lines().next().unwrap().contains("\"image\": \"images/unseen-000/000000.png\""), "{line}");
    write::replace(&directory.join("images/train-000/000003.png"), b"other").unwrap();
    let whole = ImageText { generated: settings, ..ImageText::default() };
    let message = open_generated(&whole, &directory).unwrap_err().to_string();
    assert!(message.contains("000003.png"), "{message}");
}
