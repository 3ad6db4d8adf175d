//! What does a person see of a validation? Query frames with truths and detections, and the references asked for.

use super::batch::DetectionBatch;
use super::decode::Detection;
use xrun_core::dataset::sample::{BoundingBox, HostImage};

/// How many times larger the query frame is in the picture: small ones three times, large ones not at all.
fn enlarge(side: usize) -> usize {
    (LARGE_SIDE / side.max(1)).clamp(1, 3)
}

/// About this side is enough to see everything.
const LARGE_SIDE: usize = 450;
const WHITE: [u8; 3] = [255, 255, 255];
/// One a way, told apart by people with colour-blindness (Okabe and Ito 2008).
const COLOURS: [[u8; 3]; 6] =
    [[230, 159, 0], [86, 180, 233], [0, 158, 115], [240, 228, 66], [213, 94, 0], [204, 121, 167]];

/// The colour that stands for a way.
pub fn colour(way: usize) -> [u8; 3] {
    COLOURS[way % COLOURS.len()]
}

/// A query frame of a batch: truths in white, detections in the colours of their ways, on the right the first reference
/// of each way. `truths` and detections are in pixels of the square.
pub fn draw(
    batch: &DetectionBatch,
    query: usize,
    side: usize,
    reference_side: usize,
    truths: &[BoundingBox],
    found: &[Detection],
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
        let place = (large, way * column);
        canvas.paste(
            &batch.reference_pixels[start..][..reference_side * reference_side * 3],
            reference_side,
            place,
            column,
        );
        let (left, top) = (place.0 as f32, place.1 as f32);
        let frame = BoundingBox { left, top, right: left + column as f32, bottom: top + column as f32 };
        canvas.outline(frame, colour(way), 3);
    }
    HostImage { width: canvas.width, height: canvas.height, rgb: canvas.rgb.into() }
}

/// A picture with what was found in it, in the colours of their ways; in pixels of the picture.
pub fn outlined(picture: &HostImage, found: &[Detection]) -> HostImage {
    let HostImage { width, height, .. } = *picture;
    let mut canvas = Canvas { width, height, rgb: picture.rgb.to_vec() };
    // To be seen on a screen, however large the picture is.
    let thickness = width.max(height).div_ceil(LARGE_SIDE).max(2);
    // The surest last, on top of the others.
    for one in found.iter().rev() {
        canvas.outline(one.rectangle, colour(one.class), thickness);
    }
    HostImage { width, height, rgb: canvas.rgb.into() }
}

/// `✓ 2 of 2 found`, `✗ 1 of 2 found, 1 wrong`: truths with their ways, against detections. A truth is found by a detection
/// of its way at an IoU of 0.5 or more, the surest first; what finds none is wrong.
pub fn judged(truths: &[(usize, BoundingBox)], found: &[Detection]) -> String {
    let mut surest: Vec<&Detection> = found.iter().collect();
    surest.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut open: Vec<&(usize, BoundingBox)> = truths.iter().collect();
    let mut wrong = 0;
    for one in surest {
        match open.iter().position(|(way, truth)| *way == one.class && truth.iou(&one.rectangle) >= 0.5) {
            Some(at) => drop(open.swap_remove(at)),
            None => wrong += 1,
        }
    }
    let mark = if open.is_empty() && wrong == 0 { "✓" } else { "✗" };
    let wrong = if wrong > 0 { format!(", {wrong} wrong") } else { String::new() };
    format!("{mark} {} of {} found{wrong}", truths.len() - open.len(), truths.len())
}

/// More detections of a class are not named.
const SCORES_MAX: usize = 3;

/// `✗ 1 of 2 found, 1 wrong · asked for ring (found: 0.91), star`: each class once, with the scores of what was found as it.
pub fn caption(names: &[&str], truths: &[(usize, BoundingBox)], found: &[Detection]) -> String {
    let asked = |(way, name): (usize, &&str)| {
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
    let asked: Vec<String> = names.iter().enumerate().map(asked).collect();
    format!("{} · asked for {}", judged(truths, found), asked.join(", "))
}

/// The side of the query frame in the picture, and that of a reference.
fn layout(side: usize, ways: usize) -> (usize, usize) {
    let large = side * enlarge(side);
    (large, large / ways.clamp(3, 8))
}

/// The largest picture that [`draw`] makes, in bytes.
pub fn picture_bytes_max(side: usize) -> u64 {
    let (large, column) = layout(side, 1);
    ((large + column) * large * 3) as u64
}

fn scaled(place: &BoundingBox, side: usize) -> BoundingBox {
    let scale = enlarge(side) as f32;
    BoundingBox {
        left: place.left * scale,
        top: place.top * scale,
        right: place.right * scale,
        bottom: place.bottom * scale,
    }
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

    /// A square picture, scaled without smoothing to `to` pixels.
    fn paste(&mut self, rgb: &[u8], side: usize, place: (usize, usize), to: usize) {
        for y in 0..to {
            for x in 0..to {
                let at = (y * side / to * side + x * side / to) * 3;
                self.set(place.0 + x, place.1 + y, [rgb[at], rgb[at + 1], rgb[at + 2]]);
            }
        }
    }

    fn outline(&mut self, place: BoundingBox, colour: [u8; 3], thickness: usize) {
        let inside = |value: f32, limit: usize| (value.max(0.0) as usize).min(limit.saturating_sub(1));
        let (left, right) = (inside(place.left, self.width), inside(place.right - 1.0, self.width));
        let (top, bottom) = (inside(place.top, self.height), inside(place.bottom - 1.0, self.height));
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
    fn a_picture_says_whether_it_is_right() {
        let place = |left: f32| BoundingBox { left, top: 0.0, right: left + 10.0, bottom: 10.0 };
        let found = |class: usize, left: f32, score: f32| Detection { rectangle: place(left), class, score };
        let truths = [(0, place(0.0)), (1, place(50.0))];
        assert_eq!(judged(&truths, &[found(0, 1.0, 0.9), found(1, 50.0, 0.8)]), "✓ 2 of 2 found");
        // The right place with the wrong class, the same object twice, and nothing at all.
        assert_eq!(judged(&truths, &[found(1, 1.0, 0.9)]), "✗ 0 of 2 found, 1 wrong");
        assert_eq!(judged(&truths[..1], &[found(0, 0.0, 0.9), found(0, 1.0, 0.8)]), "✗ 1 of 1 found, 1 wrong");
        assert_eq!(judged(&truths, &[]), "✗ 0 of 2 found");
        assert_eq!(judged(&[], &[]), "✓ 0 of 0 found");
    }

    #[test]
    fn boxes_are_drawn_into_the_picture_with_the_surest_on_top() {
        let picture = HostImage { width: 8, height: 6, rgb: vec![9; 8 * 6 * 3].into() };
        let place = BoundingBox { left: 1.0, top: 1.0, right: 7.0, bottom: 5.0 };
        let found = [0.9, 0.5].map(|score| Detection { rectangle: place, class: usize::from(score < 0.8), score });
        let drawn = outlined(&picture, &found);
        let pixel = |x: usize, y: usize| &drawn.rgb[(y * 8 + x) * 3..][..3];
        assert_eq!((drawn.width, drawn.height), (8, 6));
        assert_eq!((pixel(1, 1), pixel(6, 4), pixel(0, 0)), (&colour(0)[..], &colour(0)[..], &[9, 9, 9][..]));
        assert_eq!(outlined(&picture, &[]), picture);
    }

    #[test]
    fn a_caption_names_each_class_once() {
        let place = BoundingBox { left: 0.0, top: 0.0, right: 10.0, bottom: 10.0 };
        let found = |class: usize, score: f32| Detection { rectangle: place, class, score };
        let names = ["ring", "traffic light", "star"];
        let all = [0.9, 0.8, 0.7, 0.6].map(|score| found(1, score)).to_vec();
        assert_eq!(
            caption(&names, &[(1, place)], &all),
            "✗ 1 of 1 found, 3 wrong · asked for ring, traffic light (found: 0.90, 0.80, 0.70 and 1 more), star"
        );
        assert_eq!(
            caption(&names[..1], &[(0, place)], &[found(0, 0.5)]),
            "✓ 1 of 1 found · asked for ring (found: 0.50)"
        );
    }
}
