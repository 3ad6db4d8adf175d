//! Scores against pycocotools and against hand-computed cases, and the cap.

use super::super::matching::{Detection, Truth, match_image};
use super::*;
use proptest::prelude::*;
use xrun_core::dataset::sample::{BoundingBox, IgnoreReason};

fn rectangle(left: f32, width: f32) -> BoundingBox {
    BoundingBox { left, top: 0.0, right: left + width, bottom: 10.0 }
}

fn found(score: f32, left: f32) -> Detection {
    Detection { class: 0, score, rectangle: rectangle(left, 10.0) }
}

fn truth(left: f32) -> Truth {
    Truth { class: 0, rectangle: rectangle(left, 10.0), area: 100.0, ignored: None }
}

fn scores(images: &[(Vec<Detection>, Vec<Truth>)]) -> DetectionScores {
    let mut all = AveragePrecision::new(&Ledger::default(), &buffer("validation_predictions", 1000));
    images.iter().for_each(|(detections, truths)| all.add(&match_image(detections, truths)));
    all.finish()
}

#[test]
fn a_perfect_detection_scores_one_and_a_miss_zero() {
    let perfect = scores(&[(vec![found(0.9, 0.0)], vec![truth(0.0)])]);
    assert_eq!((perfect.map50, perfect.map, perfect.recall), (Some(1.0), Some(1.0), Some(1.0)));
    let missed = scores(&[(vec![], vec![truth(0.0)])]);
    assert_eq!((missed.map50, missed.recall), (Some(0.0), Some(0.0)));
    assert_eq!(scores(&[(vec![found(0.9, 0.0)], vec![])]).map50, None, "there was no object");
}

#[derive(serde::Deserialize)]
struct Fixture {
    #[serde(rename = "pictures")]
    images: Vec<FixtureImage>,
    expected: BTreeMap<String, f64>,
}

#[derive(serde::Deserialize)]
struct FixtureImage {
    detections: Vec<(u32, f32, [f32; 4])>,
    /// Class, box (left, top, width, height), area, `crowd` or `difficult`.
    truths: Vec<(u32, [f32; 4], f32, Option<String>)>,
}

/// `tests/reference/coco_map.py` made the file with pycocotools.
#[test]
fn scores_match_pycocotools() {
    let fixture: Fixture = serde_json::from_str(include_str!("../../../../tests/reference/coco_map.json")).unwrap();
    let rectangle =
        |[left, top, width, height]: [f32; 4]| BoundingBox { left, top, right: left + width, bottom: top + height };
    let ignored = |word: &str| match word {
        "crowd" => IgnoreReason::Crowd,
        "difficult" => IgnoreReason::Difficult,
        word => panic!("{word}"),
    };
    let mut all = AveragePrecision::new(&Ledger::default(), &buffer("validation_predictions", 100_000));
    for image in &fixture.images {
        let detections: Vec<Detection> = (image.detections.iter())
            .map(|(class, score, sides)| Detection { class: *class, score: *score, rectangle: rectangle(*sides) })
            .collect();
        let truths: Vec<Truth> = (image.truths.iter())
            .map(|(class, sides, area, word)| Truth {
                class: *class,
                rectangle: rectangle(*sides),
                area: *area,
                ignored: word.as_deref().map(ignored),
            })
            .collect();
        all.add(&match_image(&detections, &truths));
    }
    let scores = all.finish();
    let found = [
        ("map50", scores.map50),
        ("map", scores.map),
        ("map_small", scores.map_small),
        ("map_medium", scores.map_medium),
        ("map_large", scores.map_large),
        ("recall", scores.recall),
        ("ar_1", scores.ar_1),
        ("ar_10", scores.ar_10),
        ("ar_100", scores.ar_100),
    ];
    assert_eq!(found.len(), fixture.expected.len());
    for (name, value) in found {
        let expected = fixture.expected[name];
        assert!((value.unwrap() - expected).abs() < 1e-9, "{name}: {value:?}, pycocotools {expected}");
    }
}

proptest! {
    #[test]
    fn the_cap_holds_for_any_input_and_the_best_detections_remain(
        scores in prop::collection::vec(prop_oneof![9 => 0f32..1.0, 1 => Just(f32::NAN)], 0..300),
    ) {
        let ledger = Ledger::default();
        let mut all = AveragePrecision::new(&ledger, &buffer("validation_predictions", 100));
        for score in &scores {
            all.add(&match_image(&[found(*score, 0.0)], &[truth(0.0)]));
            prop_assert!(!ledger.read()[0].exceeds_cap());
        }
        let finite = scores.iter().filter(|score| score.is_finite()).count() as u64;
        let result = all.finish();
        prop_assert!(result.left_out <= finite.saturating_sub(80));
        if finite > 0 {
            prop_assert!((0.0..=1.0).contains(&result.map.unwrap()));
        }
    }
}
