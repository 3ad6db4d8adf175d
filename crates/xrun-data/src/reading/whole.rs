//! Check that a JPEG or PNG file was not cut off when it was copied, without decoding it.
//!
//! The JPEG decoder fills what is missing with grey and reports no error, so a file cut off would be trained on.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use image::ImageFormat;

use super::invalid::Fault;

/// Bytes that some cameras add after the end.
const TAIL: u64 = 64;
/// Maximum size of an image file.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Returns whether the end of the image is in the file. Bytes after it (a film, a second image) are allowed.
pub fn is_whole(path: &Path, format: ImageFormat) -> io::Result<bool> {
    let mut file = BufReader::new(File::open(path)?);
    let length = file.get_ref().metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    Ok(contains(&mut file, end_of(format))? || has_end(file, format)?)
}

/// Returns the same as [`is_whole`] from the bytes of the file.
pub fn is_whole_in(bytes: &[u8], format: ImageFormat) -> bool {
    has_end(Cursor::new(bytes), format).unwrap_or(false)
}

/// Fault of an image whose end is missing: the rest of a JPEG would be decoded as grey.
pub fn cut_off() -> Fault {
    ("broken_image", "the image is cut off: its end is missing".into())
}

fn has_end(mut file: impl BufRead + Seek, format: ImageFormat) -> io::Result<bool> {
    let begin = if format == ImageFormat::Png { Some(0) } else { after_headers(&mut file)? };
    let Some(begin) = begin else { return Ok(false) };
    file.seek(SeekFrom::Start(begin))?;
    contains(&mut file, end_of(format))
}

fn end_of(format: ImageFormat) -> &'static [u8] {
    match format {
        ImageFormat::Png => b"IEND",
        _ => b"\xff\xd9", // EOI, ITU-T T.81, table B.1
    }
}

/// Looks for a part whose first byte occurs in it once.
fn contains(file: &mut impl BufRead, part: &[u8]) -> io::Result<bool> {
    let mut matched = 0;
    for byte in file.take(FILE_BYTES_MAX).bytes() {
        let byte = byte?;
        matched = if byte == part[matched] { matched + 1 } else { usize::from(byte == part[0]) };
        if matched == part.len() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Position of a JPEG's first start of scan: a thumbnail in the headers has an end of its own. From there on, 0xFF is followed
/// by 0 unless it begins a marker (ITU-T T.81, F.1.2.3).
fn after_headers(file: &mut (impl Read + Seek)) -> io::Result<Option<u64>> {
    const START_OF_SCAN: u8 = 0xda;
    let (mut at, mut header) = (2, [0; 4]);
    loop {
        file.seek(SeekFrom::Start(at))?;
        match file.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        match header {
            [0xff, START_OF_SCAN, ..] => return Ok(Some(at)),
            [0xff, 0xff, ..] => at += 1, // fill byte
            [0xff, _, high, low] => at += 2 + u64::from(u16::from_be_bytes([high, low])),
            _ => return Ok(None),
        }
    }
}
