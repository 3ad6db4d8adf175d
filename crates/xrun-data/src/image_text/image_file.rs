//! Conversion of an image file to a square of a few pixels: bounds before it is decoded, then turned, laid on white
//! and averaged, in whole numbers: the same bytes on every machine.

use std::io::{BufRead, Cursor, Seek};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::{DynamicImage, RgbImage};

use crate::reading::decoding::decoder;
use crate::reading::image_head::{self, Bounds, Head, broken, failed};
use crate::reading::invalid::Fault;
use crate::reading::orientation::{self, ExifOrientation};
use crate::reading::whole::check_whole;
use xrun_core::dataset::sample::HostImage;
use xrun_core::printable;

/// Bounds of an image: at most 192 MB when it is decoded.
pub const BOUNDS: Bounds = Bounds { pixels: 64_000_000, side: 32_768, file_bytes: 256 * 1024 * 1024 };

/// Looks at the beginning of an image and refuses what must not be decoded.
///
/// # Errors
/// It is neither PNG nor JPEG, broken, empty or too large.
pub fn head(reader: impl BufRead + Seek) -> Result<Head, Fault> {
    image_head::head(reader, BOUNDS, ExifOrientation::Apply)
}

/// The bytes of a `data:` URL.
///
/// # Errors
/// It is none of base64, or too long.
pub fn inline(url: &str) -> Result<Vec<u8>, Fault> {
    let shown = || printable::line(url.get(..url.floor_char_boundary(40)).unwrap_or_default(), 40);
    let wrong = |message: String| Err(("wrong_base64", message));
    let Some((_, text)) = url.split_once(',').filter(|(head, _)| head.ends_with(";base64")) else {
        return wrong(format!("a data URL begins with \"data:image/png;base64,\", found \"{}\"", shown()));
    };
    STANDARD.decode(text).or_else(|error| {
        wrong(format!("the image is no valid base64 ({error}); encode its file again, or name the file"))
    })
}

/// Decodes the whole bytes of a PNG or JPEG file as 8-bit RGB, in at most `most` bytes: turned as EXIF says, and what is
/// transparent laid on white.
///
/// # Errors
/// The errors of [`head`], or the file is cut off or damaged.
pub fn decode(bytes: &[u8], most: u64) -> Result<HostImage, Fault> {
    let Head { format, .. } = head(Cursor::new(bytes))?;
    check_whole(Cursor::new(bytes), format)?;
    let (decoder, turn) = decoder(bytes, ExifOrientation::Apply, most).map_err(|error| broken(&error))?;
    let decoded = DynamicImage::from_decoder(decoder).map_err(|error| failed(&error))?;
    let decoded = orientation::applied(on_white(decoded), turn);
    Ok(HostImage { width: decoded.width() as usize, height: decoded.height() as usize, rgb: decoded.into_raw().into() })
}

fn on_white(image: DynamicImage) -> RgbImage {
    if !image.color().has_alpha() {
        return image.into_rgb8();
    }
    let image = image.into_rgba8();
    let (width, height) = image.dimensions();
    let mixed = |channel: u8, alpha: u8| {
        let (channel, alpha) = (u32::from(channel), u32::from(alpha));
        ((channel * alpha + 255 * (255 - alpha) + 127) / 255) as u8
    };
    let rgb = image.pixels().flat_map(|pixel| {
        let [red, green, blue, alpha] = pixel.0;
        [mixed(red, alpha), mixed(green, alpha), mixed(blue, alpha)]
    });
    let rgb: Vec<u8> = rgb.collect();
    RgbImage::from_raw(width, height, rgb).unwrap_or_else(|| RgbImage::new(width, height))
}

/// The image as a square of `side` pixels, whatever its proportions: each pixel is the mean of what it covers, parts of
/// pixels by their share. One of that size stays as it is.
pub fn scaled(image: &HostImage, side: usize) -> HostImage {
    let HostImage { width, height, rgb } = image;
    let (width, height) = (*width, *height);
    if (width, height) == (side, side) {
        return image.clone();
    }
    let columns: Vec<Vec<(usize, u64)>> = (0..side).map(|x| covered(x, width, side).collect()).collect();
    // Of one row of the image, for each new column: in units of 255 times the width.
    let mut row = (usize::MAX, vec![0_u64; side * 3]);
    let mut scaled = Vec::with_capacity(side * side * 3);
    let area = (width * height) as u64;
    for y in 0..side {
        let mut sums = vec![0_u64; side * 3];
        for (from, share) in covered(y, height, side) {
            if row.0 != from {
                let pixels = &rgb[from * width * 3..][..width * 3];
                for (sum, column) in row.1.chunks_exact_mut(3).zip(&columns) {
                    sum.fill(0);
                    for (at, share) in column {
                        let pixel = &pixels[at * 3..][..3];
                        sum.iter_mut().zip(pixel).for_each(|(sum, channel)| *sum += u64::from(*channel) * share);
                    }
                }
                row.0 = from;
            }
            sums.iter_mut().zip(&row.1).for_each(|(sum, part)| *sum += part * share);
        }
        scaled.extend(sums.iter().map(|sum| ((sum + area / 2) / area) as u8));
    }
    HostImage { width: side, height: side, rgb: scaled.into() }
}

/// Weights of the `from` pixels that the new pixel `at` of `to` covers; their sum over all new pixels is `from`.
fn covered(at: usize, from: usize, to: usize) -> impl Iterator<Item = (usize, u64)> {
    let (begin, end) = (at * from, (at + 1) * from);
    (begin / to..end.div_ceil(to)).map(move |pixel| {
        let overlap = end.min((pixel + 1) * to) - begin.max(pixel * to);
        (pixel, overlap as u64)
    })
}

#[cfg(test)]
#[path = "image_file_tests.rs"]
pub(crate) mod tests;
