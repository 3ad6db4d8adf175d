//! SHA-256 digests in lower-case hexadecimal.

use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::error::DataError;
use crate::files::file;

/// Digest of bytes in memory.
pub fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Digest of numbers as little-endian bytes, without a copy.
pub fn digest_of_numbers<'a>(numbers: impl IntoIterator<Item = &'a f32>) -> String {
    let mut hasher = Sha256::new();
    numbers.into_iter().for_each(|number| hasher.update(number.to_le_bytes()));
    hexadecimal(&hasher.finalize())
}

/// Digest of a file, read in blocks.
///
/// # Errors
/// The file is unreadable.
pub fn digest_of_file(path: &Path) -> Result<String, DataError> {
    // Regular files only: a pipe or device may block or never end.
    file::open(path)
        .and_then(digest_of_reader)
        .map_err(|error| DataError::file(path, format!("cannot be read: {error}")))
}

/// Digest of all bytes of a reader, read in blocks.
///
/// # Errors
/// It cannot be read.
pub fn digest_of_reader(mut reader: impl Read) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut block = vec![0; 64 * 1024];
    loop {
        match reader.read(&mut block)? {
            0 => return Ok(hexadecimal(&hasher.finalize())),
            count => hasher.update(&block[..count]),
        }
    }
}

/// Two lower-case digits per byte.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        // FIPS 180-4, example "abc".
        assert_eq!(digest(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
