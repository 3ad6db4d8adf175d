//! Which way up is a picture? Phones store the pixels as the sensor has them, and say in EXIF how to turn them.

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageResult, RgbImage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which way up a picture is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExifOrientation {
    /// As people see it: rotated and mirrored as EXIF says.
    Apply,
    /// As the pixels are stored, for boxes from a program that does not rotate pictures.
    Ignore,
}

/// What is to be done to the pixels of a picture.
///
/// # Errors
/// The picture's headers do not read.
pub fn of(decoder: &mut impl ImageDecoder, rule: ExifOrientation) -> ImageResult<Orientation> {
    match rule {
        ExifOrientation::Apply => decoder.orientation(),
        ExifOrientation::Ignore => Ok(Orientation::NoTransforms),
    }
}

/// Whether width and height change places.
pub fn swaps_sides(orientation: Orientation) -> bool {
    match orientation {
        Orientation::Rotate90 | Orientation::Rotate270 | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH => {
            true
        }
        Orientation::NoTransforms
        | Orientation::Rotate180
        | Orientation::FlipHorizontal
        | Orientation::FlipVertical => false,
    }
}

/// The picture as it is to be seen. Turning by a quarter takes a second picture while it is done.
pub fn applied(picture: RgbImage, orientation: Orientation) -> RgbImage {
    let mut picture = DynamicImage::ImageRgb8(picture);
    picture.apply_orientation(orientation);
    picture.into_rgb8()
}
