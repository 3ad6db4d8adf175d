//! Average precision as COCO defines it, from 16 bytes a detection.
//!
//! IoU 0.50:0.05:0.95, 101 recall points, best detections first (pycocotools, `COCOeval`, bounding boxes, all areas).
//! Each picture is matched at once for all ten thresholds, so that neither boxes nor truths are kept.

use std::collections::BTreeMap;

use crate::bounded::HeldBytes;
use crate::data::sample::Rectangle;
use crate::experiment::sections::Limits;
use crate::memory::ledger::{Cap, Holding, Ledger, Policy};
use crate::results::format::PlannedOwner;

const PREDICTIONS: &str = "validation_predictions";
const THRESHOLDS: usize = 10;
const RECALL_POINTS: usize = 101;

/// Something found, of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detection {
    pub class: u32,
    pub score: f32,
    pub rectangle: Rectangle,
}

/// Something to be found. `ignore`: neither right nor wrong to find (COCO's `iscrowd`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    pub class: u32,
    pub rectangle: Rectangle,
    pub ignore: bool,
}

/// What is kept of a detection: bit `t` says what it is at threshold `t`.
#[derive(Clone, Copy, Debug)]
struct Kept {
    class: u32,
    score: f32,
    /// Order of arrival, which decides between equal scores.
    number: u32,
    matched: u16,
    ignored: u16,
}

impl HeldBytes for Kept {
    fn held_bytes(&self) -> u64 {
        size_of::<Self>() as u64
    }
}

/// Scores over all pictures that were added.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DetectionScores {
    /// Mean over classes at IoU 0.5; `None` when there was nothing to find.
    pub map50: Option<f64>,
    /// Mean over classes and over IoU 0.50:0.05:0.95.
    pub map: Option<f64>,
    /// Mean over classes of the share found at IoU 0.5, whatever the score.
    pub recall: Option<f64>,
    /// Detections that were left out because `limits.validation_predictions` was reached.
    pub left_out: u64,
}

/// Takes pictures one by one. Policy at the cap: the detections with the lowest scores go.
#[derive(Debug)]
pub struct AveragePrecision {
    kept: Vec<Kept>,
    /// Things to find, by class; as many entries as there are classes.
    truths: BTreeMap<u32, u64>,
    next: u32,
    left_out: u64,
    /// The best score that was left out: no worse one may take its place.
    left_out_best: Option<f32>,
    capacity: usize,
    holding: Holding,
}

/// The owner that [`AveragePrecision::new`] registers.
pub fn planned_owners(limits: &Limits) -> Vec<PlannedOwner> {
    vec![PlannedOwner::on_host(
        PREDICTIONS,
        Policy::Reduce,
        Cap { items: limits.validation_predictions as u64, bytes: cap(limits.validation_predictions).bytes },
        "`limits.validation_predictions`",
    )]
}

fn cap(predictions: usize) -> Cap {
    Cap { items: predictions as u64, bytes: (predictions * size_of::<Kept>()) as u64 }
}

impl AveragePrecision {
    pub fn new(ledger: &Ledger, predictions: usize) -> Self {
        let holding = ledger.register(PREDICTIONS, cap(predictions), Policy::Reduce);
        Self {
            kept: Vec::new(),
            truths: BTreeMap::new(),
            next: 0,
            left_out: 0,
            left_out_best: None,
            capacity: predictions,
            holding,
        }
    }

    /// Adds one picture: what was found in it, and what there was to find.
    pub fn add(&mut self, detections: &[Detection], truths: &[Truth]) {
        for truth in truths.iter().filter(|truth| !truth.ignore) {
            *self.truths.entry(truth.class).or_default() += 1;
        }
        let mut order: Vec<&Detection> = detections.iter().filter(|found| found.score.is_finite()).collect();
        order.sort_by(|a, b| b.score.total_cmp(&a.score));
        let mut taken = vec![0u16; truths.len()];
        for found in order {
            let mut kept = Kept { class: found.class, score: found.score, number: self.next, matched: 0, ignored: 0 };
            self.next = self.next.wrapping_add(1);
            for threshold in 0..THRESHOLDS {
                let bit = 1 << threshold;
                match best_match(found, truths, &taken, threshold) {
                    Some(at) if truths[at].ignore => kept.ignored |= bit,
                    Some(at) => {
                        kept.matched |= bit;
                        taken[at] |= bit;
                    }
                    None => {}
                }
            }
            self.keep(kept);
        }
        let held = self.kept.len();
        self.holding.set(held as u64, (held * size_of::<Kept>()) as u64);
    }

    fn keep(&mut self, kept: Kept) {
        if self.left_out_best.is_some_and(|best| kept.score <= best) {
            self.left_out += 1;
            return;
        }
        if self.kept.len() == self.kept.capacity() {
            // By halves up to the cap and not beyond it.
            let more = (self.kept.len() / 2).max(64).min(self.capacity - self.kept.len());
            self.kept.reserve_exact(more);
        }
        if self.kept.len() >= self.capacity {
            // An eighth goes at a time, so that the cost is spread.
            self.sort();
            let rest = (self.capacity - (self.capacity / 8).max(1)).min(self.kept.len());
            self.left_out += (self.kept.len() - rest) as u64;
            self.left_out_best = self.kept.get(rest).map(|best| best.score);
            self.kept.truncate(rest);
        }
        self.kept.push(kept);
    }

    /// Best first; the earlier one of two with the same score, as a stable sort has it.
    fn sort(&mut self) {
        self.kept.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.number.cmp(&b.number)));
    }

    /// The scores over everything added; empties itself for the next validation.
    pub fn finish(&mut self) -> DetectionScores {
        self.sort();
        let mut sums = [0.0; THRESHOLDS];
        let mut recalls = 0.0;
        for (class, count) in &self.truths {
            let own: Vec<&Kept> = self.kept.iter().filter(|kept| kept.class == *class).collect();
            for (threshold, sum) in sums.iter_mut().enumerate() {
                let (precision, recall) = average(&own, threshold, *count);
                *sum += precision;
                if threshold == 0 {
                    recalls += recall;
                }
            }
        }
        let classes = self.truths.len() as f64;
        let mean = |sum: f64| (classes > 0.0).then(|| sum / classes);
        let scores = DetectionScores {
            map50: mean(sums[0]),
            map: mean(sums.iter().sum::<f64>() / THRESHOLDS as f64),
            recall: mean(recalls),
            left_out: self.left_out,
        };
        self.kept = Vec::new();
        self.truths.clear();
        (self.next, self.left_out, self.left_out_best) = (0, 0, None);
        self.holding.set(0, 0);
        scores
    }
}

/// The best free truth of the class that overlaps enough; an ignored one only when there is no other. Ignored ones can be
/// taken many times.
fn best_match(found: &Detection, truths: &[Truth], taken: &[u16], threshold: usize) -> Option<usize> {
    // As numpy's linspace computes them for pycocotools: 0.85 and not 0.8500000000000001.
    let least = if threshold + 1 == THRESHOLDS { 0.95 } else { 0.5 + threshold as f64 * ((0.95 - 0.5) / 9.0) };
    let mut best: Option<(usize, f64)> = None;
    for ignored in [false, true] {
        for (at, truth) in truths.iter().enumerate() {
            let free = ignored || taken[at] & (1 << threshold) == 0;
            if truth.class != found.class || truth.ignore != ignored || !free {
                continue;
            }
            let overlap = overlap(found, truth);
            // Of equal ones the later, as in pycocotools.
            if overlap >= best.map_or(least.min(1.0 - 1e-10), |(_, overlap)| overlap) {
                best = Some((at, overlap));
            }
        }
        if best.is_some() {
            break;
        }
    }
    best.map(|(at, _)| at)
}

/// IoU in double precision; for ignored regions the share of the detection that is inside.
fn overlap(found: &Detection, truth: &Truth) -> f64 {
    let sides = |r: &Rectangle| [r.left, r.top, r.right, r.bottom].map(f64::from);
    let ([al, at, ar, ab], [bl, bt, br, bb]) = (sides(&found.rectangle), sides(&truth.rectangle));
    let (width, height) = (ar.min(br) - al.max(bl), ab.min(bb) - at.max(bt));
    if !(width > 0.0 && height > 0.0) {
        return 0.0;
    }
    let (one, other) = ((ar - al) * (ab - at), (br - bl) * (bb - bt));
    let union = if truth.ignore { one } else { one + other - width * height };
    width * height / union
}

/// Mean precision over 101 recall points, and the recall reached. `own` is sorted, best first.
fn average(own: &[&Kept], threshold: usize, truths: u64) -> (f64, f64) {
    let bit = 1u16 << threshold;
    let (mut right, mut wrong) = (0u64, 0u64);
    let mut curve: Vec<(f64, f64)> = Vec::with_capacity(own.len());
    for kept in own.iter().filter(|kept| kept.ignored & bit == 0) {
        if kept.matched & bit != 0 {
            right += 1
        } else {
            wrong += 1
        }
        curve.push((right as f64 / truths as f64, right as f64 / (right + wrong) as f64));
    }
    // Precision never rises again: the best that is reached at this recall or a higher one.
    for at in (1..curve.len()).rev() {
        curve[at - 1].1 = curve[at - 1].1.max(curve[at].1);
    }
    let mut sum = 0.0;
    for point in 0..RECALL_POINTS {
        // As numpy's linspace computes them for pycocotools.
        let recall = if point + 1 == RECALL_POINTS { 1.0 } else { point as f64 * 0.01 };
        let at = curve.partition_point(|(reached, _)| *reached < recall);
        sum += curve.get(at).map_or(0.0, |(_, precision)| *precision);
    }
    (sum / RECALL_POINTS as f64, right as f64 / truths as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(left: f32, width: f32) -> Rectangle {
        Rectangle { left, top: 0.0, right: left + width, bottom: 10.0 }
    }

    fn found(score: f32, left: f32) -> Detection {
        Detection { class: 0, score, rectangle: place(left, 10.0) }
    }

    fn truth(left: f32) -> Truth {
        Truth { class: 0, rectangle: place(left, 10.0), ignore: false }
    }

    fn scores(pictures: &[(Vec<Detection>, Vec<Truth>)]) -> DetectionScores {
        let mut all = AveragePrecision::new(&Ledger::default(), 1000);
        pictures.iter().for_each(|(detections, truths)| all.add(detections, truths));
        all.finish()
    }

    #[test]
    fn a_perfect_detection_scores_one_and_a_miss_nothing() {
        let perfect = scores(&[(vec![found(0.9, 0.0)], vec![truth(0.0)])]);
        assert_eq!((perfect.map50, perfect.map, perfect.recall), (Some(1.0), Some(1.0), Some(1.0)));
        let missed = scores(&[(vec![], vec![truth(0.0)])]);
        assert_eq!((missed.map50, missed.recall), (Some(0.0), Some(0.0)));
        assert_eq!(scores(&[(vec![found(0.9, 0.0)], vec![])]).map50, None, "nothing was to be found");
    }

    /// By hand. Two truths; wrong at 0.9, right at 0.8: recall 0.5 at precision 0.5, so 51 of 101 points at 0.5.
    #[test]
    fn a_surer_false_one_halves_the_precision() {
        let scores = scores(&[(vec![found(0.9, 50.0), found(0.8, 0.0)], vec![truth(0.0), truth(100.0)])]);
        assert!((scores.map50.unwrap() - 51.0 * 0.5 / 101.0).abs() < 1e-12);
        assert_eq!(scores.recall, Some(0.5));
    }

    /// By hand. Shifted by 2 of 10: IoU 8/12 = 0.667, so right at 0.50, 0.55, 0.60, 0.65: four of ten thresholds.
    #[test]
    fn a_shifted_box_is_right_at_the_thresholds_below_its_overlap() {
        let scores = scores(&[(vec![found(0.9, 2.0)], vec![truth(0.0)])]);
        assert!((scores.map.unwrap() - 0.4).abs() < 1e-12, "{scores:?}");
    }

    #[test]
    fn one_truth_is_found_once_and_an_ignored_one_does_not_count() {
        let twice = scores(&[(vec![found(0.9, 0.0), found(0.8, 0.0)], vec![truth(0.0), truth(100.0)])]);
        assert!((twice.map50.unwrap() - 51.0 / 101.0).abs() < 1e-12, "the second is wrong, at no recall: {twice:?}");
        let crowd = Truth { ignore: true, ..truth(50.0) };
        let ignored = scores(&[(vec![found(0.9, 50.0), found(0.8, 0.0)], vec![truth(0.0), crowd])]);
        assert_eq!(ignored.map50, Some(1.0));
    }

    #[derive(serde::Deserialize)]
    struct Fixture {
        pictures: Vec<FixturePicture>,
        expected: Expected,
    }

    #[derive(serde::Deserialize)]
    struct FixturePicture {
        detections: Vec<(u32, f32, [f32; 4])>,
        truths: Vec<(u32, [f32; 4], bool)>,
    }

    #[derive(serde::Deserialize)]
    struct Expected {
        map50: f64,
        map: f64,
        recall: f64,
    }

    /// `tests/reference/coco_map.py` made the file with pycocotools.
    #[test]
    fn the_scores_are_those_of_pycocotools() {
        let fixture: Fixture = serde_json::from_str(include_str!("../../tests/reference/coco_map.json")).unwrap();
        let rectangle =
            |[left, top, width, height]: [f32; 4]| Rectangle { left, top, right: left + width, bottom: top + height };
        let mut all = AveragePrecision::new(&Ledger::default(), 100_000);
        for picture in &fixture.pictures {
            let detections: Vec<Detection> = picture
                .detections
                .iter()
                .map(|(class, score, place)| Detection { class: *class, score: *score, rectangle: rectangle(*place) })
                .collect();
            let truths: Vec<Truth> = picture
                .truths
                .iter()
                .map(|(class, place, ignore)| Truth { class: *class, rectangle: rectangle(*place), ignore: *ignore })
                .collect();
            all.add(&detections, &truths);
        }
        let scores = all.finish();
        for (found, expected) in [
            (scores.map50, fixture.expected.map50),
            (scores.map, fixture.expected.map),
            (scores.recall, fixture.expected.recall),
        ] {
            assert!((found.unwrap() - expected).abs() < 1e-9, "{found:?}, pycocotools {expected}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_added_the_cap_holds_and_the_best_stay(
            scores in prop::collection::vec(prop_oneof![9 => 0f32..1.0, 1 => Just(f32::NAN)], 0..300),
        ) {
            let ledger = Ledger::default();
            let mut all = AveragePrecision::new(&ledger, 100);
            for score in &scores {
                all.add(&[found(*score, 0.0)], &[truth(0.0)]);
                prop_assert!(!ledger.read()[0].exceeded());
            }
            let finite = scores.iter().filter(|score| score.is_finite()).count() as u64;
            let result = all.finish();
            prop_assert!(result.left_out <= finite.saturating_sub(80));
            if finite > 0 {
                prop_assert!((0.0..=1.0).contains(&result.map.unwrap()));
            }
        }
    }
}
