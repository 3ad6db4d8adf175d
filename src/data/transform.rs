//! How are pictures cut, scaled and varied? Pure functions of a picture and a generator.

use image::RgbImage;
use image::imageops::{self, FilterType};
use rand::{Rng, RngExt};

use crate::data::sample::{Picture, Rectangle};

/// What is outside of a picture.
const GREY: u8 = 114;

/// A part of a picture scaled to a square, and how boxes get there.
#[derive(Clone, Debug)]
pub struct Square {
    /// `side * side * 3` bytes.
    pub rgb: Vec<u8>,
    origin: (f32, f32),
    scale: f32,
    mirrored: bool,
    /// Of the square; the rest is grey.
    filled: (f32, f32),
}

/// A change of colours, the same for all pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tint {
    gain: [f32; 3],
    offset: f32,
}

impl Tint {
    pub const NONE: Self = Self { gain: [1.0; 3], offset: 0.0 };

    /// Brightness, contrast and balance, each changed by up to `strength`.
    pub fn draw(random: &mut impl Rng, strength: f32) -> Self {
        let contrast = 1.0 + random.random_range(-strength..=strength);
        let gain = std::array::from_fn(|_| contrast * (1.0 + 0.5 * random.random_range(-strength..=strength)));
        Self { gain, offset: 128.0 * (1.0 - contrast) + 100.0 * random.random_range(-strength..=strength) }
    }

    fn apply(self, rgb: &mut [u8]) {
        if self == Self::NONE {
            return;
        }
        for pixel in rgb.chunks_exact_mut(3) {
            for (value, gain) in pixel.iter_mut().zip(self.gain) {
                *value = (f32::from(*value) * gain + self.offset).clamp(0.0, 255.0) as u8;
            }
        }
    }
}

/// A part of the picture, in whole pixels, scaled to `width * height`.
fn scaled(picture: &Picture, left: usize, top: usize, size: (usize, usize), to: (usize, usize)) -> RgbImage {
    let to = (to.0.max(1) as u32, to.1.max(1) as u32);
    let rows = picture.rgb.chunks_exact(picture.width * 3).skip(top).take(size.1);
    let bytes: Vec<u8> = rows.flat_map(|row| &row[left * 3..(left + size.0) * 3]).copied().collect();
    let Some(part) = RgbImage::from_raw(size.0 as u32, size.1 as u32, bytes) else { return RgbImage::new(to.0, to.1) };
    if part.dimensions() == to { part } else { imageops::resize(&part, to.0, to.1, FilterType::Triangle) }
}

/// The part of a picture from `origin`, `length` pixels wide and high as far as the picture reaches, scaled to a square
/// of `side`. What the picture does not fill is grey.
pub fn square(picture: &Picture, origin: (f32, f32), length: f32, side: usize, mirrored: bool, tint: Tint) -> Square {
    let length = length.max(1.0);
    let scale = side as f32 / length;
    // In whole pixels: what of the part is inside the picture.
    let inside = |start: f32, limit: usize| {
        let first = start.max(0.0).floor().min(limit as f32 - 1.0).max(0.0);
        let last = (start + length).min(limit as f32).ceil().max(first + 1.0);
        (first, last)
    };
    let (left, right) = inside(origin.0, picture.width);
    let (top, bottom) = inside(origin.1, picture.height);
    let place = |value: f32, start: f32| ((value - start) * scale).round().clamp(0.0, side as f32) as usize;
    let (x0, x1) = (place(left, origin.0), place(right, origin.0));
    let (y0, y1) = (place(top, origin.1), place(bottom, origin.1));
    let mut rgb = vec![GREY; side * side * 3];
    if x1 > x0 && y1 > y0 {
        let size = ((right - left) as usize, (bottom - top) as usize);
        let mut part = scaled(picture, left as usize, top as usize, size, (x1 - x0, y1 - y0));
        tint.apply(&mut part);
        for (row, line) in part.chunks_exact((x1 - x0) * 3).enumerate() {
            let start = ((y0 + row) * side + x0) * 3;
            rgb[start..start + line.len()].copy_from_slice(line);
        }
    }
    if mirrored {
        for row in rgb.chunks_exact_mut(side * 3) {
            for x in 0..side / 2 {
                for channel in 0..3 {
                    row.swap(x * 3 + channel, (side - 1 - x) * 3 + channel);
                }
            }
        }
    }
    Square { rgb, origin, scale, mirrored, filled: (x1 as f32, y1 as f32) }
}

/// The whole picture in the upper left of a square.
pub fn letterbox(picture: &Picture, side: usize) -> Square {
    square(picture, (0.0, 0.0), picture.width.max(picture.height) as f32, side, false, Tint::NONE)
}

/// A picture to train on: a random part of most of it, mirrored half of the time, with changed colours.
pub fn varied(picture: &Picture, side: usize, random: &mut impl Rng) -> Square {
    let whole = picture.width.max(picture.height) as f32;
    let length = whole * random.random_range(0.8..1.15);
    let mut start = |size: usize| {
        let slack = size as f32 - length;
        random.random_range(slack.min(0.0)..=slack.max(0.0))
    };
    let origin = (start(picture.width), start(picture.height));
    let mirrored = random.random_bool(0.5);
    square(picture, origin, length, side, mirrored, Tint::draw(random, 0.15))
}

/// A single object as reference: a square around it, with some margin.
pub fn object(picture: &Picture, rectangle: Option<Rectangle>, side: usize) -> Square {
    let (centre, size) = middle(picture, rectangle);
    let length = size * 1.15;
    square(picture, (centre.0 - length / 2.0, centre.1 - length / 2.0), length, side, false, Tint::NONE)
}

/// The same with another margin, another place, other colours, and mirrored half of the time.
pub fn varied_object(picture: &Picture, rectangle: Option<Rectangle>, side: usize, random: &mut impl Rng) -> Square {
    let (centre, size) = middle(picture, rectangle);
    let length = size * random.random_range(1.0..1.4);
    let mut shift = || random.random_range(-0.08..0.08) * size;
    let origin = (centre.0 - length / 2.0 + shift(), centre.1 - length / 2.0 + shift());
    let mirrored = random.random_bool(0.5);
    square(picture, origin, length, side, mirrored, Tint::draw(random, 0.15))
}

fn middle(picture: &Picture, rectangle: Option<Rectangle>) -> ((f32, f32), f32) {
    let whole = Rectangle { left: 0.0, top: 0.0, right: picture.width as f32, bottom: picture.height as f32 };
    let place = rectangle.unwrap_or(whole);
    (((place.left + place.right) / 2.0, (place.top + place.bottom) / 2.0), place.width().max(place.height()))
}

impl Square {
    /// A box of the picture in the square, cut off at the edge; `None` when less than `share` of it is left.
    pub fn place(&self, rectangle: Rectangle, side: usize, share: f32) -> Option<Rectangle> {
        let x = |value: f32| (value - self.origin.0) * self.scale;
        let y = |value: f32| (value - self.origin.1) * self.scale;
        let (left, right) = (x(rectangle.left), x(rectangle.right));
        let (top, bottom) = (y(rectangle.top), y(rectangle.bottom));
        let cut = |value: f32, most: f32| value.clamp(0.0, most);
        let mut placed = Rectangle {
            left: cut(left, self.filled.0),
            right: cut(right, self.filled.0),
            top: cut(top, self.filled.1),
            bottom: cut(bottom, self.filled.1),
        };
        let whole = (right - left) * (bottom - top);
        if placed.width() < 1.0 || placed.height() < 1.0 || placed.area() < share * whole {
            return None;
        }
        if self.mirrored {
            let side = side as f32;
            (placed.left, placed.right) = (side - placed.right, side - placed.left);
        }
        Some(placed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::seed::generator;
    use proptest::prelude::*;

    /// Black, with one white rectangle.
    fn picture(width: usize, height: usize, white: Rectangle) -> Picture {
        let mut rgb = vec![0u8; width * height * 3];
        for y in white.top as usize..white.bottom as usize {
            for x in white.left as usize..white.right as usize {
                rgb[(y * width + x) * 3..][..3].fill(255);
            }
        }
        Picture { width, height, rgb: rgb.into() }
    }

    #[test]
    fn a_box_lands_on_what_it_was_drawn_around() {
        let white = Rectangle { left: 40.0, top: 20.0, right: 80.0, bottom: 60.0 };
        let picture = picture(160, 90, white);
        for number in 0..50 {
            let square = varied(&picture, 64, &mut generator(1, "test", number));
            let Some(place) = square.place(white, 64, 0.9) else { continue };
            let bright = |x: f32, y: f32| square.rgb[(y as usize * 64 + x as usize) * 3] > 128;
            let (x, y) = ((place.left + place.right) / 2.0, (place.top + place.bottom) / 2.0);
            assert!(bright(x, y), "the middle of {place:?} is dark in number {number}");
            assert!(place.left < 3.0 || !bright(place.left - 3.0, y), "left of {place:?}, number {number}");
        }
    }

    #[test]
    fn a_letterbox_keeps_the_form_and_pads_with_grey() {
        let white = Rectangle { left: 0.0, top: 0.0, right: 100.0, bottom: 50.0 };
        let square = letterbox(&picture(100, 50, white), 64);
        assert_eq!(square.rgb[..3], [255; 3]);
        assert_eq!(square.rgb[(40 * 64 + 5) * 3..][..3], [GREY; 3]);
        let place = square.place(white, 64, 0.5).unwrap();
        assert_eq!((place.right, place.bottom), (64.0, 32.0));
    }

    proptest! {
        #[test]
        fn no_size_and_no_box_makes_it_panic(
            width in 1usize..70, height in 1usize..70, side in 1usize..50, seed in any::<u32>(),
            left in -10f32..80.0, top in -10f32..80.0, wide in 0f32..90.0, high in 0f32..90.0,
        ) {
            let nothing = Rectangle { left: 0.0, top: 0.0, right: 0.0, bottom: 0.0 };
            let picture = picture(width, height, nothing);
            let rectangle = Rectangle { left, top, right: left + wide, bottom: top + high };
            let random = &mut generator(seed, "test", 0);
            for square in [
                letterbox(&picture, side),
                varied(&picture, side, random),
                object(&picture, Some(rectangle), side),
                varied_object(&picture, Some(rectangle), side, random),
            ] {
                prop_assert_eq!(square.rgb.len(), side * side * 3);
                if let Some(place) = square.place(rectangle, side, 0.0) {
                    let side = side as f32;
                    prop_assert!(place.left >= 0.0 && place.top >= 0.0 && place.right <= side && place.bottom <= side);
                }
            }
        }
    }
}
