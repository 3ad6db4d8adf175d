//! Files of questions: paragraphs are read from them when they are needed.

use std::fs::File;
use std::path::Path;

use super::squad::{self, Index, Paragraph, QuestionLocation};
use crate::reading::invalid::InvalidCollector;
use crate::reading::record_file::RecordFile;
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

/// Opens a question file and indexes it; its text is read once and not kept.
pub fn open_questions(path: &Path, invalid: &mut InvalidCollector) -> Result<(RecordFile, Index), DataError> {
    let failed = |error: std::io::Error| DataError::file(path, format!("cannot be read: {error}"));
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(DataError::file(path, format!("has more than {FILE_BYTES_MAX} bytes; cut it into several")));
    }
    let index = squad::index(&file, path, invalid)?;
    Ok((RecordFile::new(path, file), index))
}

impl Paragraphs for RecordFile {
    fn paragraph(&self, place: &QuestionLocation) -> Result<Paragraph, DataError> {
        let failed =
            |what: String| DataError::file(self.path(), format!("the paragraph at byte {} {what}", place.offset));
        let bytes = self.read(place.offset, place.length);
        let bytes = bytes.map_err(|error| failed(format!("cannot be read: {error}")))?;
        Paragraph::read(&bytes)
            .map_err(|error| failed(format!("is not what it was: {error}; the file was changed during the run")))
    }

    fn path(&self) -> &Path {
        RecordFile::path(self)
    }
}
