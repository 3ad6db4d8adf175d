//! pycocotools computes the same scores from the files of a validation.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rand::RngExt;
use serde_json::Value;

use super::super::episode::tests::{SHAPE, episodes, library};
use super::super::scoring::{self, Scores, Scoring};
use super::super::settings::FewshotDetection;
use super::*;
use xrun_core::files::{sums, write};
use xrun_core::seed::generator;
use xrun_data::boxes::library::Library;

const EPISODES: u64 = 5;

fn settings() -> FewshotDetection {
    FewshotDetection { n_way: 2, n_shot: 1, n_query: 5, ..FewshotDetection::default() }
}

/// Library with frames of 384 x 288 and small, medium and large objects, some of them crowds or difficult.
fn library_of_all_sizes() -> Library {
    let mut library = library(SHAPE);
    let mut number = 0u64;
    for frame in library.videos.iter_mut().flat_map(|video| &mut video.frames) {
        (frame.width, frame.height) = (384, 288);
        for object in &mut frame.objects {
            let random = &mut generator(0, "sized", number);
            number += 1;
            let side = [24.0, 60.0, 140.0][random.random_range(0..3)];
            let (left, top) = (random.random_range(0..200) as f32, random.random_range(0..140) as f32);
            object.rectangle = BoundingBox { left, top, right: left + side, bottom: top + side / 1.25 };
            // The area of an outline is less than that of the box.
            object.area = object.rectangle.area() * 0.875;
            object.ignored = match random.random_range(0..8) {
                0 => Some(IgnoreReason::Crowd),
                1 => Some(IgnoreReason::Difficult),
                _ => None,
            };
        }
    }
    library
}

/// Reproducible detections, near objects and elsewhere.
fn found(
    library: &Library,
    classes: &[usize],
    query: super::super::episode::Query,
    number: u64,
) -> Vec<FrameDetection> {
    let random = &mut generator(1, "found", number);
    let mut all = Vec::new();
    for (way, object) in objects_of_ways(library, classes, query) {
        for _ in 0..random.random_range(0..3) {
            let mut shift = |by: f32| (random.random_range(-64..=64) as f32 / 64.0) * by;
            let truth = object.rectangle;
            let by = truth.width() * 0.15;
            let left = truth.left + shift(by);
            let top = truth.top + shift(by);
            let rectangle = BoundingBox { left, top, right: truth.right + shift(by), bottom: truth.bottom + shift(by) };
            all.push(FrameDetection { class: way, score: random.random_range(10..64) as f32 / 64.0, rectangle });
        }
    }
    for _ in 0..random.random_range(0..3) {
        let (left, top) = (random.random_range(0..300) as f32, random.random_range(0..200) as f32);
        let rectangle = BoundingBox { left, top, right: left + 40.0, bottom: top + 30.0 };
        let class = random.random_range(0..classes.len());
        all.push(FrameDetection { class, score: random.random_range(1..40) as f32 / 64.0, rectangle });
    }
    all
}

/// Runs a validation as `validation.rs` does, with the detections of [`found`] in place of a model.
fn validated(run: &Path, library: Library) -> Scores {
    let ledger = Ledger::default();
    let episodes = episodes(library, settings(), 0).unwrap();
    let library: Arc<Library> = episodes.library.clone();
    let mut scoring = Scoring::new(library.clone(), &settings(), &scoring::Buffers::new(&settings(), None), &ledger);
    let mut files = CocoFiles::new(&ledger, &buffer());
    let mut file = files.begin(run, &episodes, EPISODES).unwrap();
    let mut number = 0;
    for episode in (0..EPISODES).map(|index| episodes.draw_validation(index)) {
        scoring.begin_episode(&episode.classes);
        for query in episode.queries {
            let found = found(&library, &episode.classes, query, number);
            file.frame(&episode.classes, &found).unwrap();
            scoring.frame(query, &found);
            number += 1;
        }
        scoring.end_episode();
    }
    let held = ledger.read().into_iter().find(|owner| owner.name == buffer().name).unwrap();
    assert_eq!(held.bytes, BUFFER_BYTES as u64);
    files.finish(file).unwrap();
    assert!(
        ledger.read().iter().all(|owner| !owner.exceeds_cap() && (owner.name != buffer().name || owner.bytes == 0))
    );
    scoring.finish()
}

/// `tests/reference/check_run.py --record tests/reference/detection_run` wrote `pycocotools.json` from the two other files in that
/// directory, which are those of a validation. After a change of their format: `XRUN_BLESS=1` on this test, then the script.
#[test]
fn pycocotools_computes_the_same_scores_from_the_files() {
    let reference =
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../..")).join("tests/reference/detection_run");
    let directory = tempfile::tempdir().unwrap();
    let scores = validated(directory.path(), library_of_all_sizes());
    for name in [layout::DETECTIONS, layout::GROUND_TRUTH] {
        let written = std::fs::read(directory.path().join(name)).unwrap();
        if std::env::var_os("XRUN_BLESS").is_some() {
            write::replace(&reference.join(name), &written).unwrap();
        }
        assert!(
            written == std::fs::read(reference.join(name)).unwrap(),
            "{name} differs from the file that pycocotools read"
        );
    }
    let text = std::fs::read(reference.join("pycocotools.json")).unwrap();
    let expected: BTreeMap<String, BTreeMap<String, Value>> = serde_json::from_slice(&text).unwrap();
    let ours: BTreeMap<&str, Option<f64>> = scores.metrics.into_iter().collect();
    assert_eq!(expected["metrics"].len(), 11, "all but ST-IoU");
    for (name, value) in &expected["metrics"] {
        let (value, ours) = (value.as_f64().unwrap(), ours[name.as_str()].unwrap());
        assert!((value - ours).abs() < 1e-9, "{name}: {ours}, by pycocotools {value}");
        assert!(value > 0.0 && value < 1.0, "{name}: {value} is a trivial score");
    }
    for (name, value) in &expected["intervals"] {
        let ours = scores.intervals.iter().find(|(known, _)| known == name).unwrap().1;
        assert_eq!(value["episodes"], ours.episodes);
        assert!((value["half_width"].as_f64().unwrap() - ours.half_width).abs() < 1e-3, "{name}: {ours:?}");
    }
}

#[test]
fn a_validation_without_detections_writes_an_empty_list_and_a_failed_one_keeps_the_previous_file() {
    let run = tempfile::tempdir().unwrap();
    let episodes = episodes(library(SHAPE), settings(), 0).unwrap();
    let mut files = CocoFiles::new(&Ledger::default(), &buffer());
    let file = files.begin(run.path(), &episodes, 1).unwrap();
    files.finish(file).unwrap();
    let read =
        |name: &str| -> Value { serde_json::from_slice(&std::fs::read(run.path().join(name)).unwrap()).unwrap() };
    assert_eq!(read(layout::DETECTIONS), serde_json::json!([]));
    let mut incomplete = files.begin(run.path(), &episodes, 1).unwrap();
    let rectangle = BoundingBox { left: 0.0, top: 0.0, right: 1.0, bottom: 1.0 };
    incomplete.frame(&[5], &[FrameDetection { class: 0, score: 0.5, rectangle }]).unwrap();
    drop(incomplete);
    assert_eq!(read(layout::DETECTIONS), serde_json::json!([]));
    assert_eq!(std::fs::read_dir(run.path()).unwrap().count(), 3, "two files, and their digests");
    assert!(sums::damaged(run.path()).is_empty());
}
