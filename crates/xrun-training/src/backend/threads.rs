//! Thread pool of the CPU backend.

use xrun_core::task::TaskError;

/// Starts the threads. The backend would start them on demand, and panic if that fails.
///
/// # Errors
/// A thread cannot be started.
pub fn start(threads: usize) -> Result<(), TaskError> {
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
        // Without a source the error is that the pool exists already.
        Err(error) if std::error::Error::source(&error).is_some() => Err(start_error(&error)),
        _ => Ok(()),
    }
}

/// Error for threads that cannot be started.
pub fn start_error(error: &rayon::ThreadPoolBuildError) -> TaskError {
    TaskError::Device(format!(
        "its threads cannot be started: {}; lower `limits.threads`, or raise the limit that `ulimit -u` shows",
        std::error::Error::source(error).map_or_else(String::new, ToString::to_string)
    ))
}
