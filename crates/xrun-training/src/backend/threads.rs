//! Thread pools of the CPU backend.

use std::sync::OnceLock;

use rayon::{ThreadPool, ThreadPoolBuilder};
use xrun_core::task::TaskError;

/// Pool that has the training thread as a member, so that it works on each operation where it would else only wait. Nothing else may
/// use it: it has no other thread where `limits.threads` is 1.
static TRAINING: OnceLock<ThreadPool> = OnceLock::new();

/// Starts the threads, those of the calling thread's operations among them. The backend would start them on demand, and panic if that
/// fails.
///
/// # Errors
/// A thread cannot be started.
pub fn start(threads: usize) -> Result<(), TaskError> {
    let pool = || ThreadPoolBuilder::new().num_threads(threads);
    let mut started = pool().build_global();
    if started.is_ok() {
        started = pool().use_current_thread().build().map(|pool| drop(TRAINING.set(pool)));
    }
    match started {
        // Without a source the error is that the pool exists already, or that the thread is in one.
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
