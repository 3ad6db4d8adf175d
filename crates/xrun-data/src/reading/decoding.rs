//! Decoding of image files, and an upper bound of the memory that it takes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Seek, SeekFrom, Take};
use std::path::{Path, PathBuf};

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageReader, ImageResult, Limits};
use serde::{Deserialize, Serialize};

use super::orientation::{self, ExifOrientation};
use super::whole::FILE_BYTES_MAX;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::HostImage;
use xrun_core::files::file;
use xrun_core::settings::sections;
use xrun_core::units::Bytes;

/// Bytes of a pixel while it is decoded: four channels of 16 bits, and the three of 8 bits that they become; or the coefficients
/// of a progressive JPEG beside its pixels. Turning the three of 8 bits afterwards takes less.
const PIXEL_BYTES: u64 = 12;
/// Pixels of a block of a JPEG along each side: a decoder completes its blocks.
const BLOCK: u64 = 16;
/// Copies of a file in memory while it is decoded: its bytes, and those of the decoder.
const FILE_COPIES: u64 = 2;
/// Maximum of the metadata of a PNG, with the buffer in which they are collected and what is inflated of them.
const METADATA_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Row of a PNG as its decoder counts it, beside its metadata: of 65,535 pixels of four channels.
const ROW_BYTES: u64 = 256 * 1024;
/// Tables and buffers of a decoder, whatever the size of the image, beside rows that are twice as long while they grow.
const DECODER_BYTES: u64 = 3 * ROW_BYTES;
/// Maximum of what is read of a file for its size and orientation.
const HEAD_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Bytes that decoding an image takes at most; `length` is that of its file.
pub fn decoding_bytes(width: u64, height: u64, length: u64) -> u64 {
    let files = length.saturating_mul(FILE_COPIES);
    // Twice, as what is inflated grows by doubling.
    pixel_bytes(width, height).saturating_add(files).saturating_add(2 * metadata_bytes(length) + DECODER_BYTES)
}

/// Bytes for the metadata of a file: a chunk, its buffer of up to twice its length, or what it inflates to.
fn metadata_bytes(length: u64) -> u64 {
    length.saturating_mul(3).min(METADATA_BYTES_MAX)
}

fn pixel_bytes(width: u64, height: u64) -> u64 {
    // A file that was replaced since may claim any size.
    let [width, height] = [width, height].map(|side| side.saturating_add(BLOCK - 1) / BLOCK * BLOCK);
    width.saturating_mul(height).saturating_mul(PIXEL_BYTES)
}

/// Reader of an image whose decoder takes no more for metadata, such as a compressed colour profile, than [`decoding_bytes`] has
/// for them. A larger profile is left out, which changes no pixel; other metadata is never inflated.
fn bounded<R: BufRead + Seek>(mut file: R, most: u64) -> io::Result<ImageReader<Take<R>>> {
    let length = file.seek(SeekFrom::End(0))?.min(most);
    file.rewind()?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(metadata_bytes(length) + ROW_BYTES);
    let mut reader = ImageReader::new(file.take(length)).with_guessed_format()?;
    reader.limits(limits);
    Ok(reader)
}

/// Reader of the beginning of an image, which has its size and its orientation.
///
/// # Errors
/// The file does not read.
pub fn head_of<R: BufRead + Seek>(file: R) -> io::Result<ImageReader<Take<R>>> {
    bounded(file, HEAD_BYTES_MAX)
}

/// Decoder of all bytes of an image, in at most `most` bytes; its orientation by `rule`.
///
/// # Errors
/// Message: it cannot be decoded, or takes more.
pub fn decoder(bytes: &[u8], rule: ExifOrientation, most: u64) -> Result<(impl ImageDecoder, Orientation), String> {
    let opened = || {
        let mut decoder = bounded(Cursor::new(bytes), u64::MAX)?.into_decoder()?;
        let orientation = orientation::of(&mut decoder, rule)?;
        Ok((decoder, orientation))
    };
    let opened: ImageResult<_> = opened();
    let (decoder, orientation) = opened.map_err(|error| error.to_string())?;
    let (width, height) = decoder.dimensions();
    match decoding_bytes(width.into(), height.into(), bytes.len() as u64) {
        needed if needed > most => {
            Err(format!("decoding it takes up to {}, and there are {}", Bytes(needed), Bytes(most)))
        }
        _ => Ok((decoder, orientation)),
    }
}

/// Buffer of what all threads together may use to decode: the workers, and the training thread in a validation. `largest` is what
/// the largest file takes, a `noun`.
pub fn decoding_buffer(largest: Option<u64>, noun: &str, limits: &sections::Limits) -> Buffer {
    let threads = limits.workers as u64 + 1;
    let all = largest.map_or(u64::MAX, |largest| largest.saturating_mul(threads));
    Buffer::new("decoding", Policy::Block, Cap { items: threads, bytes: limits.decode_memory.0.min(all) })
        .key("limits.decode_memory")
        .because(format!("`limits.decode_memory`, or the largest {noun} once for each thread"))
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

/// Bytes that reading the header of a file takes; `name` is for messages.
///
/// # Errors
/// The file is not there.
pub fn head_bytes(path: &Path, name: &Path) -> Result<u64, DataError> {
    let length = std::fs::metadata(path).map(|about| about.len());
    let length = length.map_err(|error| DataError::file(name, format!("cannot be read: {error}")))?;
    Ok(decoding_bytes(0, 0, length.min(FILE_BYTES_MAX)))
}

/// Bytes that decoding a file takes, by its header; `name` is for messages. 0 pixels for a file that cannot be read.
///
/// # Errors
/// The file is not there.
pub fn needed(path: &Path, name: &Path) -> Result<u64, DataError> {
    let head = File::open(path).and_then(|file| head_of(BufReader::new(file))).ok();
    let (width, height) = head.and_then(|head| head.into_dimensions().ok()).unwrap_or_default();
    Ok(head_bytes(path, name)?.saturating_add(pixel_bytes(width.into(), height.into())))
}

/// A JPEG or PNG file as 8-bit RGB, turned as `rule` says, decoded in at most `most` bytes; `name` is for messages.
///
/// # Errors
/// The file does not read, or is no image that can be decoded.
pub fn decode(path: &Path, name: &Path, rule: ExifOrientation, most: u64) -> Result<HostImage, DataError> {
    let bytes = file::bytes(path, FILE_BYTES_MAX);
    let bytes = bytes.map_err(|error| DataError::file(name, format!("cannot be read: {error}")))?;
    decode_bytes(&bytes, rule, most)
        .map_err(|error| DataError::file(name, format!("{error}; repair it or take it out of the annotations")))
}

/// Does the same as [`decode`] with the bytes of the file.
///
/// # Errors
/// The file is not an image that can be decoded.
pub fn decode_bytes(bytes: &[u8], rule: ExifOrientation, most: u64) -> Result<HostImage, String> {
    let broken = |error: String| format!("the image cannot be decoded: {error}");
    let (decoder, orientation) = decoder(bytes, rule, most).map_err(broken)?;
    let decoded = DynamicImage::from_decoder(decoder).map_err(|error| broken(error.to_string()))?;
    let decoded = orientation::applied(decoded.into_rgb8(), orientation);
    Ok(HostImage { width: decoded.width() as usize, height: decoded.height() as usize, rgb: decoded.into_raw().into() })
}
