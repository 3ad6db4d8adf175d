//! Micro-batches that the CPU computes side by side.

use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::settings::sections::Limits;

/// Threads that the CPU computes on: `limits.threads`, or one for each core that the process may use, which a quota of its
/// container lowers.
pub fn threads(limits: &Limits) -> usize {
    match limits.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// Number of micro-batches that are computed at once: at most one a thread, with at most `limits.batch_size` items in all.
pub fn concurrent_micro_batches(limits: &Limits) -> usize {
    let parts = limits.batch_size / limits.micro_batch_size.clamp(1, limits.batch_size.max(1));
    threads(limits).min(parts).max(1)
}

/// Buffer of the gradients of the micro-batches that are computed side by side, before they are added up.
pub fn gradient_buffer(parameters: u64, limits: &Limits) -> Buffer {
    let parts = concurrent_micro_batches(limits) as u64;
    let cap = Cap { items: parts, bytes: parts * parameters * size_of::<f32>() as u64 };
    Buffer::new("part_gradients", Policy::Block, cap).key("limits.threads").because(
        "on the CPU, gradients of the parts of a batch that are at work at once: one a thread, and together at most \
         `limits.batch_size` items",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_items_are_at_work_than_the_limit_says() {
        let at_once = |batch_size, micro_batch_size, threads| {
            concurrent_micro_batches(&Limits { batch_size, micro_batch_size, threads, ..Limits::default() })
        };
        assert_eq!((at_once(32, 8, 2), at_once(32, 8, 16), at_once(8, 8, 16), at_once(4, 8, 16)), (2, 4, 1, 1));
        assert!(at_once(32, 8, 0) >= 1);
        let buffer = gradient_buffer(10, &Limits { micro_batch_size: 8, threads: 3, ..Limits::default() });
        assert_eq!((buffer.cap.items, buffer.cap.bytes), (3, 3 * 40));
    }
}
