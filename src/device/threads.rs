//! The threads that the CPU backend computes on.

use crate::bounded::buffer::Buffer;
use crate::bounded::ledger::{Cap, Policy};
use crate::settings::sections::Limits;
#[cfg(feature = "train")]
use crate::task::TaskError;

/// How many there are: `limits.threads`, or one for each core that the process may use, which a quota of its container
/// lowers.
pub fn count(limits: &Limits) -> usize {
    match limits.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// How many parts of a batch are at work at once: not more than threads, nor more items than `limits.batch_size`.
pub fn parts_at_once(limits: &Limits) -> usize {
    let parts = limits.batch_size / limits.part_size.clamp(1, limits.batch_size.max(1));
    count(limits).min(parts).max(1)
}

/// Gradients of the parts of a batch that are computed side by side, each of so many parameters, before they are added up.
pub fn part_gradients(parameters: u64, limits: &Limits) -> Buffer {
    let parts = parts_at_once(limits) as u64;
    let cap = Cap { items: parts, bytes: parts * parameters * size_of::<f32>() as u64 };
    Buffer::new("part_gradients", Policy::Block, cap).key("limits.threads").because(
        "on the CPU, gradients of the parts of a batch that are at work at once: one a thread, and together at most \
         `limits.batch_size` items",
    )
}

/// Starts them. The backend would start them itself, and panic where the system gives none.
///
/// # Errors
/// The system gives no threads.
#[cfg(feature = "train")]
pub fn start(limits: &Limits) -> Result<(), TaskError> {
    match rayon::ThreadPoolBuilder::new().num_threads(count(limits)).build_global() {
        // Without a cause they are there already.
        Err(error) if std::error::Error::source(&error).is_some() => Err(TaskError::Device(format!(
            "the threads that it computes on cannot be started: {}; `ulimit -u` says how many there may be, and \
             `limits.threads` asks for fewer",
            std::error::Error::source(&error).map_or_else(String::new, ToString::to_string)
        ))),
        _ => Ok(()),
    }
}
