//! Check that a JPEG or PNG file was not cut off when it was copied, without decoding it.
//!
//! The JPEG decoder fills what is missing with grey and reports no error, so a file cut off would be trained on.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use image::ImageFormat;

/// Bytes that some cameras add after the end.
const TAIL: u64 = 64;
/// Maximum size of an image file.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Returns whether the end of the image is in the file. Bytes after it (a film, a second image) are allowed.
pub fn is_whole(path: &Path, format: ImageFormat) -> io::Result<bool> {
    let end = end_of(format);
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.by_ref().take(TAIL).read_to_end(&mut tail)?;
    if contains(&tail, end) {
        return Ok(true);
    }
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(is_whole_in(&bytes, format))
}

/// Returns the same as [`is_whole`] from the bytes of the file.
pub fn is_whole_in(bytes: &[u8], format: ImageFormat) -> bool {
    match format {
        ImageFormat::Png => contains(bytes, end_of(format)),
        _ => contains(after_headers(bytes), end_of(format)),
    }
}

fn end_of(format: ImageFormat) -> &'static [u8] {
    match format {
        ImageFormat::Png => b"IEND",
        _ => b"\xff\xd9", // EOI, ITU-T T.81, table B.1
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Bytes from a JPEG's first start of scan on: a thumbnail in the headers has an end of its own. There, 0xFF is followed
/// by 0 unless it begins a marker (ITU-T T.81, F.1.2.3).
fn after_headers(bytes: &[u8]) -> &[u8] {
    const START_OF_SCAN: u8 = 0xda;
    let mut at = 2;
    while let Some([0xff, marker, high, low]) = bytes.get(at..at + 4) {
        match *marker {
            START_OF_SCAN => return &bytes[at..],
            0xff => at += 1, // fill byte
            _ => at += 2 + usize::from(u16::from_be_bytes([*high, *low])),
        }
    }
    &[]
}
