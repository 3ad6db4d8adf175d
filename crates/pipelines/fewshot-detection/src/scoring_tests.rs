//! Scores of episodes and of all frames, and the bounds of the memory.

use std::path::PathBuf;

use super::super::episode::tests::{SHAPE, library};
use super::*;
use xrun_core::dataset::sample::IgnoreReason;

/// Class 5 is held out; its video 15 shows it in all frames but the first.
const CLASS: usize = 5;

fn query(frame: usize) -> Query {
    Query { video: CLASS * SHAPE.videos, frame }
}

fn scoring(library: Library, ledger: &Ledger) -> Scoring {
    let buffers = Buffers::new(&FewshotDetection::default(), None);
    Scoring::new(Arc::new(library), &FewshotDetection::default(), &buffers, ledger)
}

/// Correct detection in a frame.
fn correct(library: &Library, frame: usize, score: f32) -> Vec<FrameDetection> {
    let object = objects_of_ways(library, &[CLASS], query(frame)).next().unwrap().1;
    vec![FrameDetection { class: 0, score, rectangle: object.rectangle }]
}

fn metric(scores: &Scores, name: &str) -> Option<f64> {
    scores.metrics.iter().find(|(known, _)| *known == name).unwrap().1
}

/// One episode finds all, one nothing and one half: mean 0.5 over episodes, deviation 0.5, Student's t 4.303 with 2 degrees of freedom.
/// Over all frames there are six objects, three of which are found: 51 of 101 recall points.
#[test]
fn a_mean_over_episodes_has_an_interval_and_differs_from_the_score_over_all_frames() {
    let library = library(SHAPE);
    let mut scoring = scoring(library.clone(), &Ledger::default());
    for found in [2, 0, 1] {
        scoring.begin_episode(&[CLASS]);
        for frame in 1..3 {
            let found = if frame <= found { correct(&library, frame, 0.9) } else { Vec::new() };
            scoring.frame(query(frame), &found);
        }
        scoring.end_episode();
    }
    let scores = scoring.finish();
    assert!((metric(&scores, "map50").unwrap() - 51.0 / 101.0).abs() < 1e-12);
    let mean = (1.0 + 0.0 + 51.0 / 101.0) / 3.0;
    assert!((metric(&scores, "episode_map50").unwrap() - mean).abs() < 1e-12);
    let (name, interval) = scores.intervals[0];
    let deviation = ((1.0 - mean).powi(2) + mean.powi(2) + (51.0 / 101.0 - mean).powi(2)) / 2.0;
    assert_eq!((name, interval.episodes), ("episode_map50", 3));
    assert!((interval.half_width - 4.303 * (deviation / 3.0f64).sqrt()).abs() < 1e-9, "{interval:?}");
    // Found in 2, 0 and 1 of 2 frames.
    assert_eq!(metric(&scores, "st_iou"), Some(0.5));
    assert_eq!(metric(&scores, "episode_st_iou"), Some(0.5));
}

/// Scores of 100 episodes of two ways, of which the frame shows the first, with these detections: way and score.
fn of_two_ways(found: impl Fn(usize) -> Vec<(usize, f32)>) -> Scores {
    let library = library(SHAPE);
    let mut scoring = scoring(library.clone(), &Ledger::default());
    for number in 0..100 {
        scoring.begin_episode(&[CLASS, CLASS - 1]);
        let at = correct(&library, 1, 0.0)[0];
        let all = found(number).into_iter().map(|(class, score)| FrameDetection { class, score, ..at });
        scoring.frame(query(1), &all.collect::<Vec<_>>());
        scoring.end_episode();
    }
    scoring.finish()
}

/// A right class in each of 100 frames: average precision 1. Permuted, about half of the frames keep their class, and the
/// other objects are missed: 50 of 101 recall points. A detector that gives both classes the same score knows none.
#[test]
fn permuted_classes_are_the_chance_of_a_detector() {
    let right = of_two_ways(|_| vec![(0, 0.9)]);
    let chance = metric(&right, PERMUTED).unwrap();
    let interval = right.intervals.iter().find(|(name, _)| *name == PERMUTED).unwrap().1;
    assert_eq!((metric(&right, "map50"), interval.episodes), (Some(1.0), 20));
    assert!((chance - 0.5).abs() < 0.05, "{chance}");
    // Binomial: a deviation of 0.05, of which Student's t covers 2.093.
    assert!((0.05..0.17).contains(&interval.half_width), "{interval:?}");
    assert_eq!(chance, metric(&of_two_ways(|_| vec![(0, 0.9)]), PERMUTED).unwrap(), "the generator is seeded");
    let blind = of_two_ways(|number| vec![(number % 2, 0.9), (1 - number % 2, 0.8)]);
    let (found, chance) = (metric(&blind, "map50").unwrap(), metric(&blind, PERMUTED).unwrap());
    assert!((found - chance).abs() < 0.1, "{found} {chance}");
}

#[test]
fn one_class_or_too_many_detections_have_no_permuted_classes() {
    let library = library(SHAPE);
    let settings = FewshotDetection { validation_predictions: 100, ..FewshotDetection::default() };
    for (classes, frames, has_chance) in
        [(vec![CLASS], 1, false), (vec![CLASS, 0], 100, true), (vec![CLASS, 0], 101, false)]
    {
        let library = Arc::new(library.clone());
        let mut scoring = Scoring::new(library.clone(), &settings, &Buffers::new(&settings, None), &Ledger::default());
        for _ in 0..frames {
            scoring.begin_episode(&classes);
            scoring.frame(query(1), &correct(&library, 1, 0.9));
            scoring.end_episode();
        }
        assert_eq!(metric(&scoring.finish(), PERMUTED).is_some(), has_chance, "{classes:?} {frames}");
    }
}

#[test]
fn the_next_validation_starts_empty() {
    let library = library(SHAPE);
    let ledger = Ledger::default();
    let mut scoring = scoring(library.clone(), &ledger);
    let mut once = || {
        for _ in 0..2 {
            scoring.begin_episode(&[CLASS]);
            scoring.frame(query(1), &correct(&library, 1, 0.9));
            scoring.end_episode();
        }
        scoring.finish()
    };
    assert_eq!(once(), once());
    let owners = ledger.read();
    assert!(owners.iter().all(|owner| owner.bytes == 0 && !owner.exceeds_cap()));
    // Episodes of one class have no permuted ones.
    assert!(owners.iter().all(|owner| (owner.peak_bytes > 0) == (owner.name != "permuted_predictions")));
}

#[test]
fn ignored_objects_do_not_count_in_st_iou() {
    let mut library = library(SHAPE);
    let frame = &mut library.videos[CLASS * SHAPE.videos].frames[1];
    frame.path = PathBuf::from("seen");
    frame.objects[0].ignored = Some(IgnoreReason::Difficult);
    let mut scoring = scoring(library.clone(), &Ledger::default());
    scoring.begin_episode(&[CLASS]);
    scoring.frame(query(1), &correct(&library, 1, 0.9));
    scoring.end_episode();
    let scores = scoring.finish();
    assert_eq!((metric(&scores, "map50"), metric(&scores, "st_iou")), (None, None));
}

#[test]
fn fixed_classes_have_a_precision_each_and_count_what_their_objects_were_taken_for() {
    let (library, settings, ledger) = (library(SHAPE), FewshotDetection::default(), Ledger::default());
    let buffers = Buffers::new(&settings, Some(2));
    let mut scoring = Scoring::new(Arc::new(library.clone()), &settings, &buffers, &ledger);
    // The object is found, taken for the other class, not found, and found below the presence threshold.
    for (frame, way, score) in [(1, 0, 0.9), (2, 1, 0.8), (3, 0, 0.0), (4, 0, 0.1)] {
        scoring.begin_episode(&[CLASS, CLASS + 1]);
        let found = FrameDetection { class: way, ..correct(&library, frame, score)[0] };
        scoring.frame(query(frame), &if score > 0.0 { vec![found] } else { vec![] });
        scoring.end_episode();
    }
    assert!(ledger.read().iter().all(|owner| !owner.exceeds_cap()));
    let scores = scoring.finish();
    let [first, second] = &scores.classes[..] else { panic!("{:?}", scores.classes) };
    let taken_for = [("(not found)".to_owned(), 2), ("class 6".to_owned(), 1)];
    assert_eq!((&*first.class, first.items, first.correct, &first.taken_for[..]), ("class 5", 4, 1, &taken_for[..]));
    // Two of four objects are found, the first of them best: 51 of 101 recall points.
    assert!((first.ap50.unwrap() - 51.0 / 101.0).abs() < 1e-12);
    assert_eq!((second.items, second.ap50), (0, None));
    assert_eq!(metric(&scores, "map50"), first.ap50);
    assert_eq!((metric(&scores, "episode_map50"), metric(&scores, "st_iou")), (None, Some(0.25)));
    assert!(ledger.read().iter().all(|owner| owner.bytes == 0));
}
