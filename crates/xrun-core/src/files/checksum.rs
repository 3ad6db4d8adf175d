//! Checksums inside records and lines.
//!
//! A JSON record has `sha256` as its last member: SHA-256 of all bytes before the comma in front of it. A line of a `.jsonl`
//! file has `crc32`, the CRC-32 of zlib over the bytes before that comma, which detects every burst of up to 32 bits. A
//! TOML file ends with a comment. A record without a checksum is accepted, because other tools write such files.

use std::borrow::Cow;
use std::io::{self, Read};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dataset::digest::digest;

/// Message about a file whose checksum does not match.
pub const DAMAGED: &str = "its checksum differs from the one it was written with: it was edited, or damaged by the disk \
                           or a copy; restore it from a backup";

/// Error of a checksum that does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// Lines at the beginning of a file, by which missing lines are noticed: each line has its checksum, the file has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LineSum {
    /// Number of lines.
    pub lines: u64,
    /// CRC-32 of zlib over all their bytes, with line breaks.
    pub crc32: u32,
}

impl LineSum {
    /// Adds whole lines.
    pub fn add(&mut self, text: &[u8]) {
        self.lines += text.iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.crc32 = extend_crc(self.crc32, text);
    }

    /// Reads a file from its position to its end. Returns the sum of its whole lines and their length in bytes.
    ///
    /// # Errors
    /// Reading fails.
    pub fn read(mut file: impl Read) -> io::Result<(Self, u64)> {
        let (mut sum, mut length, mut read) = (Self::default(), 0, 0);
        // CRC-32 of everything so far, with a line that may be incomplete.
        let mut crc32 = 0;
        let mut block = [0; 16 * 1024];
        loop {
            let count = match file.read(&mut block) {
                Ok(0) => return Ok((sum, length)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count?,
            };
            let end = block[..count].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            if end > 0 {
                sum.crc32 = crc32;
                sum.add(&block[..end]);
                (crc32, length) = (sum.crc32, read + end as u64);
            }
            crc32 = extend_crc(crc32, &block[end..count]);
            read += count as u64;
        }
    }
}

fn extend_crc(crc32: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc32);
    hasher.update(bytes);
    hasher.finalize()
}

const RECORD_BEGIN: &[u8] = b",\n  \"sha256\": \"";
const RECORD_END: &[u8] = b"\"\n}\n";
const LINE_BEGIN: &[u8] = b",\"crc32\":\"";
const LINE_END: &[u8] = b"\"}";
const TEXT_BEGIN: &[u8] = b"# sha256 of the lines above: ";
const TEXT_END: &[u8] = b"\n";
const SHA_DIGITS: usize = 64;
const CRC_DIGITS: usize = 8;

/// Adds the checksum to an object in indented JSON, and a final line break. Other JSON gets no checksum.
pub fn record(mut text: Vec<u8>) -> Vec<u8> {
    let Some(body) = text.strip_suffix(b"\n}").map(<[u8]>::len) else {
        text.push(b'\n');
        return text;
    };
    text.truncate(body);
    let checksum = digest(&text);
    [&text, RECORD_BEGIN, checksum.as_bytes(), RECORD_END].concat()
}

/// Adds the checksum to a JSON object on one line. Other text is unchanged.
pub fn line(text: String) -> String {
    match text.strip_suffix('}') {
        Some(body) if body.len() > 1 => format!("{body},\"crc32\":\"{}\"}}", crc(body.as_bytes())),
        _ => text,
    }
}

/// Adds the checksum as the last line of a text, a comment.
pub fn text<'a>(text: impl Into<Cow<'a, str>>) -> Vec<u8> {
    let mut text = text.into().into_owned().into_bytes();
    let checksum = digest(&text);
    [TEXT_BEGIN, checksum.as_bytes(), TEXT_END].iter().for_each(|part| text.extend_from_slice(part));
    text
}

/// Text of [`text`] without its checksum; another text is unchanged.
pub fn without_checksum(text: &str) -> &str {
    let begin = std::str::from_utf8(TEXT_BEGIN).unwrap_or_default();
    text.rfind(begin).filter(|_| matches!(check_text(text.as_bytes()), Ok(true))).map_or(text, |at| &text[..at])
}

/// Verifies a record of [`record`].
pub fn check_record(bytes: &[u8]) -> Result<(), Damaged> {
    check(bytes, RECORD_BEGIN, SHA_DIGITS, RECORD_END, digest).map(drop)
}

/// Verifies a line of [`line`], without its line break. Returns `false` if it has no checksum.
pub fn check_line(bytes: &[u8]) -> Result<bool, Damaged> {
    check(bytes, LINE_BEGIN, CRC_DIGITS, LINE_END, crc)
}

/// Verifies a text of [`text`]. Returns `false` if it has no checksum.
pub fn check_text(bytes: &[u8]) -> Result<bool, Damaged> {
    check(bytes, TEXT_BEGIN, SHA_DIGITS, TEXT_END, digest)
}

fn check(
    bytes: &[u8],
    begin: &[u8],
    digits: usize,
    end: &[u8],
    checksum: impl Fn(&[u8]) -> String,
) -> Result<bool, Damaged> {
    let Some(at) = bytes.len().checked_sub(begin.len() + digits + end.len()) else { return Ok(false) };
    let (body, tail) = bytes.split_at(at);
    let (head, tail) = tail.split_at(begin.len());
    let (written, tail) = tail.split_at(digits);
    let differences = |a: &[u8], b: &[u8]| a.iter().zip(b).filter(|(a, b)| a != b).count();
    match differences(head, begin) + differences(tail, end) {
        0 if checksum(body).as_bytes() == written => Ok(true),
        // A frame that is almost right is a damaged frame, not a missing one.
        0..=2 => Err(Damaged),
        _ => Ok(false),
    }
}

fn crc(bytes: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_other_tools() {
        // python3 -c 'import zlib; print("%08x" % zlib.crc32(b"{\"step\":1"))'
        assert_eq!(line("{\"step\":1}".into()), "{\"step\":1,\"crc32\":\"17ccbd80\"}");
        // printf 'a = 1\n' | sha256sum
        let sealed = String::from_utf8(text("a = 1\n")).unwrap();
        assert!(sealed.ends_with(": cb78bd8a17f7b751fe0d4663366dcbc257204033ef7ddd64b1f2969573b5b2e2\n"));
        assert!(check_text(sealed.as_bytes()).is_ok());
    }

    #[test]
    fn text_without_a_checksum_is_accepted() {
        assert_eq!(check_line(b"{\"step\":1}"), Ok(false));
        assert_eq!(check_record(b"{\n  \"step\": 1\n}\n"), Ok(()));
        assert_eq!(check_text(b"a = 1\n"), Ok(false));
        assert_eq!(line("[]".into()), "[]");
        assert_eq!(record(b"[]".to_vec()), b"[]\n");
    }

    #[test]
    fn a_file_of_lines_has_the_sum_of_its_whole_lines() {
        // python3 -c 'import zlib; print(zlib.crc32(b"{\"step\":1}\n{\"step\":2}\n"))'
        let whole = LineSum { lines: 2, crc32: 3766376571 };
        let (mut sum, text) = (LineSum::default(), "{\"step\":1}\n{\"step\":2}\n");
        text.split_inclusive('\n').for_each(|line| sum.add(line.as_bytes()));
        assert_eq!(sum, whole);
        assert_eq!(LineSum::read(text.as_bytes()).unwrap(), (whole, text.len() as u64));
        assert_eq!(
            LineSum::read(format!("{text}{}", "incomplete".repeat(4000)).as_bytes()).unwrap(),
            (whole, text.len() as u64)
        );
        let long = format!("{}\n", "x".repeat(40_000));
        assert_eq!(
            LineSum::read(long.as_bytes()).unwrap(),
            (LineSum { lines: 1, crc32: crc32fast::hash(long.as_bytes()) }, 40_001)
        );
    }
}
