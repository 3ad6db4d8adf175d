//! What identifies bytes? SHA-256, in lower-case hexadecimal.

use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::error::DataError;
use crate::results::file;

pub fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// That of a file, a block at a time.
///
/// # Errors
/// The file does not read.
pub fn digest_of_file(path: &Path) -> Result<String, DataError> {
    let failed = |error: std::io::Error| DataError::file(path, format!("cannot be read: {error}"));
    // Nothing that never ends, or that waits for ever.
    let mut reader = file::open(path).map_err(failed)?;
    let mut hasher = Sha256::new();
    let mut block = vec![0; 64 * 1024];
    loop {
        match reader.read(&mut block).map_err(failed)? {
            0 => return Ok(hexadecimal(&hasher.finalize())),
            count => hasher.update(&block[..count]),
        }
    }
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_digest_of_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        let bytes: Vec<u8> = (0..200_000u32).map(|number| number as u8).collect();
        crate::results::write::replace(&path, &bytes).unwrap();
        assert_eq!(digest_of_file(&path).unwrap(), digest(&bytes));
        assert!(digest_of_file(&folder.path().join("none")).is_err());
    }
}
