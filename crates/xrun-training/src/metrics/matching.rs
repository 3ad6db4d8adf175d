//! Matching of detections and objects of an image by COCO's rules, at ten IoU thresholds and for objects of each size.
//!
//! As in `COCOeval.evaluateImg` of pycocotools for bounding boxes: the [`DETECTIONS_MAX`] best detections of each class are matched
//! in descending order of score, each to the unmatched object with the largest IoU; to an ignored one only if no other matches.

use xrun_core::dataset::sample::{BoundingBox, IgnoreReason};

/// Maximum number of detections of a class in an image that count (pycocotools' largest `maxDets`).
pub const DETECTIONS_MAX: usize = 100;
/// Number of IoU thresholds, 0.50:0.05:0.95.
pub const IOU_THRESHOLD_COUNT: usize = 10;
/// Minimum and maximum area in square pixels of objects of all sizes, small, medium and large ones.
pub const AREA_RANGES: [(f64, f64); 4] =
    [(0.0, 1e10), (0.0, 32.0 * 32.0), (32.0 * 32.0, 96.0 * 96.0), (96.0 * 96.0, 1e10)];

/// Detection of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detection {
    /// Index of the class.
    pub class: u32,
    /// Confidence; only the order matters.
    pub score: f32,
    /// Predicted box in pixels.
    pub rectangle: BoundingBox,
}

/// Annotated object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// Index of the class.
    pub class: u32,
    /// True box in pixels.
    pub rectangle: BoundingBox,
    /// Area in square pixels, which may be smaller than that of the box.
    pub area: f32,
    /// Reason why a detection of this object counts neither as correct nor as wrong; `None` for ordinary objects.
    pub ignored: Option<IgnoreReason>,
}

/// Outcomes of a detection, indexed by [`AREA_RANGES`]; bit t is the one at IoU threshold t. A detection with neither bit is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcomes {
    /// The detection matches an object.
    pub matched: [u16; AREA_RANGES.len()],
    /// The detection counts neither as correct nor as wrong.
    pub ignored: [u16; AREA_RANGES.len()],
}

/// Detection with its outcomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatchedDetection {
    /// Index of the class.
    pub class: u32,
    /// Confidence.
    pub score: f32,
    /// Number of detections of the class in the image with a higher score, below [`DETECTIONS_MAX`].
    pub rank: u8,
    /// Outcome at each threshold and size.
    pub outcomes: Outcomes,
}

/// Detections and objects of an image after matching.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchedImage {
    /// Detections in descending order of score, equal scores in the given order.
    pub detections: Vec<MatchedDetection>,
    /// Class of each object, and in which of [`AREA_RANGES`] it counts.
    pub truths: Vec<(u32, [bool; AREA_RANGES.len()])>,
}

/// Matches the detections and objects of an image. Detections whose score is not finite are ignored.
pub fn match_image(detections: &[Detection], truths: &[Truth]) -> MatchedImage {
    let mut order: Vec<&Detection> = detections.iter().filter(|detection| detection.score.is_finite()).collect();
    order.sort_by(|a, b| b.score.total_cmp(&a.score));
    let counts_at_size: Vec<[bool; AREA_RANGES.len()]> = truths.iter().map(counted_sizes).collect();
    let mut taken = vec![[0u16; AREA_RANGES.len()]; truths.len()];
    let mut previous: Vec<(u32, usize)> = Vec::new();
    let mut all = Vec::with_capacity(order.len());
    for detection in order {
        let Some(rank) = rank(&mut previous, detection.class) else { continue };
        let overlaps: Vec<(usize, f64)> = (truths.iter().enumerate())
            .filter(|(_, truth)| truth.class == detection.class)
            .map(|(index, truth)| (index, iou_or_coverage(detection, truth)))
            .collect();
        let area = area(&detection.rectangle);
        let mut outcomes = Outcomes { matched: [0; AREA_RANGES.len()], ignored: [0; AREA_RANGES.len()] };
        for (size, (min, max)) in AREA_RANGES.into_iter().enumerate() {
            for threshold in 0..IOU_THRESHOLD_COUNT {
                let bit = 1 << threshold;
                let does_count = |index: usize| counts_at_size[index][size];
                let is_free =
                    |index: usize| truths[index].ignored == Some(IgnoreReason::Crowd) || taken[index][size] & bit == 0;
                match best(&overlaps, threshold, does_count, is_free) {
                    Some(index) => {
                        taken[index][size] |= bit;
                        if does_count(index) { outcomes.matched[size] |= bit } else { outcomes.ignored[size] |= bit }
                    }
                    // A detection of another size is not wrong at this one.
                    None if area < min || area > max => outcomes.ignored[size] |= bit,
                    None => {}
                }
            }
        }
        all.push(MatchedDetection { class: detection.class, score: detection.score, rank, outcomes });
    }
    MatchedImage { detections: all, truths: truths.iter().map(|truth| truth.class).zip(counts_at_size).collect() }
}

/// Sizes at which an object counts.
fn counted_sizes(truth: &Truth) -> [bool; AREA_RANGES.len()] {
    let area = f64::from(truth.area);
    AREA_RANGES.map(|(min, max)| truth.ignored.is_none() && area >= min && area <= max)
}

/// Number of previous detections of the class; `None` from [`DETECTIONS_MAX`] on.
fn rank(previous: &mut Vec<(u32, usize)>, class: u32) -> Option<u8> {
    let index = previous.iter().position(|(known, _)| *known == class).unwrap_or_else(|| {
        previous.push((class, 0));
        previous.len() - 1
    });
    let rank = previous[index].1;
    previous[index].1 += 1;
    (rank < DETECTIONS_MAX).then_some(rank as u8)
}

/// Unmatched object with the largest overlap above the threshold; one that counts, or else an ignored one.
fn best(
    overlaps: &[(usize, f64)],
    threshold: usize,
    does_count: impl Fn(usize) -> bool,
    is_free: impl Fn(usize) -> bool,
) -> Option<usize> {
    // As numpy's linspace computes them for pycocotools: 0.85 and not 0.8500000000000001.
    let min = if threshold + 1 == IOU_THRESHOLD_COUNT { 0.95 } else { 0.5 + threshold as f64 * ((0.95 - 0.5) / 9.0) };
    [true, false].into_iter().find_map(|counted| {
        let mut best: Option<(usize, f64)> = None;
        for &(index, overlap) in overlaps {
            // The last of equal ones, as in pycocotools.
            let enough = overlap >= best.map_or(min.min(1.0 - 1e-10), |(_, overlap)| overlap);
            if enough && does_count(index) == counted && is_free(index) {
                best = Some((index, overlap));
            }
        }
        best.map(|(index, _)| index)
    })
}

fn area(rectangle: &BoundingBox) -> f64 {
    let [width, height] = [(rectangle.left, rectangle.right), (rectangle.top, rectangle.bottom)]
        .map(|(from, to)| f64::from(to) - f64::from(from));
    width * height
}

/// IoU in double precision; for crowds the fraction of the detection that is inside.
fn iou_or_coverage(detection: &Detection, truth: &Truth) -> f64 {
    let sides = |r: &BoundingBox| [r.left, r.top, r.right, r.bottom].map(f64::from);
    let ([al, at, ar, ab], [bl, bt, br, bb]) = (sides(&detection.rectangle), sides(&truth.rectangle));
    let (width, height) = (ar.min(br) - al.max(bl), ab.min(bb) - at.max(bt));
    if !(width > 0.0 && height > 0.0) {
        return 0.0;
    }
    let (one, other) = (area(&detection.rectangle), area(&truth.rectangle));
    let crowd = truth.ignored == Some(IgnoreReason::Crowd);
    let union = if crowd { one } else { one + other - width * height };
    width * height / union
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square(left: f32, top: f32, side: f32) -> BoundingBox {
        BoundingBox { left, top, right: left + side, bottom: top + side }
    }

    fn detection(score: f32, rectangle: BoundingBox) -> Detection {
        Detection { class: 0, score, rectangle }
    }

    fn truth(rectangle: BoundingBox, ignored: Option<IgnoreReason>) -> Truth {
        Truth { class: 0, rectangle, area: rectangle.area(), ignored }
    }

    /// Outcomes at IoU 0.5: found, ignored.
    fn at_half(image: &MatchedImage) -> Vec<(bool, bool)> {
        let bit = |word: u16| word & 1 != 0;
        image.detections.iter().map(|one| (bit(one.outcomes.matched[0]), bit(one.outcomes.ignored[0]))).collect()
    }

    /// A small detection in a large difficult object: the IoU is 400 / 40000, a false positive by VOC's rules. In a crowd COCO ignores
    /// it, because all of it is inside.
    #[test]
    fn a_small_detection_inside_a_difficult_object_is_wrong_and_inside_a_crowd_is_ignored() {
        let inside = [detection(0.9, square(50.0, 50.0, 20.0))];
        let outcomes = |ignored| {
            at_half(&match_image(
                &inside,
                &[truth(square(0.0, 0.0, 200.0), Some(ignored)), truth(square(300.0, 0.0, 20.0), None)],
            ))
        };
        assert_eq!(outcomes(IgnoreReason::Difficult), [(false, false)]);
        assert_eq!(outcomes(IgnoreReason::Crowd), [(false, true)]);
    }

    #[test]
    fn a_difficult_object_excuses_one_detection_and_a_crowd_any_number() {
        let twice = [detection(0.9, square(0.0, 0.0, 20.0)), detection(0.8, square(1.0, 0.0, 20.0))];
        let outcomes = |ignored| at_half(&match_image(&twice, &[truth(square(0.0, 0.0, 20.0), Some(ignored))]));
        assert_eq!(outcomes(IgnoreReason::Difficult), [(false, true), (false, false)]);
        assert_eq!(outcomes(IgnoreReason::Crowd), [(false, true), (false, true)]);
    }

    #[test]
    fn a_hundred_detections_of_a_class_count() {
        let mut many: Vec<Detection> = (0..150).map(|n| detection(n as f32, square(0.0, 0.0, 20.0))).collect();
        many.push(Detection { class: 1, ..many[0] });
        let matched = match_image(&many, &[]);
        assert_eq!(matched.detections.len(), DETECTIONS_MAX + 1);
        assert_eq!((matched.detections[0].score, matched.detections[99].score), (149.0, 50.0));
        assert_eq!((matched.detections[99].rank, matched.detections[100].rank), (99, 0));
    }
}
