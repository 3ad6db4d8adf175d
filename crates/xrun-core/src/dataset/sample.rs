//! What do data sets hand out? Host memory only; tensors are made on the training thread.

use std::path::Path;
use std::sync::Arc;

use super::error::DataError;
use crate::bounded::HeldBytes;

/// A picture on the host: 8-bit RGB, row by row, `height * width * 3` bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Red, green and blue of each pixel, `[height, width, 3]`; shared by all who hold the picture.
    pub rgb: Arc<[u8]>,
}

impl Picture {
    /// The bytes of a PNG file.
    pub fn to_png(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let encoder = image::codecs::png::PngEncoder::new(&mut bytes);
        let (width, height) = (self.width as u32, self.height as u32);
        image::ImageEncoder::write_image(encoder, &self.rgb, width, height, image::ExtendedColorType::Rgb8)
            .map_err(std::io::Error::other)?;
        Ok(bytes)
    }
}

impl std::fmt::Debug for Picture {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Picture({}x{})", self.width, self.height)
    }
}

impl HeldBytes for Picture {
    fn held_bytes(&self) -> u64 {
        (size_of::<Self>() + self.rgb.len()) as u64
    }
}

/// Hands out decoded pictures by their path relative to a data set's root; used by many threads at once.
pub trait PictureSource: Send + Sync {
    /// Decodes the picture, or hands out one that is kept.
    ///
    /// # Errors
    /// The file is missing, broken or too large.
    fn picture(&self, path: &Path) -> Result<Picture, DataError>;
}

/// Why it is neither right nor wrong to find an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// COCO's `iscrowd`, a region of many: any number of detections may lie in it, and what counts is the share of a
    /// detection that does.
    Crowd,
    /// VOC's `difficult`, or a box that was left out: one detection may overlap it, and what counts is IoU.
    Difficult,
}

/// A box in pixels from the upper left corner of the picture: `left < right`, `top < bottom`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rectangle {
    /// The left edge.
    pub left: f32,
    /// The upper edge.
    pub top: f32,
    /// The right edge.
    pub right: f32,
    /// The lower edge.
    pub bottom: f32,
}

impl Rectangle {
    /// In pixels; negative where the edges are exchanged.
    pub fn width(&self) -> f32 {
        self.right - self.left
    }

    /// In pixels; negative where the edges are exchanged.
    pub fn height(&self) -> f32 {
        self.bottom - self.top
    }

    /// Square pixels; 0 where the edges are exchanged.
    pub fn area(&self) -> f32 {
        self.width().max(0.0) * self.height().max(0.0)
    }

    /// Intersection over union; 0 when either is empty.
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
