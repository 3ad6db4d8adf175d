//! Generated sets are valid, and the same each time.

use std::collections::{BTreeMap, BTreeSet};

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
        super::super::ExampleCounts { train: 600, held_out: 60, unseen: 40, images: 700, texts: Vec::new() }
    );
    let index = |name: &str, names: &[&str]| names.iter().position(|other| *other == name).unwrap();
    let colours: Vec<&str> = COLOURS.iter().map(|(name, _)| *name).collect();
    let mut whole = 0;
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for split in Split::ALL {
        for number in 0..library.places(split).len() as u64 {
            let (_, record) = library.record(split, number).unwrap();
            let answer: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&record.answer).unwrap();
            let keys: Vec<&str> = answer.keys().map(String::as_str).collect();
            match record.question.strip_prefix("give ") {
                Some(pair) => assert_eq!(pair.split(" and ").collect::<Vec<_>>(), keys),
                None => {
                    assert_eq!((record.question.as_str(), keys), ("describe the picture", FIELDS.to_vec()));
                    whole += 1;
                }
            }
            if let (Some(shape), Some(colour)) = (answer.get("shape"), answer.get("colour")) {
                let unseen =
                    is_unseen(index(shape.as_str().unwrap(), &SHAPES), index(colour.as_str().unwrap(), &colours));
                assert_eq!(unseen, split == Split::Unseen);
            }
            for (key, value) in answer {
                values.entry(key).or_default().insert(value.to_string());
            }
        }
    }
    assert!((420..560).contains(&whole), "{whole} of 700 ask for all");
    let counts: Vec<(&str, usize)> = values.iter().map(|(key, values)| (key.as_str(), values.len())).collect();
    assert_eq!(counts, [("colour", 6), ("mark", 3), ("place", 4), ("shape", 4), ("size", 3)]);
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

#[test]
fn a_large_image_is_a_small_file() {
    let random = &mut generator(1, "x", 0);
    let image = Scene::draw(random, false).paint(random, 1024);
    assert_eq!(image.rgb.len(), 1024 * 1024 * 3);
    let bytes = image.to_png().unwrap().len();
    assert!(bytes < 200_000, "{bytes} bytes");
}
