//! How much heap is in use? A global allocator that counts what is asked for and given back.
//!
//! Heap in use shows a leak long before resident memory does, and never shows one that is only the system's allocator
//! keeping freed pages (`docs/architecture.md`, memory). On the CPU backend tensors live here, too.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The system's allocator with three counters; two or three relaxed atomic operations an allocation.
#[derive(Debug)]
pub struct CountingAllocator;

static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);
/// The highest since the mark was taken; [`PEAK_BYTES`] is the highest of the marks before.
static HIGH_BYTES: AtomicU64 = AtomicU64::new(0);
static PEAK_BYTES: AtomicU64 = AtomicU64::new(0);
static LIVE_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The system had no memory for this thread. Without a destructor and made at compile time, so that it can be used here.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Makes [`CountingAllocator`] the global allocator of a program; in its `main.rs`.
#[macro_export]
macro_rules! count_heap {
    () => {
        #[global_allocator]
        static ALLOCATOR: $crate::heap::CountingAllocator = $crate::heap::CountingAllocator;
    };
}

/// Whether this program counts its heap; without [`count_heap!`](crate::count_heap) all figures of the heap would be 0.
pub fn is_counted() -> bool {
    drop(std::hint::black_box(Box::new(0u8)));
    HIGH_BYTES.load(Relaxed) > 0
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapUse {
    /// Bytes that were asked for and not given back.
    pub bytes: u64,
    /// The highest that `bytes` has been.
    pub peak: u64,
    /// Allocations that were made and not given back.
    pub allocations: u64,
}

/// Reads the counters; costs some nanoseconds.
pub fn read() -> HeapUse {
    let bytes = LIVE_BYTES.load(Relaxed);
    let peak = PEAK_BYTES.load(Relaxed).max(HIGH_BYTES.load(Relaxed)).max(bytes);
    HeapUse { bytes, peak, allocations: LIVE_ALLOCATIONS.load(Relaxed) }
}

/// The highest that heap in use has been since the last call. One caller only, the trace: two would take the mark from
/// each other. The peak of [`read`] is not touched.
pub fn take_high() -> u64 {
    let high = HIGH_BYTES.load(Relaxed);
    PEAK_BYTES.fetch_max(high, Relaxed);
    let bytes = LIVE_BYTES.load(Relaxed);
    high.max(HIGH_BYTES.swap(bytes, Relaxed)).max(bytes)
}

fn grown(by: u64) {
    let live = LIVE_BYTES.fetch_add(by, Relaxed) + by;
    // A load is cheaper than a read-modify-write, and peaks are rare.
    if live > HIGH_BYTES.load(Relaxed) {
        HIGH_BYTES.fetch_max(live, Relaxed);
    }
}

// SAFETY: every call is passed on to the system's allocator with the arguments as they came.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        let pointer = unsafe { System.alloc(layout) };
        if pointer.is_null() {
            REFUSED.set(true);
        } else {
            LIVE_ALLOCATIONS.fetch_add(1, Relaxed);
            grown(layout.size() as u64);
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        if pointer.is_null() {
            REFUSED.set(true);
        } else {
            LIVE_ALLOCATIONS.fetch_add(1, Relaxed);
            grown(layout.size() as u64);
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) };
        LIVE_ALLOCATIONS.fetch_sub(1, Relaxed);
        LIVE_BYTES.fetch_sub(layout.size() as u64, Relaxed);
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        let new_pointer = unsafe { System.realloc(pointer, layout, new_size) };
        if new_pointer.is_null() {
            REFUSED.set(true);
        } else {
            let (old, new) = (layout.size() as u64, new_size as u64);
            if new >= old {
                grown(new - old);
            } else {
                LIVE_BYTES.fetch_sub(old - new, Relaxed);
            }
        }
        new_pointer
    }
}

/// From now on a program for which the system has no memory ends with this exit code and these words. Rust ends it by SIGABRT,
/// without a word of what to do; who asks for memory and goes on without it is left alone. Nothing changes where somebody
/// handles SIGABRT already.
#[cfg(unix)]
pub fn end_where_refused(exit_code: u8, words: &'static str) {
    if ENDING.set((exit_code, words)).is_err() {
        return;
    }
    // SAFETY: all zeros are a `sigaction` without flags and with an empty mask; the handler makes calls that a handler may make.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGABRT, std::ptr::null(), &mut before) == 0 && before.sa_sigaction == libc::SIG_DFL {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = aborted as *const () as libc::sighandler_t;
            libc::sigaction(libc::SIGABRT, &action, std::ptr::null_mut());
        }
    }
}

#[cfg(not(unix))]
pub fn end_where_refused(_: u8, _: &'static str) {}

#[cfg(unix)]
static ENDING: std::sync::OnceLock<(u8, &'static str)> = std::sync::OnceLock::new();

/// `abort` sends the signal to its own thread.
#[cfg(unix)]
extern "C" fn aborted(signal: libc::c_int) {
    if let Some((exit_code, words)) = ENDING.get().filter(|_| REFUSED.get()) {
        // SAFETY: the words live as long as the program. Lines of results are written whole, or cut by the next reader.
        unsafe {
            libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len());
            libc::_exit(libc::c_int::from(*exit_code));
        }
    }
    // A signal from outside, or another fault: it ends the process when the handler returns.
    // SAFETY: a handler may make both calls.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Free pages at the end of the heap that the C library keeps for the next step.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BYTES: i32 = 64 << 20;
/// Larger pieces are pages of their own, given back at once; the C library takes no higher limit.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const OWN_PAGES_BYTES: i32 = 32 << 20;

/// Lets the C library keep up to 64 MiB of free pages until [`return_free_pages`] is called. By itself it returns pages several
/// times a step and takes them again, which was 15 % of a language model's processor time. Nothing happens where the environment
/// says how the C library is to do it, or where that is another one. To be called before there are threads.
pub fn keep_free_pages() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let tuned = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let by_hand = std::env::var("GLIBC_TUNABLES").is_ok_and(|value| value.contains("glibc.malloc."));
        if by_hand || tuned("MALLOC_TRIM_THRESHOLD_") || tuned("MALLOC_MMAP_THRESHOLD_") {
            return;
        }
        // SAFETY: `mallopt` takes two numbers and keeps no pointer.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
            libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES_BYTES);
        }
    }
}

/// Asks the C library to give free heap pages back to the system. Returns whether it gave any; always `false` where
/// the C library has no such call.
pub fn return_free_pages() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: `malloc_trim` takes a number, keeps no pointer and may be called at any time.
        unsafe { libc::malloc_trim(0) == 1 }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_and_what_is_dropped_is_not() {
        const SIZE: usize = 64 << 20; // far above what other tests hold at the same time
        let before = read();
        let held = vec![1u8; SIZE];
        let during = read();
        assert!(during.bytes >= before.bytes + SIZE as u64 / 2, "{before:?} {during:?}");
        assert!(during.peak >= during.bytes.min(SIZE as u64));
        drop(held);
        assert!(read().bytes < during.bytes, "{during:?} {:?}", read());
    }
}
