//! Images with boxes for the report and for predictions: query frames with truths, detections and references.

use super::batch::DetectionBatch;
use super::decode::FrameDetection;
use xrun_core::dataset::sample::{BoundingBox, HostImage};

/// Scale of a query frame in the overlay, 1 to 3.
fn zoom(side: usize) -> usize {
    (LARGE_SIDE / side.max(1)).clamp(1, 3)
}

/// Side in pixels at which an image needs no enlargement.
const LARGE_SIDE: usize = 450;
const WHITE: [u8; 3] = [255, 255, 255];
/// Colours of the ways, distinguishable with colour-blindness (Okabe and Ito 2008).
const COLOURS: [[u8; 3]; 6] =
    [[230, 159, 0], [86, 180, 233], [0, 158, 115], [240, 228, 66], [213, 94, 0], [204, 121, 167]];

/// Colour of a way.
pub fn colour(way: usize) -> [u8; 3] {
    COLOURS[way % COLOURS.len()]
}

/// Draws a query frame of a batch with its truths in white, its detections in the colours of their ways, and the first reference of
/// each way on the right. `truths` and `found` are in pixels of the square.
pub fn draw(
    batch: &DetectionBatch,
    query: usize,
    side: usize,
    reference_side: usize,
    truths: &[BoundingBox],
    found: &[FrameDetection],
) -> HostImage {
    let ways = batch.classes.len();
    let (large, column) = layout(side, ways);
    let mut canvas = Canvas::new(large + column, large);
    let pixels = &batch.query_pixels[query * side * side * 3..][..side * side * 3];
    canvas.paste(pixels, side, (0, 0), large);
    for truth in truths {
        canvas.outline(scaled(truth, side), WHITE, 1);
    }
    for detection in found {
        canvas.outline(scaled(&detection.rectangle, side), colour(detection.class), 2);
    }
    let views = batch.reference_pixels.len() / (reference_side * reference_side * 3) / ways.max(1);
    for way in 0..ways {
        let start = way * views * reference_side * reference_side * 3;
        let position = (large, way * column);
        canvas.paste(
            &batch.reference_pixels[start..][..reference_side * reference_side * 3],
            reference_side,
            position,
            column,
        );
        let (left, top) = (position.0 as f32, position.1 as f32);
        let frame = BoundingBox { left, top, right: left + column as f32, bottom: top + column as f32 };
        canvas.outline(frame, colour(way), 3);
    }
    HostImage { width: canvas.width, height: canvas.height, rgb: canvas.rgb.into() }
}

/// Draws detections, in pixels of the image and in the colours of their ways, into a copy of the image.
pub fn outlined(image: &HostImage, found: &[FrameDetection]) -> HostImage {
    let HostImage { width, height, .. } = *image;
    let mut canvas = Canvas { width, height, rgb: image.rgb.to_vec() };
    // Thick enough to be visible on a screen at any image size.
    let thickness = width.max(height).div_ceil(LARGE_SIDE).max(2);
    // The highest score last, on top of the others.
    for one in found.iter().rev() {
        canvas.outline(one.rectangle, colour(one.class), thickness);
    }
    HostImage { width, height, rgb: canvas.rgb.into() }
}

/// Summary of the detections of a frame, such as `✗ 1 of 2 found, 1 wrong`. `truths` are ways and boxes. A detection is correct if it
/// overlaps an unmatched truth of its way at an IoU of 0.5 or more; higher scores are matched first.
pub fn summary(truths: &[(usize, BoundingBox)], found: &[FrameDetection]) -> String {
    let mut by_score: Vec<&FrameDetection> = found.iter().collect();
    by_score.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut unmatched: Vec<&(usize, BoundingBox)> = truths.iter().collect();
    let mut wrong = 0;
    for one in by_score {
        match unmatched.iter().position(|(way, truth)| *way == one.class && truth.iou(&one.rectangle) >= 0.5) {
            Some(index) => drop(unmatched.swap_remove(index)),
            None => wrong += 1,
        }
    }
    let mark = if unmatched.is_empty() && wrong == 0 { "✓" } else { "✗" };
    let wrong = if wrong > 0 { format!(", {wrong} wrong") } else { String::new() };
    format!("{mark} {} of {} found{wrong}", truths.len() - unmatched.len(), truths.len())
}

/// Maximum number of scores of a class in a caption.
const SCORES_MAX: usize = 3;

/// Maximum number of classes in the caption of a frame without any of them.
const NAMES_MAX: usize = 8;

/// Caption of a frame, such as `✗ 1 of 2 found, 1 wrong · classes: ring (found: 0.91), star`, with the scores of the detections of each
/// class.
pub fn caption(names: &[&str], truths: &[(usize, BoundingBox)], found: &[FrameDetection]) -> String {
    let class = |(way, name): (usize, &&str)| {
        let scores: Vec<String> =
            found.iter().filter(|one| one.class == way).map(|one| format!("{:.2}", one.score)).collect();
        match scores.len() {
            0 => (*name).to_owned(),
            count if count > SCORES_MAX => {
                format!("{name} (found: {} and {} more)", scores[..SCORES_MAX].join(", "), count - SCORES_MAX)
            }
            _ => format!("{name} (found: {})", scores.join(", ")),
        }
    };
    // Of many classes, those that are there or found.
    let is_named = |way: &usize| {
        names.len() <= NAMES_MAX || truths.iter().any(|one| one.0 == *way) || found.iter().any(|one| one.class == *way)
    };
    let classes: Vec<String> = names.iter().enumerate().filter(|(way, _)| is_named(way)).map(class).collect();
    format!("{} · classes: {}", summary(truths, found), classes.join(", "))
}

/// Sides in pixels of the query frame and of a reference in the overlay.
fn layout(side: usize, ways: usize) -> (usize, usize) {
    let large = side * zoom(side);
    (large, large / ways.clamp(3, 8))
}

/// Maximum size in bytes of an image that [`draw`] returns.
pub fn image_bytes_max(side: usize) -> u64 {
    let (large, column) = layout(side, 1);
    HostImage::bytes(large + column, large)
}

fn scaled(rectangle: &BoundingBox, side: usize) -> BoundingBox {
    let scale = zoom(side) as f32;
    let BoundingBox { left, top, right, bottom } = *rectangle;
    BoundingBox { left: left * scale, top: top * scale, right: right * scale, bottom: bottom * scale }
}

struct Canvas {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Canvas {
    fn new(width: usize, height: usize) -> Self {
        Self { width, height, rgb: vec![255; width * height * 3] }
    }

    fn set(&mut self, x: usize, y: usize, colour: [u8; 3]) {
        if x < self.width && y < self.height {
            self.rgb[(y * self.width + x) * 3..][..3].copy_from_slice(&colour);
        }
    }

    /// Draws a square image, scaled to `to` pixels by nearest neighbour.
    fn paste(&mut self, rgb: &[u8], side: usize, position: (usize, usize), to: usize) {
        for y in 0..to {
            for x in 0..to {
                let index = (y * side / to * side + x * side / to) * 3;
                self.set(position.0 + x, position.1 + y, [rgb[index], rgb[index + 1], rgb[index + 2]]);
            }
        }
    }

    fn outline(&mut self, rectangle: BoundingBox, colour: [u8; 3], thickness: usize) {
        let inside = |value: f32, limit: usize| (value.max(0.0) as usize).min(limit.saturating_sub(1));
        let BoundingBox { left, top, right, bottom } = rectangle;
        let (left, right) = (inside(left, self.width), inside(right - 1.0, self.width));
        let (top, bottom) = (inside(top, self.height), inside(bottom - 1.0, self.height));
        for inset in 0..thickness {
            for x in left..=right {
                self.set(x, (top + inset).min(bottom), colour);
                self.set(x, bottom.saturating_sub(inset).max(top), colour);
            }
            for y in top..=bottom {
                self.set((left + inset).min(right), y, colour);
                self.set(right.saturating_sub(inset).max(left), y, colour);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_found_objects_and_wrong_detections() {
        let rectangle = |left: f32| BoundingBox { left, top: 0.0, right: left + 10.0, bottom: 10.0 };
        let found = |class: usize, left: f32, score: f32| FrameDetection { rectangle: rectangle(left), class, score };
        let truths = [(0, rectangle(0.0)), (1, rectangle(50.0))];
        // Correct; the wrong class; the same object twice; nothing found; nothing to find.
        let summaries = [
            summary(&truths, &[found(0, 1.0, 0.9), found(1, 50.0, 0.8)]),
            summary(&truths, &[found(1, 1.0, 0.9)]),
            summary(&truths[..1], &[found(0, 0.0, 0.9), found(0, 1.0, 0.8)]),
            summary(&truths, &[]),
            summary(&[], &[]),
        ];
        insta::assert_snapshot!(summaries.join("\n"), @r"
        ✓ 2 of 2 found
        ✗ 0 of 2 found, 1 wrong
        ✗ 1 of 1 found, 1 wrong
        ✗ 0 of 2 found
        ✓ 0 of 0 found
        ");
    }

    #[test]
    fn boxes_are_drawn_with_the_highest_score_on_top() {
        let image = HostImage { width: 8, height: 6, rgb: vec![9; 8 * 6 * 3].into() };
        let rectangle = BoundingBox { left: 1.0, top: 1.0, right: 7.0, bottom: 5.0 };
        let found = [0.9, 0.5].map(|score| FrameDetection { rectangle, class: usize::from(score < 0.8), score });
        let drawn = outlined(&image, &found);
        let pixel = |x: usize, y: usize| &drawn.rgb[(y * 8 + x) * 3..][..3];
        assert_eq!((drawn.width, drawn.height), (8, 6));
        assert_eq!((pixel(1, 1), pixel(6, 4), pixel(0, 0)), (&colour(0)[..], &colour(0)[..], &[9, 9, 9][..]));
        assert_eq!(outlined(&image, &[]), image);
    }

    #[test]
    fn a_caption_names_each_class_once() {
        let rectangle = BoundingBox { left: 0.0, top: 0.0, right: 10.0, bottom: 10.0 };
        let found = |class: usize, score: f32| FrameDetection { rectangle, class, score };
        let names = ["ring", "traffic light", "star"];
        let all = [0.9, 0.8, 0.7, 0.6].map(|score| found(1, score)).to_vec();
        let captions =
            [caption(&names, &[(1, rectangle)], &all), caption(&names[..1], &[(0, rectangle)], &[found(0, 0.5)])];
        insta::assert_snapshot!(captions.join("\n"), @r"
        ✗ 1 of 1 found, 3 wrong · classes: ring, traffic light (found: 0.90, 0.80, 0.70 and 1 more), star
        ✓ 1 of 1 found · classes: ring (found: 0.50)
        ");
    }
}
