//! Types of samples. They are in host memory; tensors are created on the training thread.

use std::path::Path;
use std::sync::Arc;

use super::error::DataError;
use crate::bounded::DeepSize;

/// Decoded image in host memory: 8-bit RGB, `[height, width, 3]`.
#[derive(Clone, PartialEq, Eq)]
pub struct HostImage {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// Pixels, `[height, width, 3]`, row by row; shared by clones.
    pub rgb: Arc<[u8]>,
}

impl HostImage {
    /// Size in bytes of an image of this width and height.
    pub fn bytes(width: usize, height: usize) -> u64 {
        (size_of::<Self>() + width * height * 3) as u64
    }

    /// Encodes the image as PNG.
    pub fn to_png(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let encoder = image::codecs::png::PngEncoder::new(&mut bytes);
        let (width, height) = (self.width as u32, self.height as u32);
        image::ImageEncoder::write_image(encoder, &self.rgb, width, height, image::ExtendedColorType::Rgb8)
            .map_err(std::io::Error::other)?;
        Ok(bytes)
    }
}

impl std::fmt::Debug for HostImage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "HostImage({}x{})", self.width, self.height)
    }
}

impl DeepSize for HostImage {
    fn deep_size(&self) -> u64 {
        (size_of::<Self>() + self.rgb.len()) as u64
    }
}

/// Source of decoded images by their path relative to the data set's root; used by many threads at once.
pub trait ImageSource: Send + Sync {
    /// Decodes the image, or returns it from a cache.
    ///
    /// # Errors
    /// The file is missing, invalid or too large.
    fn image(&self, path: &Path) -> Result<HostImage, DataError>;
}

/// Reasons why detections of an object are ignored in the evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoreReason {
    /// COCO's `iscrowd`, a region of many objects: matches any number of detections, by the fraction of the detection's area
    /// inside the region.
    Crowd,
    /// VOC's `difficult`, or a box that was left out: matches one detection, by IoU.
    Difficult,
}

/// Bounding box in pixels from the upper left corner of the image: `left < right`, `top < bottom`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoundingBox {
    /// Left edge.
    pub left: f32,
    /// Upper edge.
    pub top: f32,
    /// Right edge.
    pub right: f32,
    /// Lower edge.
    pub bottom: f32,
}

impl BoundingBox {
    /// Extent in pixels; negative where the edges are swapped.
    pub fn width(&self) -> f32 {
        self.right - self.left
    }

    /// Extent in pixels; negative where the edges are swapped.
    pub fn height(&self) -> f32 {
        self.bottom - self.top
    }

    /// Area in square pixels; 0 where the edges are swapped.
    pub fn area(&self) -> f32 {
        self.width().max(0.0) * self.height().max(0.0)
    }

    /// Intersection over union; 0 when either box is empty.
    pub fn iou(&self, other: &Self) -> f32 {
        let overlap = Self {
            left: self.left.max(other.left),
            top: self.top.max(other.top),
            right: self.right.min(other.right),
            bottom: self.bottom.min(other.bottom),
        };
        if overlap.width() <= 0.0 || overlap.height() <= 0.0 {
            return 0.0;
        }
        overlap.area() / (self.area() + other.area() - overlap.area())
    }
}
