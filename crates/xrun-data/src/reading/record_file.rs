//! An open file whose records are read when they are needed; only their positions are held.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A file that several threads read from.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    file: Mutex<File>,
}

impl RecordFile {
    /// Keeps an open file; `path` is its name in messages.
    pub fn new(path: &Path, file: File) -> Self {
        Self { path: path.to_owned(), file: Mutex::new(file) }
    }

    /// Name of the file, as the settings have it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of a record.
    ///
    /// # Errors
    /// The file cannot be read, or ends before.
    pub fn read(&self, offset: u64, length: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length as usize];
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
