//! Scaling, cropping and augmentation of images with their boxes.
//!
//! Pure functions of the image and a generator: nothing is kept between calls. Scaling down averages over the area
//! that a pixel covers (a triangle filter, as in Pillow's `BILINEAR`), which keeps small references from aliasing.

use std::collections::VecDeque;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use xrun_core::dataset::sample::{BoundingBox, HostImage};

/// Mean of 8-bit photographs, rounded, to normalise inputs.
pub const PIXEL_MEAN: f32 = 114.0;
/// Standard deviation of 8-bit photographs, rounded, to normalise inputs.
pub const PIXEL_DEVIATION: f32 = 64.0;

/// Padding of an image that does not fill its square: the grey that detectors since YOLOv5 pad with.
pub const PADDING: u8 = 114;

/// Affine map from the frame to the square: `x' = x * scale_x + left`, likewise for y. `scale_x` is negative
/// when the image was flipped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mapping {
    /// Pixels of the square for a pixel of the frame, from left to right.
    pub scale_x: f32,
    /// Pixels of the square for a pixel of the frame, downwards.
    pub scale_y: f32,
    /// Position of the frame's left edge, in pixels of the square.
    pub left: f32,
    /// Position of the frame's upper edge, in pixels of the square.
    pub top: f32,
}

impl Mapping {
    /// From the frame into the square.
    pub fn forth(&self, rectangle: &BoundingBox) -> BoundingBox {
        let (a, b) = (rectangle.left * self.scale_x + self.left, rectangle.right * self.scale_x + self.left);
        BoundingBox {
            left: a.min(b),
            top: rectangle.top * self.scale_y + self.top,
            right: a.max(b),
            bottom: rectangle.bottom * self.scale_y + self.top,
        }
    }

    /// From the square into the frame.
    pub fn back(&self, rectangle: &BoundingBox) -> BoundingBox {
        let (a, b) = ((rectangle.left - self.left) / self.scale_x, (rectangle.right - self.left) / self.scale_x);
        BoundingBox {
            left: a.min(b),
            top: (rectangle.top - self.top) / self.scale_y,
            right: a.max(b),
            bottom: (rectangle.bottom - self.top) / self.scale_y,
        }
    }

    fn flipped(self, width: usize) -> Self {
        Self { scale_x: -self.scale_x, left: width as f32 - self.left, ..self }
    }
}

/// Cuts a rectangle down to what lies within `width` by `height`; may become empty.
pub fn clip(rectangle: &BoundingBox, width: f32, height: f32) -> BoundingBox {
    BoundingBox {
        left: rectangle.left.clamp(0.0, width),
        top: rectangle.top.clamp(0.0, height),
        right: rectangle.right.clamp(0.0, width),
        bottom: rectangle.bottom.clamp(0.0, height),
    }
}

/// The source pixels that one target pixel is made of, along one axis.
struct Taps {
    first: usize,
    /// They add up to 1 less what lies beyond the image.
    weights: Vec<f32>,
}

/// Pixels beyond the edge of an image.
#[derive(Clone, Copy, PartialEq)]
enum Beyond {
    /// The edge goes on.
    Edge,
    /// Padding.
    Padding,
}

fn taps(length: usize, from: f32, extent: f32, target: usize, beyond: Beyond) -> Vec<Taps> {
    let ratio = extent / target as f32;
    let reach = ratio.max(1.0);
    let taps_of = |index: usize| {
        let centre = from + (index as f32 + 0.5) * ratio;
        let weight = |pixel: f32| (1.0 - ((pixel + 0.5 - centre) / reach).abs()).max(0.0);
        let (lowest, highest) = ((centre - reach).floor(), (centre + reach).ceil());
        let (first, end) = (lowest.clamp(0.0, length as f32) as usize, highest.clamp(0.0, length as f32) as usize);
        let mut weights: Vec<f32> = (first..end).map(|pixel| weight(pixel as f32)).collect();
        let inside: f32 = weights.iter().sum();
        // The sum over all integers is close to `reach`, and exactly so only for whole numbers.
        let whole = match beyond {
            Beyond::Edge => inside,
            Beyond::Padding => {
                let before: f32 = outside(lowest, highest.min(0.0)).map(weight).sum();
                let after: f32 = outside(lowest.max(length as f32), highest).map(weight).sum();
                inside + before + after
            }
        };
        if whole > 0.0 {
            weights.iter_mut().for_each(|weight| *weight /= whole);
        }
        Taps { first, weights }
    };
    (0..target).map(taps_of).collect()
}

/// The whole numbers from `from` up to and without `end`.
fn outside(from: f32, end: f32) -> impl Iterator<Item = f32> {
    let count = (end - from).max(0.0) as usize;
    (0..count).map(move |step| from + step as f32)
}

/// Scales the part of an image in `window` to `width` by `height`. Separable: rows first.
fn sample(image: &HostImage, window: &BoundingBox, width: usize, height: usize, beyond: Beyond) -> HostImage {
    let columns = taps(image.width, window.left, window.width(), width, beyond);
    let rows = taps(image.height, window.top, window.height(), height, beyond);
    let padding = f32::from(PADDING);
    // Relative to the padding, so that weight that lies beyond the image adds nothing.
    let narrow = |row: usize| {
        let mut target = vec![0.0f32; width * 3];
        let source = &image.rgb[row * image.width * 3..][..image.width * 3];
        for (pixel, column) in target.chunks_exact_mut(3).zip(&columns) {
            for (rgb, weight) in source[column.first * 3..].chunks_exact(3).zip(&column.weights) {
                for channel in 0..3 {
                    pixel[channel] += (f32::from(rgb[channel]) - padding) * weight;
                }
            }
        }
        target
    };
    // Only the rows that one target row needs: an image may be a hundred million pixels high.
    let mut held: VecDeque<Vec<f32>> = VecDeque::new();
    let mut first_held = 0;
    let mut rgb = vec![PADDING; width * height * 3];
    let mut sums = vec![0.0f32; width * 3];
    for (target, row) in rgb.chunks_exact_mut((width * 3).max(1)).zip(&rows) {
        sums.fill(0.0);
        while first_held < row.first && held.pop_front().is_some() {
            first_held += 1;
        }
        if held.is_empty() {
            first_held = row.first;
        }
        held.extend((first_held + held.len()..row.first + row.weights.len()).map(narrow));
        for (step, weight) in row.weights.iter().enumerate() {
            let source = &held[row.first + step - first_held];
            sums.iter_mut().zip(source).for_each(|(sum, value)| *sum += value * weight);
        }
        for (value, sum) in target.iter_mut().zip(&sums) {
            *value = (sum + padding).round().clamp(0.0, 255.0) as u8;
        }
    }
    HostImage { width, height, rgb: rgb.into() }
}

fn whole(image: &HostImage) -> BoundingBox {
    BoundingBox { left: 0.0, top: 0.0, right: image.width as f32, bottom: image.height as f32 }
}

/// Scales an image, whatever its aspect.
pub fn resize(image: &HostImage, width: usize, height: usize) -> HostImage {
    sample(image, &whole(image), width, height, Beyond::Edge)
}

/// Scales an image to fit a square of side `side` and pads it with grey around. The mapping is from the image into
/// the square; the two scales differ by the rounding to whole pixels.
pub fn letterbox(image: &HostImage, side: usize) -> (HostImage, Mapping) {
    let longest = image.width.max(image.height).max(1) as f32;
    let fit = |length: usize| ((length as f32 * side as f32 / longest).round() as usize).clamp(1, side.max(1));
    let (width, height) = (fit(image.width), fit(image.height));
    let (left, top) = ((side - width.min(side)) / 2, (side - height.min(side)) / 2);
    let scaled = resize(image, width, height);
    let mut rgb = vec![PADDING; side * side * 3];
    for (target, source) in rgb.chunks_exact_mut((side * 3).max(1)).skip(top).zip(scaled.rgb.chunks_exact(width * 3)) {
        target[left * 3..][..width * 3].copy_from_slice(source);
    }
    let mapping = Mapping {
        scale_x: width as f32 / image.width.max(1) as f32,
        scale_y: height as f32 / image.height.max(1) as f32,
        left: left as f32,
        top: top as f32,
    };
    (HostImage { width: side, height: side, rgb: rgb.into() }, mapping)
}

/// Cuts out a rectangle with `margin` times its size around it, as far as the image goes; at least one pixel.
pub fn crop(image: &HostImage, rectangle: &BoundingBox, margin: f32) -> HostImage {
    if image.width == 0 || image.height == 0 {
        return image.clone();
    }
    let (around_x, around_y) = (rectangle.width() * margin, rectangle.height() * margin);
    let span = |from: f32, to: f32, length: usize| {
        let first = (from.floor().max(0.0) as usize).min(length - 1);
        let end = (to.ceil().max(0.0) as usize).clamp(first + 1, length);
        (first, end)
    };
    let (left, right) = span(rectangle.left - around_x, rectangle.right + around_x, image.width);
    let (top, bottom) = span(rectangle.top - around_y, rectangle.bottom + around_y, image.height);
    let mut rgb = Vec::with_capacity((right - left) * (bottom - top) * 3);
    for row in top..bottom {
        rgb.extend_from_slice(&image.rgb[(row * image.width + left) * 3..(row * image.width + right) * 3]);
    }
    HostImage { width: right - left, height: bottom - top, rgb: rgb.into() }
}

/// Mirrors an image left to right.
pub fn flip(image: &HostImage) -> HostImage {
    let mut rgb = Vec::with_capacity(image.rgb.len());
    for row in image.rgb.chunks_exact((image.width * 3).max(1)) {
        row.chunks_exact(3).rev().for_each(|pixel| rgb.extend_from_slice(pixel));
    }
    HostImage { rgb: rgb.into(), ..*image }
}

/// Factors of a change of colour; 1 changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Colour {
    /// Values of all three channels.
    pub brightness: f32,
    /// Distance from the mean luma of the image.
    pub contrast: f32,
    /// Distance from the pixel's own luma.
    pub saturation: f32,
}

impl Colour {
    /// Each factor between `1 - strength` and `1 + strength`.
    pub fn draw(strength: f32, generator: &mut ChaCha8Rng) -> Self {
        let mut factor = || generator.random_range(1.0 - strength..=1.0 + strength);
        Self { brightness: factor(), contrast: factor(), saturation: factor() }
    }
}

/// Luma of BT.601.
fn luma(pixel: &[u8]) -> f32 {
    0.299 * f32::from(pixel[0]) + 0.587 * f32::from(pixel[1]) + 0.114 * f32::from(pixel[2])
}

/// Changes brightness, contrast and saturation, in that order of effect, in one pass.
pub fn recolour(image: &HostImage, colour: Colour) -> HostImage {
    let pixels = (image.width * image.height).max(1) as f64;
    let mean = (image.rgb.chunks_exact(3).map(|pixel| f64::from(luma(pixel))).sum::<f64>() / pixels) as f32;
    let mut rgb = Vec::with_capacity(image.rgb.len());
    for pixel in image.rgb.chunks_exact(3) {
        let grey = luma(pixel);
        for &value in pixel {
            let saturated = grey + (f32::from(value) - grey) * colour.saturation;
            let contrasted = mean + (saturated - mean) * colour.contrast;
            rgb.push((contrasted * colour.brightness).round().clamp(0.0, 255.0) as u8);
        }
    }
    HostImage { rgb: rgb.into(), ..*image }
}

/// A query frame for training: in the square as [`letterbox`] puts it, up to a fifth larger or smaller, moved by up to
/// a tenth of the square, flipped half of the time, its colours a little changed.
pub fn augment_query(image: &HostImage, side: usize, generator: &mut ChaCha8Rng) -> (HostImage, Mapping) {
    let longest = image.width.max(image.height).max(1) as f32;
    let extent = longest / generator.random_range(0.8f32..=1.2);
    let mut start = |length: usize| (length as f32 - extent) / 2.0 + extent * generator.random_range(-0.1f32..=0.1);
    let (left, top) = (start(image.width), start(image.height));
    let window = BoundingBox { left, top, right: left + extent, bottom: top + extent };
    let scale = side as f32 / extent;
    let mapping = Mapping { scale_x: scale, scale_y: scale, left: -left * scale, top: -top * scale };
    let mut square = sample(image, &window, side, side, Beyond::Padding);
    square = recolour(&square, Colour::draw(0.15, generator));
    if generator.random_bool(0.5) { (flip(&square), mapping.flipped(side)) } else { (square, mapping) }
}

/// The share of an object's size that is left around it in a reference, for the context that a detector sees too.
const REFERENCE_MARGIN: f32 = 0.1;

/// A reference as it is: the object (the whole image without one) in a square.
pub fn reference(image: &HostImage, object: Option<&BoundingBox>, side: usize) -> HostImage {
    match object {
        Some(object) => letterbox(&crop(image, object, REFERENCE_MARGIN), side).0,
        None => letterbox(image, side).0,
    }
}

/// One augmented view of a reference: another cut of the object (0.75 to 1.3 of its size, moved by up to an eighth),
/// flipped half of the time, its colours changed.
pub fn augment_reference(
    image: &HostImage,
    object: Option<&BoundingBox>,
    side: usize,
    generator: &mut ChaCha8Rng,
) -> HostImage {
    let whole = whole(image);
    let object = object.unwrap_or(&whole);
    let size = generator.random_range(0.75f32..=1.3);
    let (move_x, move_y) = (generator.random_range(-0.125f32..=0.125), generator.random_range(-0.125f32..=0.125));
    let extent = (object.width().max(object.height()) * size).max(1.0);
    let left = (object.left + object.right - extent) / 2.0 + object.width() * move_x;
    let top = (object.top + object.bottom - extent) / 2.0 + object.height() * move_y;
    let window = BoundingBox { left, top, right: left + extent, bottom: top + extent };
    let mut square = sample(image, &window, side, side, Beyond::Padding);
    square = recolour(&square, Colour::draw(0.3, generator));
    if generator.random_bool(0.5) { flip(&square) } else { square }
}

#[cfg(test)]
#[path = "transform_tests.rs"]
mod tests;
