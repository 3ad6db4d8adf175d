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

impl DataError {
    pub fn file(path: &std::path::Path, message: impl Into<String>) -> Self {
        Self::File { path: path.display().to_string(), message: message.into() }
    }
}
