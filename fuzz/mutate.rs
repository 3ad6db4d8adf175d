//! Mutations of valid files, as a failing disk, a careless author or an attacker would make them.

use rand::{Rng, RngExt};

/// Unexpected tokens to insert.
const TOKENS: [&[u8]; 40] = [
    b"-1",
    b"0",
    b"1e308",
    b"-1e308",
    b"1e999",
    b"NaN",
    b"nan",
    b"inf",
    b"9223372036854775807",
    b"18446744073709551616",
    b"4294967295",
    b"0.5",
    b"null",
    b"true",
    b"\"\"",
    b"\"../../etc/passwd\"",
    b"/dev/zero",
    b"[]",
    b"{}",
    b"[[[[[[[[",
    b"}",
    b"]",
    b"\"",
    b"'''",
    b"\\u0000",
    b"\\ud800",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\n",
    b"\r\n",
    b",",
    b"=",
    b".",
    b"a.b.c.d.e.f.g.h",
    b"<!DOCTYPE a [<!ENTITY b \"c\">]>&b;",
    b"</object><object>",
    b"\x1b[2J",
    "\u{202e}".as_bytes(),
    b"${HOME}",
];

/// Largest input; larger ones are slower without finding more.
const BYTES_MAX: usize = 256 * 1024;

/// Flips one random bit.
pub fn flip_bit(bytes: &[u8], random: &mut impl Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if !bytes.is_empty() {
        let bit = random.random_range(0..bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    bytes
}

/// Applies one to six random changes; parts of `other`, a file of the same kind, may be inserted.
pub fn mutate(bytes: &[u8], other: &[u8], random: &mut impl Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let changes = if random.random() { 1 } else { random.random_range(2..=6) };
    for _ in 0..changes {
        change(&mut bytes, other, random);
        bytes.truncate(BYTES_MAX);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut impl Rng) {
    let at = random.random_range(0..=bytes.len());
    let end = |random: &mut _, most: usize| (at + RngExt::random_range(random, 0..=most)).min(bytes.len());
    match random.random_range(0..12) {
        0 | 1 => *bytes = flip_bit(bytes, random),
        2 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.random();
            }
        }
        3 => {
            let end = end(random, 40);
            bytes.drain(at..end);
        }
        4 => bytes.truncate(at),
        5 => {
            let part: Vec<u8> = bytes[at..end(random, 200)].to_vec();
            let times = random.random_range(1..=20);
            bytes.splice(at..at, part.repeat(times));
        }
        6 | 7 => {
            let token = TOKENS[random.random_range(0..TOKENS.len())];
            let times = if random.random_bool(0.05) { random.random_range(1..2000) } else { 1 };
            bytes.splice(at..at, token.repeat(times));
        }
        8 | 9 => {
            // Replaces a number, a word or a string.
            let is_token_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-+\"".contains(byte);
            let from = bytes[..at].iter().rposition(|byte| !is_token_byte(byte)).map_or(0, |before| before + 1);
            let to = bytes[at..].iter().position(|byte| !is_token_byte(byte)).map_or(bytes.len(), |after| at + after);
            bytes.splice(from..to, TOKENS[random.random_range(0..TOKENS.len())].iter().copied());
        }
        10 => {
            let from = random.random_range(0..=other.len());
            let to = (from + random.random_range(0..400)).min(other.len());
            bytes.splice(at..at, other[from..to].iter().copied());
        }
        _ => {
            // Swaps two lines.
            let mut lines: Vec<Vec<u8>> = bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            if lines.len() > 1 {
                let (a, b) = (random.random_range(0..lines.len()), random.random_range(0..lines.len()));
                lines.swap(a, b);
                *bytes = lines.concat();
            }
        }
    }
}

/// Replaces the header of a safetensors file, and adjusts its length field.
pub fn with_header(file: &[u8], change: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let length = file.first_chunk::<8>().map_or(0, |length| u64::from_le_bytes(*length) as usize);
    let (header, tensors) = file[8..].split_at(length);
    let header = change(header);
    [&(header.len() as u64).to_le_bytes(), &header[..], tensors].concat()
}

/// Corrects the checksums of the chunks of a PNG, so that decoders read the chunks.
pub fn fix_png_checksums(png: &mut [u8]) {
    let mut at = 8;
    while let Some(head) = png.get(at..at + 8) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some(end) = length.checked_add(at + 8).filter(|end| end + 4 <= png.len()) else { return };
        let checksum = crc32fast::hash(&png[at + 4..end]);
        png[end..end + 4].copy_from_slice(&checksum.to_be_bytes());
        at = end + 4;
    }
}
