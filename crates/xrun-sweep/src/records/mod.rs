//! The records of a sweep.

use std::io::ErrorKind;
use std::path::Path;

use xrun_core::files::file;

pub mod search;
pub mod sweep;
pub mod sweep_memory;

/// Reads the text of a record that a user may edit, at most this number of bytes; `None` where there is no file.
///
/// # Errors
/// The reason why it cannot be read.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<Option<String>, String> {
    match file::bytes(path, bytes_max) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| "is not UTF-8".to_owned()),
    }
}
