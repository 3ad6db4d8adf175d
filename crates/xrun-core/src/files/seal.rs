//! Is what is read what was written? Every record and every line ends with a check over its own bytes.
//!
//! A record in JSON has `sha256` as its last member: SHA-256 of all bytes before the comma in front of it. A line of a
//! `.jsonl` file has `crc32`, which finds each change of up to 32 bits in a row: CRC-32 as in zlib, of the bytes before
//! that comma. A TOML file ends with a comment. What has no check is taken as it is: other tools make such files.

use sha2::{Digest, Sha256};

/// What every reader says of bytes that are not those that were written.
pub const DAMAGED: &str = "its bytes are not those that were written (the checksum differs): the disk or a copy damaged \
                           it, or it was edited; take the file from a copy";

/// A check does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

const RECORD_BEGIN: &[u8] = b",\n  \"sha256\": \"";
const RECORD_END: &[u8] = b"\"\n}\n";
const LINE_BEGIN: &[u8] = b",\"crc32\":\"";
const LINE_END: &[u8] = b"\"}";
const TEXT_BEGIN: &[u8] = b"# SHA-256 of all above, by which xrun knows that this file of a result is as it was: ";
const TEXT_END: &[u8] = b"\n";
const SHA_DIGITS: usize = 64;
const CRC_DIGITS: usize = 8;

/// Indented JSON as it is written: an object with its check; anything else as it is. Ends with a line break.
pub fn record(mut text: Vec<u8>) -> Vec<u8> {
    let Some(body) = text.strip_suffix(b"\n}").map(<[u8]>::len) else {
        text.push(b'\n');
        return text;
    };
    text.truncate(body);
    let check = sha(&text);
    [&text, RECORD_BEGIN, check.as_bytes(), RECORD_END].concat()
}

/// An object on one line with its check; anything else as it is.
pub fn line(text: String) -> String {
    match text.strip_suffix('}') {
        Some(body) if body.len() > 1 => format!("{body},\"crc32\":\"{}\"}}", crc(body.as_bytes())),
        _ => text,
    }
}

/// A text with its check as the last line, a comment.
pub fn text(text: &str) -> Vec<u8> {
    let check = sha(text.as_bytes());
    [text.as_bytes(), TEXT_BEGIN, check.as_bytes(), TEXT_END].concat()
}

/// Whether a record is as [`record`] made it.
pub fn check_record(bytes: &[u8]) -> Result<(), Damaged> {
    check(bytes, RECORD_BEGIN, SHA_DIGITS, RECORD_END, sha).map(drop)
}

/// Whether a line, without its line break, is as [`line`] made it; says whether there was a check.
pub fn check_line(bytes: &[u8]) -> Result<bool, Damaged> {
    check(bytes, LINE_BEGIN, CRC_DIGITS, LINE_END, crc)
}

/// Whether a text is as [`text`] made it; says whether there was a check.
pub fn check_text(bytes: &[u8]) -> Result<bool, Damaged> {
    check(bytes, TEXT_BEGIN, SHA_DIGITS, TEXT_END, sha)
}

fn check(bytes: &[u8], begin: &[u8], digits: usize, end: &[u8], of: impl Fn(&[u8]) -> String) -> Result<bool, Damaged> {
    let Some(at) = bytes.len().checked_sub(begin.len() + digits + end.len()) else { return Ok(false) };
    let (body, tail) = bytes.split_at(at);
    let (head, tail) = tail.split_at(begin.len());
    let (written, tail) = tail.split_at(digits);
    let different = |a: &[u8], b: &[u8]| a.iter().zip(b).filter(|(a, b)| a != b).count();
    match different(head, begin) + different(tail, end) {
        0 if of(body).as_bytes() == written => Ok(true),
        // Words around a check that are all but right were right once.
        0..=2 => Err(Damaged),
        _ => Ok(false),
    }
}

/// SHA-256 in hexadecimal.
pub fn sha(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn crc(bytes: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_check_can_be_computed_again_with_other_tools() {
        // python3 -c 'import zlib; print("%08x" % zlib.crc32(b"{\"step\":1"))'
        assert_eq!(line("{\"step\":1}".into()), "{\"step\":1,\"crc32\":\"17ccbd80\"}");
        // printf 'a = 1\n' | sha256sum
        let sealed = String::from_utf8(text("a = 1\n")).unwrap();
        assert!(sealed.ends_with(": cb78bd8a17f7b751fe0d4663366dcbc257204033ef7ddd64b1f2969573b5b2e2\n"));
        assert!(check_text(sealed.as_bytes()).is_ok());
    }

    #[test]
    fn what_has_no_check_is_taken() {
        assert_eq!(check_line(b"{\"step\":1}"), Ok(false));
        assert_eq!(check_record(b"{\n  \"step\": 1\n}\n"), Ok(()));
        assert_eq!(check_text(b"a = 1\n"), Ok(false));
        assert_eq!(line("[]".into()), "[]");
        assert_eq!(record(b"[]".to_vec()), b"[]\n");
    }

    proptest! {
        #[test]
        fn every_flipped_bit_is_seen(step in any::<u32>(), loss in -1e6f64..1e6, at in any::<prop::sample::Index>()) {
            let record_of = serde_json::json!({ "step": step, "loss": loss, "name": "näme" });
            let sealed = record(serde_json::to_vec_pretty(&record_of).unwrap());
            prop_assert!(check_record(&sealed).is_ok());
            let bit = at.index(sealed.len() * 8);
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(check_record(&flipped).is_err());
            let sealed = line(record_of.to_string());
            prop_assert_eq!(check_line(sealed.as_bytes()), Ok(true));
            let mut flipped = sealed.clone().into_bytes();
            let bit = at.index(flipped.len() * 8);
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(check_line(&flipped).is_err());
            let mut flipped = text(&sealed);
            prop_assert!(check_text(&flipped).is_ok());
            let bit = at.index(flipped.len() * 8);
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(check_text(&flipped).is_err());
        }
    }
}
