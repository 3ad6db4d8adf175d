//! The threads that the CPU backend computes on.

use crate::task::TaskError;

/// Starts them. The backend would start them itself, and panic where the system gives none.
///
/// # Errors
/// The system gives no threads.
pub fn start() -> Result<(), TaskError> {
    match rayon::ThreadPoolBuilder::new().build_global() {
        // Without a cause they are there already.
        Err(error) if std::error::Error::source(&error).is_some() => Err(TaskError::Device(format!(
            "the threads that it computes on cannot be started: {}; `ulimit -u` says how many there may be, and \
             RAYON_NUM_THREADS asks for fewer",
            std::error::Error::source(&error).map_or_else(String::new, ToString::to_string)
        ))),
        _ => Ok(()),
    }
}
