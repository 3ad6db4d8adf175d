//! Which detections of a picture are right, by COCO's rules? At ten overlaps, and for objects of each size.
//!
//! As `COCOeval.evaluateImg` of pycocotools has it, bounding boxes: of each class the [`DETECTIONS_MAX`] best, the best
//! first; each takes the free object that it overlaps most, an ignored one only when there is no other.

use xrun_core::dataset::sample::{BoundingBox, IgnoreReason};

/// Detections of a class in a picture that count (pycocotools' largest `maxDets`).
pub const DETECTIONS_MAX: usize = 100;
/// IoU 0.50:0.05:0.95.
pub const THRESHOLDS: usize = 10;
/// Objects of all sizes, small, medium and large: least and largest area in square pixels of the picture.
pub const SIZES: [(f64, f64); 4] = [(0.0, 1e10), (0.0, 32.0 * 32.0), (32.0 * 32.0, 96.0 * 96.0), (96.0 * 96.0, 1e10)];

/// Something found, of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detection {
    /// The number of its class.
    pub class: u32,
    /// How sure the model is; only the order counts.
    pub score: f32,
    /// Where it was found, in pixels.
    pub rectangle: BoundingBox,
}

/// Something to be found, or neither right nor wrong to find.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// The number of its class.
    pub class: u32,
    /// Where it is, in pixels.
    pub rectangle: BoundingBox,
    /// Square pixels; need not be those of the box.
    pub area: f32,
    /// Why it is neither right nor wrong to find it; `None` where it is to be found.
    pub ignored: Option<IgnoreReason>,
}

/// What a detection is. Bit `t` of each word is for overlap `t`; a word for each of [`SIZES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// It found an object.
    pub found: [u16; SIZES.len()],
    /// Neither right nor wrong.
    pub ignored: [u16; SIZES.len()],
}

/// A detection and what it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marked {
    /// The number of its class.
    pub class: u32,
    /// How sure the model is.
    pub score: f32,
    /// How many of its class in its picture are better: below [`DETECTIONS_MAX`].
    pub rank: u8,
    /// What it found.
    pub marks: Marks,
}

/// A picture's detections, and what there was to find in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matched {
    /// Best first; of equal scores the one that was given first.
    pub detections: Vec<Marked>,
    /// For each object its class, and in which of [`SIZES`] it is to be found.
    pub truths: Vec<(u32, [bool; SIZES.len()])>,
}

/// Matches one picture. Scores that are not finite are left out.
pub fn matched(detections: &[Detection], truths: &[Truth]) -> Matched {
    let mut order: Vec<&Detection> = detections.iter().filter(|found| found.score.is_finite()).collect();
    order.sort_by(|a, b| b.score.total_cmp(&a.score));
    let asked: Vec<[bool; SIZES.len()]> = truths.iter().map(asked_for).collect();
    let mut taken = vec![[0u16; SIZES.len()]; truths.len()];
    let mut better: Vec<(u32, usize)> = Vec::new();
    let mut all = Vec::with_capacity(order.len());
    for found in order {
        let Some(rank) = rank(&mut better, found.class) else { continue };
        let overlaps: Vec<(usize, f64)> = (truths.iter().enumerate())
            .filter(|(_, truth)| truth.class == found.class)
            .map(|(at, truth)| (at, overlap(found, truth)))
            .collect();
        let area = area(&found.rectangle);
        let mut marks = Marks { found: [0; SIZES.len()], ignored: [0; SIZES.len()] };
        for (size, (least, largest)) in SIZES.into_iter().enumerate() {
            for threshold in 0..THRESHOLDS {
                let bit = 1 << threshold;
                let is_asked = |at: usize| asked[at][size];
                let is_free = |at: usize| truths[at].ignored == Some(IgnoreReason::Crowd) || taken[at][size] & bit == 0;
                match best(&overlaps, threshold, is_asked, is_free) {
                    Some(at) => {
                        taken[at][size] |= bit;
                        if is_asked(at) { marks.found[size] |= bit } else { marks.ignored[size] |= bit }
                    }
                    // Of another size than is asked for: it is not wrong here.
                    None if area < least || area > largest => marks.ignored[size] |= bit,
                    None => {}
                }
            }
        }
        all.push(Marked { class: found.class, score: found.score, rank, marks });
    }
    Matched { detections: all, truths: truths.iter().map(|truth| truth.class).zip(asked).collect() }
}

/// At which sizes an object is to be found.
fn asked_for(truth: &Truth) -> [bool; SIZES.len()] {
    let area = f64::from(truth.area);
    SIZES.map(|(least, largest)| truth.ignored.is_none() && area >= least && area <= largest)
}

/// How many of the class came before; `None` when they were enough.
fn rank(better: &mut Vec<(u32, usize)>, class: u32) -> Option<u8> {
    let at = better.iter().position(|(known, _)| *known == class).unwrap_or_else(|| {
        better.push((class, 0));
        better.len() - 1
    });
    let rank = better[at].1;
    better[at].1 += 1;
    (rank < DETECTIONS_MAX).then_some(rank as u8)
}

/// The object that overlaps most and enough; one that is asked for, or else one to ignore.
fn best(
    overlaps: &[(usize, f64)],
    threshold: usize,
    is_asked: impl Fn(usize) -> bool,
    is_free: impl Fn(usize) -> bool,
) -> Option<usize> {
    // As numpy's linspace computes them for pycocotools: 0.85 and not 0.8500000000000001.
    let least = if threshold + 1 == THRESHOLDS { 0.95 } else { 0.5 + threshold as f64 * ((0.95 - 0.5) / 9.0) };
    [true, false].into_iter().find_map(|asked| {
        let mut best: Option<(usize, f64)> = None;
        for &(at, overlap) in overlaps {
            // Of equal ones the later, as in pycocotools.
            let enough = overlap >= best.map_or(least.min(1.0 - 1e-10), |(_, overlap)| overlap);
            if enough && is_asked(at) == asked && is_free(at) {
                best = Some((at, overlap));
            }
        }
        best.map(|(at, _)| at)
    })
}

fn area(place: &BoundingBox) -> f64 {
    (f64::from(place.right) - f64::from(place.left)) * (f64::from(place.bottom) - f64::from(place.top))
}

/// IoU in double precision; for crowds the share of the detection that is inside.
fn overlap(found: &Detection, truth: &Truth) -> f64 {
    let sides = |r: &BoundingBox| [r.left, r.top, r.right, r.bottom].map(f64::from);
    let ([al, at, ar, ab], [bl, bt, br, bb]) = (sides(&found.rectangle), sides(&truth.rectangle));
    let (width, height) = (ar.min(br) - al.max(bl), ab.min(bb) - at.max(bt));
    if !(width > 0.0 && height > 0.0) {
        return 0.0;
    }
    let (one, other) = (area(&found.rectangle), area(&truth.rectangle));
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

    fn found(score: f32, rectangle: BoundingBox) -> Detection {
        Detection { class: 0, score, rectangle }
    }

    fn truth(rectangle: BoundingBox, ignored: Option<IgnoreReason>) -> Truth {
        Truth { class: 0, rectangle, area: rectangle.area(), ignored }
    }

    fn at_half(matched: &Matched) -> Vec<(bool, bool)> {
        let bit = |word: u16| word & 1 != 0;
        matched.detections.iter().map(|one| (bit(one.marks.found[0]), bit(one.marks.ignored[0]))).collect()
    }

    /// A small detection in a large difficult object: IoU 400 / 40000, so VOC calls it false. All of it lies in the object,
    /// so that COCO would not count it in a crowd.
    #[test]
    fn what_lies_in_a_difficult_object_without_overlapping_it_is_false_and_in_a_crowd_it_is_not() {
        let inside = [found(0.9, square(50.0, 50.0, 20.0))];
        let of = |ignored| {
            at_half(&matched(
                &inside,
                &[truth(square(0.0, 0.0, 200.0), Some(ignored)), truth(square(300.0, 0.0, 20.0), None)],
            ))
        };
        assert_eq!(of(IgnoreReason::Difficult), [(false, false)]);
        assert_eq!(of(IgnoreReason::Crowd), [(false, true)]);
    }

    #[test]
    fn a_difficult_object_excuses_one_detection_and_a_crowd_any_number() {
        let twice = [found(0.9, square(0.0, 0.0, 20.0)), found(0.8, square(1.0, 0.0, 20.0))];
        let of = |ignored| at_half(&matched(&twice, &[truth(square(0.0, 0.0, 20.0), Some(ignored))]));
        assert_eq!(of(IgnoreReason::Difficult), [(false, true), (false, false)]);
        assert_eq!(of(IgnoreReason::Crowd), [(false, true), (false, true)]);
    }

    #[test]
    fn an_object_is_asked_for_at_its_own_size() {
        let one = matched(&[found(0.9, square(0.0, 0.0, 40.0))], &[truth(square(0.0, 0.0, 40.0), None)]);
        assert_eq!(one.truths, [(0, [true, false, true, false])]);
        let marks = one.detections[0].marks;
        let all = (1 << THRESHOLDS) - 1;
        assert_eq!((marks.found, marks.ignored), ([all, 0, all, 0], [0, all, 0, all]));
        // 32 x 32 is small and medium: COCO's ranges hold both their ends.
        let edge = matched(&[], &[truth(square(0.0, 0.0, 32.0), None)]);
        assert_eq!(edge.truths, [(0, [true, true, true, false])]);
    }

    #[test]
    fn of_a_class_a_hundred_detections_count() {
        let mut many: Vec<Detection> = (0..150).map(|n| found(n as f32, square(0.0, 0.0, 20.0))).collect();
        many.push(Detection { class: 1, ..many[0] });
        let matched = matched(&many, &[]);
        assert_eq!(matched.detections.len(), DETECTIONS_MAX + 1);
        assert_eq!((matched.detections[0].score, matched.detections[99].score), (149.0, 50.0));
        assert_eq!((matched.detections[99].rank, matched.detections[100].rank), (99, 0));
    }
}
