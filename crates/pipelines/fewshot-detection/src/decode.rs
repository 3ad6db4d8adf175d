//! Detections from the outputs of the dense head.
//!
//! On the host, frame by frame: scores, threshold, non-maximum suppression for each class, and the best detections. NaNs are dropped,
//! so that a diverged model gives no detections and no panic.

use super::assignment::GridCell;
use super::settings::FewshotDetection;
use xrun_core::dataset::sample::BoundingBox;
use xrun_data::transform::{Mapping, clip};

/// Outputs of the dense head for one frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameOutput<'a> {
    /// Probability of an object, `[cells]`.
    pub objectness: &'a [f32],
    /// Probability of each way, `[cells, n_way]`.
    pub class: &'a [f32],
    /// Distances from the cell's centre to left, top, right and bottom, `[cells, 4]`, in pixels of the square.
    pub sides: &'a [f32],
}

/// Size of a frame and its position in the square.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrameGeometry {
    /// Mapping from the frame to the square.
    pub mapping: Mapping,
    /// Width of the frame in pixels.
    pub width: usize,
    /// Height of the frame in pixels.
    pub height: usize,
}

/// Detected object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrameDetection {
    /// Way, the index of the class in the episode.
    pub class: usize,
    /// Objectness times class probability.
    pub score: f32,
    /// Box in pixels of the frame, clipped to it.
    pub rectangle: BoundingBox,
}

/// Detections of one frame, best first. Cells without outputs are ignored.
pub fn decode(
    cells: &[GridCell],
    n_way: usize,
    output: &FrameOutput<'_>,
    geometry: &FrameGeometry,
    settings: &FewshotDetection,
) -> Vec<FrameDetection> {
    let mut detections = Vec::new();
    for class in 0..n_way {
        let objectness = output.objectness.iter();
        let scores =
            objectness.zip(output.class.chunks_exact(n_way)).map(|(objectness, classes)| objectness * classes[class]);
        let mut candidates: Vec<FrameDetection> = cells
            .iter()
            .zip(scores)
            .zip(output.sides.chunks_exact(4))
            .filter(|((_, score), _)| score.is_finite() && *score >= settings.score_threshold as f32)
            .filter_map(|((cell, score), sides)| {
                let rectangle = in_frame(cell, sides, geometry)?;
                Some(FrameDetection { class, score, rectangle })
            })
            .collect();
        suppress(&mut candidates, settings.nms_iou as f32, settings.detections_per_frame);
        detections.append(&mut candidates);
    }
    // Stable: equal scores in the order of the ways.
    detections.sort_by(|a, b| b.score.total_cmp(&a.score));
    detections
}

/// Box in pixels of the frame; `None` if none of it is inside.
fn in_frame(cell: &GridCell, sides: &[f32], geometry: &FrameGeometry) -> Option<BoundingBox> {
    let square = BoundingBox {
        left: cell.x - sides[0],
        top: cell.y - sides[1],
        right: cell.x + sides[2],
        bottom: cell.y + sides[3],
    };
    let rectangle = clip(&geometry.mapping.back(&square), geometry.width as f32, geometry.height as f32);
    // False for NaN, too.
    (rectangle.width() > 0.0 && rectangle.height() > 0.0).then_some(rectangle)
}

/// Greedy non-maximum suppression: keeps at most `max` candidates, best first, no two of which overlap by more than `iou_max`. Equal
/// scores keep their order; NaN scores are dropped.
pub fn suppress(candidates: &mut Vec<FrameDetection>, iou_max: f32, max: usize) {
    candidates.retain(|candidate| !candidate.score.is_nan());
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut kept = 0;
    for index in 0..candidates.len() {
        if kept == max {
            break;
        }
        let candidate = candidates[index];
        if candidates[..kept].iter().all(|better| better.rectangle.iou(&candidate.rectangle) <= iou_max) {
            candidates[kept] = candidate;
            kept += 1;
        }
    }
    candidates.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::super::assignment::cells;
    use super::*;
    use proptest::prelude::*;

    /// Frame of 64 x 32 in a square of 32: scale 0.5, 8 pixels of padding above and below.
    const GEOMETRY: FrameGeometry =
        FrameGeometry { mapping: Mapping { scale_x: 0.5, scale_y: 0.5, left: 0.0, top: 8.0 }, width: 64, height: 32 };

    fn rectangle(left: f32, top: f32, right: f32, bottom: f32) -> BoundingBox {
        BoundingBox { left, top, right, bottom }
    }

    struct Head {
        objectness: Vec<f32>,
        class: Vec<f32>,
        sides: Vec<f32>,
    }

    impl Head {
        /// Two classes in a square of 32 with nothing in it.
        fn new() -> Self {
            Self { objectness: vec![0.0; 20], class: vec![0.0; 40], sides: vec![4.0; 80] }
        }

        fn set(&mut self, cell: usize, objectness: f32, class: [f32; 2], sides: [f32; 4]) {
            self.objectness[cell] = objectness;
            self.class[cell * 2..cell * 2 + 2].copy_from_slice(&class);
            self.sides[cell * 4..cell * 4 + 4].copy_from_slice(&sides);
        }

        fn decode(&self) -> Vec<FrameDetection> {
            let output = FrameOutput { objectness: &self.objectness, class: &self.class, sides: &self.sides };
            let settings = FewshotDetection {
                score_threshold: 0.25,
                nms_iou: 0.5,
                detections_per_frame: 2,
                ..FewshotDetection::default()
            };
            decode(&cells(32), 2, &output, &GEOMETRY, &settings)
        }
    }

    #[test]
    fn a_box_is_in_pixels_of_the_frame_and_its_score_is_the_product() {
        let mut head = Head::new();
        head.set(5, 0.5, [0.25, 0.75], [4.0, 2.0, 6.0, 8.0]); // cell centre (12, 12): 8..18 by 10..20
        let found = head.decode();
        assert_eq!(found, [FrameDetection { class: 1, score: 0.375, rectangle: rectangle(16.0, 4.0, 36.0, 24.0) }]);
    }

    #[test]
    fn boxes_are_clipped_to_the_frame_and_those_in_the_padding_are_dropped() {
        let mut head = Head::new();
        head.set(4, 1.0, [1.0, 0.0], [9.0, 9.0, 4.0, 4.0]); // centre (4, 12): -5..8 by 3..16
        head.set(0, 1.0, [0.0, 1.0], [4.0, 4.0, 4.0, 3.0]); // centre (4, 4): 0..8 by 0..7, above the frame
        assert_eq!(
            head.decode(),
            [FrameDetection { class: 0, score: 1.0, rectangle: rectangle(0.0, 0.0, 16.0, 16.0) }]
        );
    }

    #[test]
    fn the_weaker_of_two_overlapping_detections_of_a_class_is_dropped() {
        let mut head = Head::new();
        head.set(5, 0.9, [1.0, 0.0], [4.0; 4]); // 8..16 by 8..16
        head.set(6, 0.8, [1.0, 1.0], [11.0, 4.0, -3.0, 4.0]); // centre (20, 12): 9..17: IoU 7 / 9 with the first
        head.set(9, 0.7, [1.0, 0.0], [4.0; 4]); // centre (12, 20): apart
        head.set(10, 0.6, [1.0, 0.0], [4.0; 4]); // a third of the class, above the maximum
        let found: Vec<(usize, f32)> = head.decode().iter().map(|found| (found.class, found.score)).collect();
        assert_eq!(found, [(0, 0.9), (1, 0.8), (0, 0.7)]);
    }

    #[test]
    fn nan_outputs_give_no_detections() {
        let mut head = Head::new();
        head.set(5, f32::NAN, [1.0, 1.0], [4.0; 4]);
        head.set(6, 1.0, [f32::NAN, 0.9], [4.0, f32::NAN, 4.0, 4.0]);
        head.set(9, 1.0, [1.0, 0.0], [f32::NAN; 4]);
        assert_eq!(head.decode(), []);
    }

    fn any_candidates() -> impl Strategy<Value = Vec<FrameDetection>> {
        let score = prop_oneof![9 => 0.0f32..1.0, 1 => Just(f32::NAN)];
        let candidate = (score, 0.0f32..20.0, 0.0f32..20.0, 0.5f32..20.0, 0.5f32..20.0);
        prop::collection::vec(candidate, 0..60).prop_map(|all| {
            let detection = |(score, left, top, width, height)| FrameDetection {
                class: 0,
                score,
                rectangle: rectangle(left, top, left + width, top + height),
            };
            all.into_iter().map(detection).collect()
        })
    }

    proptest! {
        #[test]
        fn kept_detections_are_sorted_and_disjoint_and_explain_the_dropped_ones(
            candidates in any_candidates(), iou_max in 0.0f32..1.0, max in 1usize..30,
        ) {
            let mut kept = candidates.clone();
            suppress(&mut kept, iou_max, max);
            prop_assert!(kept.len() <= max);
            prop_assert!(kept.iter().all(|detection| !detection.score.is_nan()));
            prop_assert!(kept.is_sorted_by(|a, b| a.score >= b.score));
            for (index, one) in kept.iter().enumerate() {
                for other in &kept[..index] {
                    prop_assert!(one.rectangle.iou(&other.rectangle) <= iou_max);
                }
            }
            if kept.len() < max {
                for candidate in candidates.iter().filter(|candidate| !candidate.score.is_nan()) {
                    let explained = kept.iter().any(|better| {
                        better == candidate
                            || better.score >= candidate.score && better.rectangle.iou(&candidate.rectangle) > iou_max
                    });
                    prop_assert!(explained, "{candidate:?} was dropped without reason");
                }
            }
        }
    }
}
