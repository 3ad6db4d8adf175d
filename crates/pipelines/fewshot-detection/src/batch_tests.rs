//! Batches are reproducible with any number of workers, within their bound, and consistent with the library.

use std::collections::BTreeSet;

use super::super::episode::tests::{SHAPE, Shape, episodes, library};
use super::super::step_kind::batches_per_epoch;
use super::*;
use proptest::prelude::*;
use rand::Rng;
use sha2::{Digest, Sha256};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset::sample::IgnoreReason;
use xrun_core::settings::sections::Limits;
use xrun_data::boxes::library::Library;
use xrun_data::feed;
use xrun_data::feed::{Feed, FeedSettings, Prepare};

/// Source of random images that depend on their paths; fails or panics at one path.
#[derive(Default)]
struct RandomImages {
    fails_at: Option<&'static str>,
    panics_at: Option<&'static str>,
}

impl ImageSource for RandomImages {
    fn image(&self, path: &Path) -> Result<HostImage, DataError> {
        let path_text = path.display().to_string();
        if self.fails_at == Some(&path_text) {
            return Err(DataError::file(path, "the JPEG data ends early"));
        }
        assert!(self.panics_at != Some(&path_text), "the decoder cannot cope with {path_text}");
        let mut rgb = vec![0; 64 * 48 * 3];
        generator(0, &path_text, 0).fill_bytes(&mut rgb);
        Ok(HostImage { width: 64, height: 48, rgb: rgb.into() })
    }
}

fn small() -> FewshotDetection {
    FewshotDetection {
        n_way: 2,
        n_shot: 2,
        n_query: 2,
        augmentations: 3,
        triplet_ratio: 0.4,
        image_size: 32,
        reference_size: 16,
        ..FewshotDetection::default()
    }
}

fn batches(library: Library, settings: FewshotDetection) -> BatchLoader {
    BatchLoader::new(episodes(library, settings, 0).unwrap(), Arc::new(RandomImages::default()))
}

fn feed(ledger: &Ledger, batches: &BatchLoader, workers: usize) -> Feed<HostBatch> {
    let limits = Limits { workers, ..Limits::default() };
    let buffers = feed::Buffers::new(&limits, batch_bytes_max(&batches.episodes.settings, None));
    let batches = batches.clone();
    let prepare: Prepare<HostBatch> = Arc::new(move |number| batches.training_batch(number));
    Feed::new(ledger, &buffers, FeedSettings { workers, first: 0 }, prepare).unwrap()
}

fn digest(batch: &HostBatch) -> Vec<u8> {
    let (pixels, rest) = match batch {
        HostBatch::Detection(batch) => (
            [batch.query_pixels.as_slice(), batch.reference_pixels.as_slice()].concat(),
            format!("{:?} {:?}", batch.classes, batch.queries),
        ),
        HostBatch::Triplet(batch) => (batch.pixels.clone(), format!("{:?}", batch.classes)),
    };
    Sha256::new().chain_update(pixels).chain_update(rest).chain_update(batch.describe()).finalize().to_vec()
}

#[test]
fn the_bytes_of_batches_and_their_order_do_not_depend_on_the_workers() {
    let batches = batches(library(SHAPE), small());
    let digests = |workers| -> Vec<Vec<u8>> {
        let ledger = Ledger::default();
        let mut feed = feed(&ledger, &batches, workers);
        let found = (0..20).map(|_| digest(&feed.next().unwrap())).collect();
        assert!(ledger.read().iter().all(|owner| !owner.exceeds_cap()), "{:?}", ledger.read());
        found
    };
    let expected = digests(0);
    assert_eq!(expected.iter().collect::<BTreeSet<_>>().len(), 20, "no batch twice");
    assert_eq!(digests(1), expected);
    assert_eq!(digests(4), expected);
}

#[test]
fn an_unusable_image_ends_the_feed_with_its_name() {
    let broken = "video 2 1/3.png";
    let sources = [
        (RandomImages { fails_at: Some(broken), panics_at: None }, "ends early"),
        (RandomImages { fails_at: None, panics_at: Some(broken) }, "cannot cope"),
    ];
    for (source, reason) in sources {
        let source: Arc<dyn ImageSource> = Arc::new(source);
        let mut messages = BTreeSet::new();
        for workers in [0, 1, 4] {
            let batches = BatchLoader::new(episodes(library(SHAPE), small(), 0).unwrap(), source.clone());
            let mut feed = feed(&Ledger::default(), &batches, workers);
            let failure = (0..200).find_map(|_| feed.next().err()).expect("the frame is drawn within 200 batches");
            messages.insert(failure.to_string());
        }
        assert_eq!(messages.len(), 1, "at the same batch with any number of workers: {messages:?}");
        let message = messages.first().unwrap();
        assert!(message.contains(broken) && message.contains(reason), "{message}");
    }
}

#[test]
fn an_image_with_another_size_than_its_annotation_is_an_error() {
    let mut library = library(SHAPE);
    library.videos.iter_mut().flat_map(|video| &mut video.frames).for_each(|frame| frame.width = 65);
    let message = batches(library, small()).training_batch(0).unwrap_err().to_string();
    assert!(message.contains("64 x 48") && message.contains("65 x 48"), "{message}");
}

#[test]
fn pixels_have_the_documented_shapes() {
    let batches = batches(library(SHAPE), small());
    let HostBatch::Detection(episode) = batches.training_batch(0).unwrap() else {
        panic!("the first step is detection")
    };
    assert_eq!(episode.query_pixels.len(), 2 * 2 * 32 * 32 * 3);
    assert_eq!(episode.reference_pixels.len(), 2 * 2 * 3 * 16 * 16 * 3);
    assert_eq!((episode.queries.len(), episode.classes.len()), (4, 2));
    // floor(3 * 0.4) = 1: the third step is the first of triplets.
    let HostBatch::Triplet(triplets) = batches.training_batch(2).unwrap() else { panic!("the third step is triplets") };
    assert_eq!(triplets.pixels.len(), 24 * 16 * 16 * 3);
    assert_eq!(triplets.classes[..8], triplets.classes[8..16], "anchors and positives");
    assert!((0..8).all(|triplet| triplets.classes[triplet] != triplets.classes[16 + triplet]), "negatives");
}

#[test]
fn validation_is_not_augmented_and_the_same_each_time() {
    let batches = batches(library(SHAPE), small());
    let episode = batches.validation_batch(3).unwrap();
    assert_eq!(episode, batches.validation_batch(3).unwrap());
    let query = &episode.queries[0];
    let frame = batches.frame(query.query);
    let (square, mapping) = transform::letterbox(&RandomImages::default().image(&frame.path).unwrap(), 32);
    assert_eq!((&episode.query_pixels[..32 * 32 * 3], query.geometry.mapping), (&*square.rgb, mapping));
    // 64 x 48 in 32 x 32: scale 0.5, 4 pixels above.
    for (truth, object) in query.truths.iter().zip(&frame.objects) {
        assert_eq!(truth.rectangle.top, object.rectangle.top * 0.5 + 4.0);
    }
    let view = |index: usize| &episode.reference_pixels[index * 16 * 16 * 3..][..16 * 16 * 3];
    assert!(view(0) != view(1) && view(1) != view(2), "several views of a reference");
}

#[test]
fn the_role_of_an_object_depends_on_its_class() {
    let mut library = library(SHAPE);
    for frame in library.videos.iter_mut().flat_map(|video| &mut video.frames) {
        // In the middle, so that augmentation leaves them visible: one of each of the nine classes and one to ignore.
        let object = |class: usize, ignored: Option<IgnoreReason>| Object {
            class,
            rectangle: BoundingBox { left: 24.0, top: 16.0, right: 40.0 + class as f32, bottom: 32.0 },
            area: 256.0,
            ignored,
        };
        frame.objects =
            (0..9).map(|class| object(class, None)).chain([object(0, Some(IgnoreReason::Difficult))]).collect();
    }
    let batches = batches(library, small());
    let roles = |batch: &DetectionBatch| -> Vec<Vec<Role>> {
        batch.queries.iter().map(|query| query.truths.iter().map(|truth| truth.role).collect()).collect()
    };
    let HostBatch::Detection(training) = batches.training_batch(0).unwrap() else {
        panic!("the first step is detection")
    };
    for roles in roles(&training) {
        // 2 of the 5 train classes are in the episode; 3 held-out ones, 1 unused and 1 to ignore are masked.
        let mut expected = vec![Role::Class(0), Role::Class(1)];
        expected.extend([[Role::Other; 3].as_slice(), &[Role::Masked; 5]].concat());
        let mut sorted = roles.clone();
        sorted.sort();
        assert_eq!(sorted, expected);
    }
    for roles in roles(&batches.validation_batch(0).unwrap()) {
        let count = |wanted: Role| roles.iter().filter(|role| **role == wanted).count();
        assert_eq!((count(Role::Other), count(Role::Masked)), (6, 2), "only unused and ignored objects are masked");
    }
}

/// Frames of training classes with `count` equal objects each, of all training classes in turn.
fn crowded(count: usize) -> Library {
    let mut library = library(SHAPE);
    for frame in library.videos.iter_mut().take(15).flat_map(|video| &mut video.frames) {
        let rectangle = BoundingBox { left: 20.0, top: 16.0, right: 44.0, bottom: 32.0 };
        let object = |index| Object { class: index % 5, rectangle, area: 384.0, ignored: None };
        frame.objects = (0..count).map(object).collect();
    }
    library
}

#[test]
fn a_crowded_frame_has_the_objects_of_the_episode_and_a_mask_for_the_rest() {
    let HostBatch::Detection(batch) = batches(crowded(100), small()).training_batch(0).unwrap() else {
        panic!("detection is first")
    };
    for query in &batch.queries {
        assert_eq!((query.truths.len(), query.truths_left_out), (TRUTHS_MAX, 69));
        let (rest, own) = query.truths.split_last().unwrap();
        assert!(own.iter().all(|truth| matches!(truth.role, Role::Class(_))), "40 are of the episode's classes");
        assert_eq!(rest.role, Role::Masked, "the remaining objects are masked");
    }
}

#[test]
fn a_description_names_classes_and_frames_and_has_a_maximum_length() {
    let batch = batches(library(SHAPE), small()).training_batch(0).unwrap();
    assert!(batch.describe().contains("class ") && batch.describe().contains("video "), "{}", batch.describe());
    let mut long = library(SHAPE);
    long.classes.iter_mut().for_each(|class| class.name = "ü".repeat(5000));
    for frame in long.videos.iter_mut().flat_map(|video| &mut video.frames) {
        frame.path = "x".repeat(5000).into();
    }
    let batches = batches(long, FewshotDetection { n_way: 5, triplet_ratio: 0.5, ..small() });
    for number in 0..4 {
        let batch = batches.training_batch(number).unwrap();
        assert!(batch.describe().len() <= DESCRIPTION_BYTES_MAX, "{}", batch.describe());
    }
}

#[test]
fn an_episode_of_crowded_frames_reaches_the_bound() {
    let batch = batches(crowded(40), small()).training_batch(0).unwrap();
    let bound = batch_bytes_max(&small(), None);
    let unused = (DESCRIPTION_BYTES_MAX - batch.describe().len()) as u64;
    // The triplet batch is larger here; with a single triplet the episode is.
    let detection = batch_bytes_max(&FewshotDetection { triplet_batch_size: 1, ..small() }, None);
    assert_eq!(batch.deep_size(), detection - unused);
    assert!(detection <= bound);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_batch_exceeds_its_bound(
        n_way in 1usize..5, n_shot in 1usize..4, n_query in 1usize..5, augmentations in 1usize..4, triplets in 1usize..12,
        image in 2usize..4, reference in 1usize..3, ratio in 0.0f64..=1.0, frames in 1usize..4, seed in any::<u32>(),
    ) {
        let settings = FewshotDetection {
            n_way, n_shot, n_query, augmentations, triplet_ratio: ratio, image_size: image * 16, reference_size: reference * 16,
            triplet_batch_size: triplets, ..FewshotDetection::default()
        };
        let library = Arc::new(library(Shape { frames, ..SHAPE }));
        prop_assert!(batches_per_epoch(&library, &settings) >= 1);
        let episodes = Episodes::new(library, settings.clone(), seed, 1).unwrap();
        let batches = BatchLoader::new(episodes, Arc::new(RandomImages::default()));
        let bound = batch_bytes_max(&settings, None);
        for number in 0..4 {
            let batch = batches.training_batch(number).unwrap();
            prop_assert!(batch.deep_size() <= bound, "{} of {bound}: {}", batch.deep_size(), batch.describe());
        }
        let validation = batches.validation_batch(u64::from(seed)).unwrap();
        prop_assert!(validation.deep_size() <= bound);
    }
}
