//! What can be wrong with data?

/// Data that cannot be used. The message names the item and says what to do; names are escaped by whoever prints.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// A file is missing, unreadable or broken.
    #[error("{path}: {message}")]
    File { path: String, message: String },
    /// The data set as a whole does not serve.
    #[error("{0}")]
    Content(String),
}

/// Names come from data files, where one may be as long as the file.
const TEXT_BYTES_MAX: usize = 2000;

impl DataError {
    /// Path and message are cut to a length that a person reads.
    pub fn file(path: &std::path::Path, message: impl Into<String>) -> Self {
        Self::File { path: cut(path.display().to_string()), message: cut(message.into()) }
    }

    /// As [`DataError::file`].
    pub fn content(message: impl Into<String>) -> Self {
        Self::Content(cut(message.into()))
    }
}

/// The beginning and the end say what is wrong and what to do; the middle goes.
fn cut(text: String) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    let (first, last) =
        (text.floor_char_boundary(TEXT_BYTES_MAX / 2), text.ceil_char_boundary(text.len() - TEXT_BYTES_MAX / 2));
    format!("{}…{}", &text[..first], &text[last..])
}
