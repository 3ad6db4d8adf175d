//! Files of questions: paragraphs are read from them when they are needed.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::squad::{self, Index, Paragraph, QuestionLocation};
use crate::reading::invalid::InvalidCollector;
use crate::reading::parquet;
use xrun_core::dataset::error::DataError;

/// Maximum size of a question file; SQuAD's training file has 30 MB.
const FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Source of paragraphs with questions, which are read when an example needs one.
pub trait Paragraphs: std::fmt::Debug + Send + Sync + 'static {
    /// Reads one paragraph.
    ///
    /// # Errors
    /// It cannot be read any more.
    fn paragraph(&self, place: &QuestionLocation) -> Result<Paragraph, DataError>;

    /// Name of the source in messages.
    fn path(&self) -> &Path;
}

/// An open question file, or the rows of a Parquet file. Only the index of it is held.
#[derive(Debug)]
pub struct QuestionFile {
    path: PathBuf,
    file: Mutex<File>,
}

impl QuestionFile {
    /// Opens a file and indexes it; its text is read once and not kept.
    pub fn open(path: &Path, invalid: &mut InvalidCollector) -> Result<(Self, Index), DataError> {
        let failed = |error: std::io::Error| DataError::file(path, format!("cannot be read: {error}"));
        let rows = parquet::json_lines(path)?;
        let file = File::open(rows.as_deref().unwrap_or(path)).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() > FILE_BYTES_MAX {
            return Err(DataError::file(path, format!("has more than {FILE_BYTES_MAX} bytes; cut it into several")));
        }
        let index = squad::index(&file, path, invalid)?;
        Ok((Self { path: path.to_owned(), file: Mutex::new(file) }, index))
    }
}

impl Paragraphs for QuestionFile {
    fn paragraph(&self, place: &QuestionLocation) -> Result<Paragraph, DataError> {
        let mut bytes = vec![0; place.length as usize];
        let read = {
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.seek(SeekFrom::Start(place.offset)).and_then(|_| file.read_exact(&mut bytes))
        };
        let at = place.offset;
        let said = |what: String| DataError::file(&self.path, format!("the paragraph at byte {at} {what}"));
        read.map_err(|error| said(format!("cannot be read: {error}")))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| said(format!("is not what it was: {error}; the file was changed during the run")))
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
