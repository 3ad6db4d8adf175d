//! Header of a JPEG or PNG file, and the bounds of an image that may be decoded.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::Path;

use image::metadata::Orientation;
use image::{ImageDecoder, ImageError, ImageFormat};

use super::decoding::head_of;
use super::invalid::Fault;
use super::orientation::{self, ExifOrientation};
use super::whole::check_whole;
use xrun_core::printable;

/// The reason of a file of a format that is not read.
pub const OTHER_FORMAT: &str = "not_png_or_jpeg";
/// Formats that are read; of an animation the first frame.
const FORMATS: [ImageFormat; 4] = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP, ImageFormat::Gif];

/// Bounds of an image.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum number of pixels.
    pub pixels: u64,
    /// Maximum number of pixels along a side.
    pub side: u32,
    /// Maximum size of the file.
    pub file_bytes: u64,
}

/// Header of an image file. Width and height are as the pixels are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Format by the first bytes, whatever the file's name.
    pub format: ImageFormat,
    /// Transformation that the pixels need.
    pub orientation: Orientation,
}

/// Reads the beginning of an image and refuses what must not be decoded.
///
/// # Errors
/// It is neither PNG nor JPEG, broken, empty or too large.
pub fn head(reader: impl BufRead + Seek, bounds: Bounds, rule: ExifOrientation) -> Result<Head, Fault> {
    let reader = head_of(reader).map_err(|error| broken(&error))?;
    let format = reader.format().filter(|format| FORMATS.contains(format));
    let format =
        format.ok_or_else(|| (OTHER_FORMAT, "the image begins as none of PNG, JPEG, WebP and GIF".to_owned()))?;
    let mut decoder = reader.into_decoder().map_err(|error| failed(&error))?;
    let (width, height) = decoder.dimensions();
    let size = format!("the image is {width} x {height} pixels");
    if width == 0 || height == 0 {
        return Err(("broken_image", format!("{size}: it is empty")));
    }
    let (pixels, Bounds { pixels: pixels_max, side, .. }) = (u64::from(width) * u64::from(height), bounds);
    if width.max(height) > side {
        return Err(("too_large_image", format!("{size}, a side may have at most {side}")));
    }
    if pixels > pixels_max {
        return Err(("too_large_image", format!("{size}, {pixels} in all, at most {pixels_max} are decoded")));
    }
    let orientation = orientation::of(&mut decoder, rule).map_err(|error| failed(&error))?;
    Ok(Head { width, height, format, orientation })
}

/// Reads the header of a file of `length` bytes, and looks for its end.
///
/// # Errors
/// As [`head`], or it cannot be read, is too long or cut off.
pub fn head_of_file(path: &Path, length: u64, bounds: Bounds, rule: ExifOrientation) -> Result<Head, Fault> {
    let unreadable = |error: std::io::Error| ("broken_image", format!("cannot be read: {error}"));
    if length > bounds.file_bytes {
        return Err(("too_large_image", format!("has {length} bytes, at most {} are read", bounds.file_bytes)));
    }
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    let head = head(&mut file, bounds, rule)?;
    check_whole(file, head.format)?;
    Ok(head)
}

/// Fault of an image that a decoder does not read.
pub fn broken(error: &dyn std::fmt::Display) -> Fault {
    ("broken_image", format!("the image cannot be read: {}", printable::line(error.to_string().trim_end(), 200)))
}

/// Fault of an image that a decoder refuses.
pub fn failed(error: &ImageError) -> Fault {
    match error {
        ImageError::Limits(_) => ("too_large_image", format!("decoding the image takes too much: {error}")),
        error => broken(error),
    }
}
