//! Decoding of image files, and an upper bound of the memory that it takes.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use image::{DynamicImage, ImageDecoder, ImageError, ImageReader, Limits};
use serde::{Deserialize, Serialize};

use super::orientation::{self, ExifOrientation};
use super::whole::FILE_BYTES_MAX;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::HostImage;
use xrun_core::settings::sections;
use xrun_core::units::Bytes;

/// Maximum memory of a decoder with the decoded image, in bytes.
const DECODE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Bytes of a pixel while it is decoded: four channels of 16 bits, and the three of 8 bits that they become; or the coefficients
/// of a progressive JPEG beside its pixels. Turning the three of 8 bits afterwards takes less.
const PIXEL_BYTES: u64 = 12;
/// Tables and buffers of a decoder, whatever the size of the image.
const DECODER_BYTES: u64 = 256 * 1024;

/// Bytes that decoding an image takes at most; `length` is that of its file.
pub fn decoding_bytes(width: u64, height: u64, length: u64) -> u64 {
    // A file that was replaced since may claim any size.
    width.saturating_mul(height).saturating_mul(PIXEL_BYTES).saturating_add(length + DECODER_BYTES)
}

/// The image of a data set that takes most memory to decode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Largest {
    /// Relative to the root.
    pub path: PathBuf,
    /// Width in pixels, with its orientation applied.
    pub width: u64,
    /// Height in pixels, with its orientation applied.
    pub height: u64,
    /// Bytes that decoding it takes, at most.
    pub bytes: u64,
}

/// Refuses an image that could never be decoded.
///
/// # Errors
/// The largest one needs more than `limits.decode_memory`.
pub fn fits(largest: Option<&Largest>, limits: &sections::Limits) -> Result<(), DataError> {
    match largest {
        Some(Largest { path, width, height, bytes }) if *bytes > limits.decode_memory.0 => Err(DataError::file(
            path,
            format!(
                "is {width} x {height} pixels, and decoding it takes up to {}, more than `limits.decode_memory` = {}; make \
                 the image smaller, or raise the limit",
                Bytes(*bytes),
                limits.decode_memory
            ),
        )),
        _ => Ok(()),
    }
}

/// Bytes that decoding a file takes, by its header; `name` is for messages. 0 pixels for a file that cannot be read.
///
/// # Errors
/// The file is not there.
pub fn needed(path: &Path, name: &Path) -> Result<u64, DataError> {
    let length = std::fs::metadata(path).map(|about| about.len());
    let length = length.map_err(|error| DataError::file(name, format!("cannot be read: {error}")))?;
    let head = ImageReader::open(path).and_then(ImageReader::with_guessed_format).ok();
    let (width, height) = head.and_then(|head| head.into_dimensions().ok()).unwrap_or_default();
    Ok(decoding_bytes(width.into(), height.into(), length.min(FILE_BYTES_MAX)))
}

/// A JPEG or PNG file as 8-bit RGB, turned as `rule` says; `name` is for messages.
///
/// # Errors
/// The file does not read, or is no image that can be decoded.
pub fn decode(path: &Path, name: &Path, rule: ExifOrientation) -> Result<HostImage, DataError> {
    let bytes = read(path).map_err(|error| DataError::file(name, format!("cannot be read: {error}")))?;
    decode_bytes(&bytes, rule)
        .map_err(|error| DataError::file(name, format!("{error}; repair it or take it out of the annotations")))
}

/// Does the same as [`decode`] with the bytes of the file.
///
/// # Errors
/// The file is not an image that can be decoded.
pub fn decode_bytes(bytes: &[u8], rule: ExifOrientation) -> Result<HostImage, String> {
    let broken = |error: String| format!("the image cannot be decoded: {error}");
    let mut reader =
        ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|error| broken(error.to_string()))?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(DECODE_BYTES_MAX);
    reader.limits(limits.clone());
    let decoded = |reader: ImageReader<_>| {
        let mut decoder = reader.into_decoder()?;
        // The image itself counts as well, as in `ImageReader::decode`.
        limits.reserve(decoder.total_bytes())?;
        decoder.set_limits(limits)?;
        let orientation = orientation::of(&mut decoder, rule)?;
        Ok(orientation::applied(DynamicImage::from_decoder(decoder)?.into_rgb8(), orientation))
    };
    let decoded = decoded(reader).map_err(|error: ImageError| broken(error.to_string()))?;
    Ok(HostImage { width: decoded.width() as usize, height: decoded.height() as usize, rgb: decoded.into_raw().into() })
}

/// Reads a file up to the cap, in case it grew since the data set was opened.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len().min(FILE_BYTES_MAX);
    let mut bytes = Vec::with_capacity(length as usize + 1);
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
