//! Global allocator that counts the heap in use.
//!
//! Heap in use shows a leak long before RSS does, and is not raised by freed pages that the C library retains
//! (`docs/architecture.md`). Tensors of the CPU backend are on this heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::allocation_sampling;

/// The system's allocator with counters; two or three relaxed atomic operations per allocation.
#[derive(Debug)]
pub struct CountingAllocator;

static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);
/// Peak since the last [`take_peak`]; [`EARLIER_PEAK_BYTES`] is the peak before it.
static INTERVAL_PEAK_BYTES: AtomicU64 = AtomicU64::new(0);
static EARLIER_PEAK_BYTES: AtomicU64 = AtomicU64::new(0);
static LIVE_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Number of size classes of large allocations.
pub const SIZE_CLASSES: usize = 6;
/// Smallest size of the first class in bytes. Each class begins at four times the size of the one before; smaller allocations,
/// which are frequent, are in none.
pub const LARGE_MIN: usize = 64 << 10;
/// Number and bytes of the live allocations of each size class.
static LARGE_ALLOCATIONS: [(AtomicU64, AtomicU64); SIZE_CLASSES] =
    [const { (AtomicU64::new(0), AtomicU64::new(0)) }; SIZE_CLASSES];

/// Number and bytes of the live allocations of each size class; the last class has no upper end.
pub fn size_classes() -> [(u64, u64); SIZE_CLASSES] {
    std::array::from_fn(|class| (LARGE_ALLOCATIONS[class].0.load(Relaxed), LARGE_ALLOCATIONS[class].1.load(Relaxed)))
}

/// Size class of a large allocation.
fn size_class(size: usize) -> usize {
    (((size / LARGE_MIN).ilog2() / 2) as usize).min(SIZE_CLASSES - 1)
}

fn count_large(size: usize) {
    if size >= LARGE_MIN {
        let (count, bytes) = &LARGE_ALLOCATIONS[size_class(size)];
        count.fetch_add(1, Relaxed);
        bytes.fetch_add(size as u64, Relaxed);
    }
}

fn uncount_large(size: usize) {
    if size >= LARGE_MIN {
        let (count, bytes) = &LARGE_ALLOCATIONS[size_class(size)];
        count.fetch_sub(1, Relaxed);
        bytes.fetch_sub(size as u64, Relaxed);
    }
}

thread_local! {
    /// Set when an allocation of this thread failed. Const-initialised and without a destructor, because an allocator may run
    /// before and after thread-local destructors.
    static ALLOCATION_FAILED: Cell<bool> = const { Cell::new(false) };
}

/// Makes [`CountingAllocator`] the global allocator; belongs in the `main.rs` of a program.
#[macro_export]
macro_rules! count_heap {
    () => {
        #[global_allocator]
        static ALLOCATOR: $crate::heap::CountingAllocator = $crate::heap::CountingAllocator;
    };
}

/// `true` if the program uses [`count_heap!`](crate::count_heap); otherwise all figures of the heap are 0.
pub fn is_counted() -> bool {
    drop(std::hint::black_box(Box::new(0u8)));
    INTERVAL_PEAK_BYTES.load(Relaxed) > 0
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapUse {
    /// Bytes allocated and not freed.
    pub bytes: u64,
    /// Highest value of `bytes` since the start.
    pub peak: u64,
    /// Allocations not freed.
    pub allocations: u64,
}

/// Reads the counters; costs some nanoseconds.
pub fn read() -> HeapUse {
    let bytes = LIVE_BYTES.load(Relaxed);
    let peak = EARLIER_PEAK_BYTES.load(Relaxed).max(INTERVAL_PEAK_BYTES.load(Relaxed)).max(bytes);
    HeapUse { bytes, peak, allocations: LIVE_ALLOCATIONS.load(Relaxed) }
}

/// Returns the peak of the heap in use since the last call, and starts the next interval. Only the memory trace calls it:
/// two callers would shorten each other's interval. The peak of [`read`] is unaffected.
pub fn take_peak() -> u64 {
    let high = INTERVAL_PEAK_BYTES.load(Relaxed);
    EARLIER_PEAK_BYTES.fetch_max(high, Relaxed);
    let bytes = LIVE_BYTES.load(Relaxed);
    high.max(INTERVAL_PEAK_BYTES.swap(bytes, Relaxed)).max(bytes)
}

fn add_live_bytes(by: u64) {
    let live = LIVE_BYTES.fetch_add(by, Relaxed) + by;
    // A load is cheaper than a read-modify-write, and peaks are rare.
    if live > INTERVAL_PEAK_BYTES.load(Relaxed) {
        INTERVAL_PEAK_BYTES.fetch_max(live, Relaxed);
    }
}

fn allocated(pointer: *mut u8, size: usize) {
    if allocation_sampling::should_count_allocation(pointer, size) {
        LIVE_ALLOCATIONS.fetch_add(1, Relaxed);
        add_live_bytes(size as u64);
        count_large(size);
    }
}

/// Counts an allocation that is freed. Must be called before the memory is freed: afterwards another thread may get the address.
fn freed(pointer: *mut u8, size: usize) {
    if allocation_sampling::should_count_free(pointer) {
        LIVE_ALLOCATIONS.fetch_sub(1, Relaxed);
        LIVE_BYTES.fetch_sub(size as u64, Relaxed);
        uncount_large(size);
    }
}

// SAFETY: every call is passed on to the system's allocator with the arguments as they came.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        let pointer = unsafe { System.alloc(layout) };
        match pointer.is_null() {
            true => ALLOCATION_FAILED.set(true),
            false => allocated(pointer, layout.size()),
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        match pointer.is_null() {
            true => ALLOCATION_FAILED.set(true),
            false => allocated(pointer, layout.size()),
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        freed(pointer, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) };
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let counted = allocation_sampling::should_count_free(pointer);
        // SAFETY: as above.
        let new_pointer = unsafe { System.realloc(pointer, layout, new_size) };
        if new_pointer.is_null() {
            ALLOCATION_FAILED.set(true);
        } else if counted {
            uncount_large(layout.size());
            count_large(new_size);
            let (old, new) = (layout.size() as u64, new_size as u64);
            // Counts the difference only: counting old and new block together would record a peak that never was.
            if new >= old {
                add_live_bytes(new - old);
            } else {
                LIVE_BYTES.fetch_sub(old - new, Relaxed);
            }
            allocation_sampling::should_count_allocation(new_pointer, new_size);
        }
        new_pointer
    }
}

/// Makes an allocation failure end the process with `exit_code` and `message` on stderr, in place of Rust's bare SIGABRT.
/// Fallible allocations are unaffected. Does nothing where SIGABRT already has a handler.
pub fn exit_on_allocation_failure(exit_code: u8, message: &'static str) {
    if ON_FAILURE.set((exit_code, message)).is_err() {
        return;
    }
    // SAFETY: all zeros are a `sigaction` without flags and with an empty mask; the handler makes calls that a handler may make.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGABRT, std::ptr::null(), &mut before) == 0 && before.sa_sigaction == libc::SIG_DFL {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigabrt as *const () as libc::sighandler_t;
            libc::sigaction(libc::SIGABRT, &action, std::ptr::null_mut());
        }
    }
}

static ON_FAILURE: std::sync::OnceLock<(u8, &'static str)> = std::sync::OnceLock::new();

/// Handler of SIGABRT. `abort` raises the signal in the calling thread, so the thread's flag tells the cause.
extern "C" fn on_sigabrt(signal: libc::c_int) {
    if let Some((exit_code, message)) = ON_FAILURE.get().filter(|_| ALLOCATION_FAILED.get()) {
        // SAFETY: the message is static. Lines of results are written whole, or cut by the next reader.
        unsafe {
            libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len());
            libc::_exit(libc::c_int::from(*exit_code));
        }
    }
    // A signal from outside, or another fault: the default action ends the process when the handler returns.
    // SAFETY: a handler may make both calls.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Free bytes at the end of the heap that the C library retains for the next step.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIM_THRESHOLD: i32 = 64 << 20;
/// Larger allocations are mapped separately and unmapped when freed. The C library's maximum.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MMAP_THRESHOLD: i32 = 32 << 20;

/// Makes glibc retain up to 64 MiB of free pages until [`return_free_pages`] is called. With its defaults it returns pages
/// and faults them in again several times a step, which was 15 % of a language model's processor time. Does nothing where
/// the environment sets these thresholds, or with another C library. Must be called before threads start.
pub fn retain_free_pages() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let tuned = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let has_tunables = std::env::var("GLIBC_TUNABLES").is_ok_and(|value| value.contains("glibc.malloc."));
        if has_tunables || tuned("MALLOC_TRIM_THRESHOLD_") || tuned("MALLOC_MMAP_THRESHOLD_") {
            return;
        }
        // SAFETY: `mallopt` takes two numbers and keeps no pointer.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD);
            libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD);
        }
    }
}

/// Returns free heap pages to the system (`malloc_trim`). Returns `true` if any were released; always `false` with C
/// libraries other than glibc.
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
    fn live_allocations_are_counted() {
        const SIZE: usize = 64 << 20; // far above what concurrent tests allocate
        let before = read();
        let held = vec![1u8; SIZE];
        let during = read();
        assert!(during.bytes >= before.bytes + SIZE as u64 / 2, "{before:?} {during:?}");
        assert!(during.peak >= during.bytes.min(SIZE as u64));
        drop(held);
        assert!(read().bytes < during.bytes, "{during:?} {:?}", read());
    }
}
