//! The threads that the CPU backend computes on.

use xrun_core::task::TaskError;

/// Starts so many. The backend would start them itself, and panic where the system gives none.
///
/// # Errors
/// The system gives no threads.
pub fn start(threads: usize) -> Result<(), TaskError> {
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
        // Without a cause they are there already.
        Err(error) if std::error::Error::source(&error).is_some() => Err(none_given(&error)),
        _ => Ok(()),
    }
}

/// What is said where the system gives no more threads.
pub fn none_given(error: &rayon::ThreadPoolBuildError) -> TaskError {
    TaskError::Device(format!(
        "the threads that it computes on cannot be started: {}; `ulimit -u` says how many there may be, and \
         `limits.threads` asks for fewer",
        std::error::Error::source(error).map_or_else(String::new, ToString::to_string)
    ))
}
