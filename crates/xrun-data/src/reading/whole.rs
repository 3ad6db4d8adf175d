//! Check that an image file was not cut off when it was copied, without decoding it.
//!
//! The JPEG decoder fills what is missing with grey and reports no error, so a file cut off would be trained on.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

use image::ImageFormat;

use super::invalid::Fault;

/// Bytes that some cameras add after the end.
const TAIL: u64 = 64;
/// Maximum size of an image file.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Refuses an image whose end is missing. Bytes after it (a film, a second image) are allowed.
///
/// # Errors
/// It is cut off, or cannot be read.
pub fn check_whole(file: impl BufRead + Seek, format: ImageFormat) -> Result<(), Fault> {
    match is_whole(file, format) {
        Ok(true) => Ok(()),
        Ok(false) => Err(("broken_image", "the image is cut off: its end is missing".into())),
        Err(error) => Err(("broken_image", format!("cannot be read: {error}"))),
    }
}

fn is_whole(mut file: impl BufRead + Seek, format: ImageFormat) -> io::Result<bool> {
    let length = file.seek(SeekFrom::End(0))?;
    if format == ImageFormat::WebP {
        // RIFF: the length of what follows, RFC 9649.
        let mut head = [0; 8];
        file.rewind()?;
        file.read_exact(&mut head)?;
        return Ok(u64::from(u32::from_le_bytes([head[4], head[5], head[6], head[7]])) + 8 <= length);
    }
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    if format == ImageFormat::Gif {
        // The trailer, GIF89a, section 27; any block may have its byte.
        let mut tail = Vec::new();
        file.take(TAIL).read_to_end(&mut tail)?;
        return Ok(tail.iter().rfind(|byte| **byte != 0) == Some(&b';'));
    }
    if contains(&mut file, end_of(format))? {
        return Ok(true);
    }
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
