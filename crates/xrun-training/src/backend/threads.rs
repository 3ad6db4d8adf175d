//! Thread pools of the CPU backend.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rayon::{ThreadPool, ThreadPoolBuilder};
use xrun_core::settings::sections::Waiting;
use xrun_core::task::TaskError;

/// Pool that has the training thread as a member, so that it works on each operation where it would else only wait. Nothing else may
/// use it: it has no other thread where `limits.threads` is 1.
static TRAINING: OnceLock<(ThreadPool, Waiting)> = OnceLock::new();

/// Longest time without an operation after which threads sleep; most are shorter in a step.
const GAP: Duration = Duration::from_micros(300);

/// Starts the threads, those of the calling thread's operations among them. The backend would start them on demand, and panic if that
/// fails.
///
/// # Errors
/// A thread cannot be started.
pub fn start(threads: usize, waiting: Waiting) -> Result<(), TaskError> {
    let pool = || ThreadPoolBuilder::new().num_threads(threads);
    let mut started = pool().build_global();
    if started.is_ok() {
        started = pool().use_current_thread().build().map(|pool| drop(TRAINING.set((pool, waiting))));
    }
    match started {
        // Without a source the error is that the pool exists already, or that the thread is in one.
        Err(error) if std::error::Error::source(&error).is_some() => Err(start_error(&error)),
        _ => Ok(()),
    }
}

/// Runs `work` on the training thread while the other threads of its pool look for operations, if they are to: one that sleeps takes
/// longer to wake than many operations take. They make way for other threads, and sleep after [`GAP`] without an operation.
pub fn awake<R>(work: impl FnOnce() -> R) -> R {
    let pool = TRAINING.get().filter(|(pool, waiting)| {
        *waiting == Waiting::Spin && pool.current_num_threads() > 1 && pool.current_thread_index() == Some(0)
    });
    let Some((pool, _)) = pool else { return work() };
    let running = Running(Arc::default());
    let ended = running.0.clone();
    pool.spawn_broadcast(move |context| {
        let mut last = Instant::now();
        while context.index() > 0 && last.elapsed() < GAP && !ended.load(Ordering::Relaxed) {
            match rayon::yield_now() {
                Some(rayon::Yield::Executed) => last = Instant::now(),
                _ => std::thread::yield_now(),
            }
        }
    });
    let result = work();
    // Takes the training thread's own part of the broadcast, so that none are left.
    rayon::yield_local();
    result
}

/// Sets its flag when it is dropped.
struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Error for threads that cannot be started.
pub fn start_error(error: &rayon::ThreadPoolBuildError) -> TaskError {
    TaskError::Device(format!(
        "its threads cannot be started: {}; lower `limits.threads`, or raise the limit that `ulimit -u` shows",
        std::error::Error::source(error).map_or_else(String::new, ToString::to_string)
    ))
}
