//! Orientation of images: phones store the pixels as the sensor has them, and state in EXIF how to rotate them.

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageResult, RgbImage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Treatment of the orientation that an image states in EXIF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExifOrientation {
    /// As people see it: rotated and mirrored as EXIF says.
    Apply,
    /// As the pixels are stored, for boxes from a program that does not rotate images.
    Ignore,
}

/// Transformation that the pixels of an image need.
///
/// # Errors
/// The image's headers do not read.
pub fn of(decoder: &mut impl ImageDecoder, rule: ExifOrientation) -> ImageResult<Orientation> {
    match rule {
        ExifOrientation::Apply => decoder.orientation(),
        ExifOrientation::Ignore => Ok(Orientation::NoTransforms),
    }
}

/// Returns whether width and height are exchanged.
pub fn swaps_sides(orientation: Orientation) -> bool {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    matches!(orientation, Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH)
}

/// Applies an orientation. A rotation by 90 degrees takes memory for a second image.
pub fn applied(image: RgbImage, orientation: Orientation) -> RgbImage {
    let mut image = DynamicImage::ImageRgb8(image);
    image.apply_orientation(orientation);
    image.into_rgb8()
}
