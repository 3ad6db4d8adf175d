//! From what the head says to detections: scores, boxes, non-maximum suppression. On the host.

use super::assignment::Cell;
use super::settings::Settings;
use crate::data::sample::Rectangle;

/// An object that the head found, in pixels of the square.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// In the episode.
    pub way: usize,
    /// Objectness times class probability.
    pub score: f32,
    pub rectangle: Rectangle,
}

/// One picture. `object`: probability a cell; `ways`: probability a cell and way, `ways` after one another; `sides`:
/// four distances a cell, in pixels.
pub fn decode(settings: &Settings, cells: &[Cell], object: &[f32], ways: &[f32], sides: &[f32]) -> Vec<Found> {
    let side = settings.image_size as f32;
    let count = ways.len() / cells.len().max(1);
    let mut kept = Vec::new();
    for way in 0..count {
        let mut candidates: Vec<Found> = cells
            .iter()
            .enumerate()
            .filter_map(|(number, cell)| {
                let score = object[number] * ways[number * count + way];
                // A comparison with NaN is false: what is not a number is not a detection.
                if !(f64::from(score) >= settings.score_threshold) {
                    return None;
                }
                let [left, top, right, bottom] = sides[number * 4..number * 4 + 4] else { return None };
                let rectangle = Rectangle {
                    left: (cell.x - left).clamp(0.0, side),
                    top: (cell.y - top).clamp(0.0, side),
                    right: (cell.x + right).clamp(0.0, side),
                    bottom: (cell.y + bottom).clamp(0.0, side),
                };
                (rectangle.width() > 0.0 && rectangle.height() > 0.0).then_some(Found { way, score, rectangle })
            })
            .collect();
        candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
        kept.extend(suppress(candidates, settings.nms_iou as f32, settings.detections_per_frame));
    }
    kept
}

/// Greedy non-maximum suppression of one class. Best first; at most `most` are kept.
fn suppress(candidates: Vec<Found>, overlap: f32, most: usize) -> Vec<Found> {
    let mut kept: Vec<Found> = Vec::new();
    for candidate in candidates {
        if kept.len() == most {
            break;
        }
        if kept.iter().all(|better| better.rectangle.iou(&candidate.rectangle) <= overlap) {
            kept.push(candidate);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::super::assignment::{cell_count, cells};
    use super::*;
    use proptest::prelude::*;

    fn settings() -> Settings {
        Settings { image_size: 32, score_threshold: 0.1, ..Settings::default() }
    }

    #[test]
    fn of_two_cells_that_find_one_object_the_surer_one_stays() {
        let cells = cells(32);
        let mut object = vec![0.0; cells.len()];
        let mut ways = vec![0.0; cells.len() * 2];
        let mut sides = vec![1.0; cells.len() * 4];
        for (number, sure) in [(5, 0.9), (6, 0.8)] {
            object[number] = sure;
            ways[number * 2 + 1] = 0.5;
            // Both say 4, 4 to 24, 24.
            let cell = cells[number];
            sides[number * 4..number * 4 + 4].copy_from_slice(&[
                cell.x - 4.0,
                cell.y - 4.0,
                24.0 - cell.x,
                24.0 - cell.y,
            ]);
        }
        let found = decode(&settings(), &cells, &object, &ways, &sides);
        let place = Rectangle { left: 4.0, top: 4.0, right: 24.0, bottom: 24.0 };
        assert_eq!(found, [Found { way: 1, score: 0.45, rectangle: place }]);
    }

    proptest! {
        #[test]
        fn what_stays_does_not_overlap_and_is_sorted(
            values in prop::collection::vec(prop_oneof![9 => 0f32..1.0, 1 => Just(f32::NAN)], cell_count(32) * 7),
        ) {
            let cells = cells(32);
            let (object, rest) = values.split_at(cells.len());
            let (ways, sides) = rest.split_at(cells.len() * 2);
            let sides: Vec<f32> = sides.iter().map(|side| side * 20.0).collect();
            let found = decode(&settings(), &cells, object, ways, &sides);
            for (number, one) in found.iter().enumerate() {
                prop_assert!(one.score >= 0.1);
                for other in &found[number + 1..] {
                    if one.way == other.way {
                        prop_assert!(one.score >= other.score);
                        prop_assert!(one.rectangle.iou(&other.rectangle) <= 0.5);
                    }
                }
            }
        }
    }
}
