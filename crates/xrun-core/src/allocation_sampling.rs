//! Call stacks of sampled heap allocations that stay alive: the functions whose memory grows without an owner in the ledger.
//!
//! Off, it costs one relaxed load per allocation. On, an allocation of `s` bytes is sampled with probability
//! `min(1, max(1 / 8, s / 16 KiB))`, as a profiler of live memory does (jemalloc's `prof`, tcmalloc's heap profiler), with a floor for
//! leaks of small objects. A sample is removed when its allocation is freed, so what is left at the end lives. When there are too many
//! samples, a random half is dropped; each of the others, and of those to come, stands for twice as many allocations.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Size in bytes from which every allocation is sampled.
const SIZE_ALWAYS: usize = 16 << 10;
/// Smallest probability, as 1 in this many.
const SMALL_EVERY: u64 = 8;
/// Places for live samples, of which at most seven in eight are used. 2.2 MB with their stacks.
const PLACES: usize = 1 << 13;
/// Cap on how often half of the samples are dropped.
const HALVINGS_MAX: u32 = 16;
/// Maximum number of frames of a stack.
const FRAMES_MAX: usize = 32;
/// Counters of the filter.
const SLOTS: usize = 1 << 16;

/// Nothing to do.
const IDLE: u8 = 0;
/// Allocations are sampled.
const SAMPLING: u8 = 1;
/// Names are resolved, whose tables must not appear in the heap that is measured.
const RESOLVING: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(IDLE);
/// Number of times that half of the samples were dropped.
static HALVINGS: AtomicU32 = AtomicU32::new(0);
/// Moment of new samples; the caller counts steps.
static MOMENT: AtomicU64 = AtomicU64::new(0);
/// Not on the heap, whose growth it explains.
static SAMPLES: Mutex<Samples> = Mutex::new(Samples { count: 0, places: [Sample::NONE; PLACES] });
/// Number of live samples by the hash of their addresses, saturating: most freed addresses need no lock.
static FILTER: [AtomicU8; SLOTS] = [const { AtomicU8::new(0) }; SLOTS];

thread_local! {
    /// This thread is in this module: its own allocations are not sampled.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// State of the random numbers (xorshift).
    static RANDOM: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// 0 if the place is free.
    address: usize,
    size: usize,
    /// Allocations that this one stands for.
    weight: u32,
    depth: u32,
    moment: u64,
    frames: [usize; FRAMES_MAX],
}

impl Sample {
    const NONE: Self = Self { address: 0, size: 0, weight: 0, depth: 0, moment: 0, frames: [0; FRAMES_MAX] };
}

/// Hash table by address with linear probing.
struct Samples {
    count: usize,
    places: [Sample; PLACES],
}

impl Samples {
    fn clear(&mut self) {
        self.count = 0;
        self.places.iter_mut().for_each(|place| place.address = 0);
    }

    fn home(address: usize) -> usize {
        slot(address) & (PLACES - 1)
    }

    /// Place of an address, or the free one at the end of its chain.
    fn find(&self, address: usize) -> usize {
        let mut at = Self::home(address);
        while self.places[at].address != 0 && self.places[at].address != address {
            at = (at + 1) & (PLACES - 1);
        }
        at
    }

    /// Adds a sample; returns false if the table is full.
    fn insert(&mut self, sample: Sample) -> bool {
        if self.count >= PLACES / 8 * 7 {
            return false;
        }
        let at = self.find(sample.address);
        self.count += usize::from(self.places[at].address == 0);
        self.places[at] = sample;
        true
    }

    /// Drops about half of the samples, by a bit of their addresses, and doubles the weights of the others. `dropped` receives the
    /// addresses.
    fn halve(&mut self, halving: u32, mut dropped: impl FnMut(usize)) {
        for at in 0..PLACES {
            // A later sample of the chain moves here.
            while self.places[at].address != 0 && is_dropped(self.places[at].address, halving) {
                let address = self.places[at].address;
                self.remove(address);
                dropped(address);
            }
            self.places[at].weight *= 2;
        }
    }

    /// Removes the sample of an address; returns whether there was one.
    fn remove(&mut self, address: usize) -> bool {
        let mut hole = self.find(address);
        if self.places[hole].address == 0 {
            return false;
        }
        self.count -= 1;
        // Moves later samples of the chain into the hole, unless they would come before their home.
        let mut at = hole;
        loop {
            at = (at + 1) & (PLACES - 1);
            let next = self.places[at];
            if next.address == 0 {
                break;
            }
            let distance = |from: usize| at.wrapping_sub(from) & (PLACES - 1);
            if distance(Self::home(next.address)) >= distance(hole) {
                self.places[hole] = next;
                hole = at;
            }
        }
        self.places[hole].address = 0;
        true
    }
}

/// Live memory of one call stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    /// Estimated bytes.
    pub bytes: f64,
    /// Estimated number of allocations.
    pub allocations: f64,
    /// Number of samples that the estimates are from.
    pub samples: u64,
    /// Frames, the innermost first, without those of the allocator.
    pub frames: Vec<Frame>,
}

/// Frame of a call stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Name of the function.
    pub function: String,
    /// File and line; `None` without debug information.
    pub line: Option<(String, u32)>,
}

/// Begins to sample; samples of an earlier time are dropped.
pub fn start() {
    let inside = INSIDE.replace(true);
    for slot in &FILTER {
        slot.store(0, Relaxed);
    }
    samples().clear();
    MOMENT.store(0, Relaxed);
    HALVINGS.store(0, Relaxed);
    INSIDE.set(inside);
    STATE.store(SAMPLING, Relaxed);
}

/// Begins the next step: later samples are younger.
pub fn next_step() {
    MOMENT.fetch_add(1, Relaxed);
}

/// Ends sampling. Returns the call stacks of the allocations that are alive and older than `steps_min` steps, most bytes first, at most
/// `sites_max`.
pub fn stop(steps_min: u64, sites_max: usize) -> Vec<Site> {
    STATE.store(IDLE, Relaxed);
    let inside = INSIDE.replace(true);
    let now = MOMENT.load(Relaxed);
    let mut samples = samples();
    let live = samples.places.iter().filter(|sample| sample.address != 0);
    let mut sites: HashMap<Vec<usize>, Site> = HashMap::new();
    for sample in live.filter(|sample| now - sample.moment >= steps_min) {
        let site = sites.entry(sample.frames[..sample.depth as usize].to_vec()).or_default();
        site.bytes += f64::from(sample.weight) * sample.size as f64;
        site.allocations += f64::from(sample.weight);
        site.samples += 1;
    }
    samples.clear();
    drop(samples);
    let mut sites: Vec<(Vec<usize>, Site)> = sites.into_iter().collect();
    sites.sort_by(|a, b| b.1.bytes.total_cmp(&a.1.bytes).then(a.0.cmp(&b.0)));
    sites.truncate(sites_max);
    STATE.store(RESOLVING, Relaxed);
    let resolved: Vec<Vec<Frame>> = sites.iter().map(|(frames, _)| resolve(frames)).collect();
    backtrace::clear_symbol_cache();
    STATE.store(IDLE, Relaxed);
    // Copies that are counted, as they are freed later.
    let named = sites.into_iter().zip(&resolved).map(|((_, site), frames)| Site { frames: frames.clone(), ..site });
    let named = named.collect();
    STATE.store(RESOLVING, Relaxed);
    drop(resolved);
    STATE.store(IDLE, Relaxed);
    INSIDE.set(inside);
    named
}

/// Returns whether this thread is in this module.
fn is_inside() -> bool {
    INSIDE.try_with(Cell::get).unwrap_or(false)
}

fn samples() -> MutexGuard<'static, Samples> {
    SAMPLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes an allocation; called by the allocator. Returns whether the heap's counters count it.
pub(crate) fn should_count_allocation(pointer: *mut u8, size: usize) -> bool {
    match STATE.load(Relaxed) {
        IDLE => true,
        RESOLVING => !is_inside(),
        _ => {
            enter(|| {
                if let Some(weight) = drawn(size) {
                    sample(pointer as usize, size, weight);
                }
            });
            true
        }
    }
}

/// Notes that an allocation is about to be freed; called by the allocator. Returns whether the heap's counters count it.
pub(crate) fn should_count_free(pointer: *mut u8) -> bool {
    match STATE.load(Relaxed) {
        IDLE => true,
        RESOLVING => !is_inside(),
        _ => {
            let filter = &FILTER[slot(pointer as usize)];
            if filter.load(Relaxed) > 0 {
                enter(|| {
                    if samples().remove(pointer as usize) {
                        uncount(pointer as usize);
                    }
                });
            }
            true
        }
    }
}

/// Calls `act` unless this thread is in this module already. At the end of a thread its locals are gone, and nothing is done.
fn enter(act: impl FnOnce()) {
    let _ = INSIDE.try_with(|inside| {
        if !inside.replace(true) {
            act();
            inside.set(false);
        }
    });
}

fn slot(address: usize) -> usize {
    // Allocations are aligned to 16 bytes.
    (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - SLOTS.ilog2())
}

/// Removes a sample from the filter.
fn uncount(address: usize) {
    // A full counter is not exact any more, and stays.
    let fewer = |count: u8| (count < u8::MAX).then(|| count.saturating_sub(1));
    let _ = FILTER[slot(address)].fetch_update(Relaxed, Relaxed, fewer);
}

/// Returns whether a sample is in the half that is dropped, by a bit that [`slot`] does not use.
fn is_dropped(address: usize, halving: u32) -> bool {
    ((address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (16 + halving)) & 1 == 1
}

/// Draws whether an allocation is sampled; returns the number of allocations that it stands for.
fn drawn(size: usize) -> Option<u32> {
    let every = (SIZE_ALWAYS as u64 / size.max(1) as u64).clamp(1, SMALL_EVERY) << HALVINGS.load(Relaxed);
    if every == 1 {
        return Some(1);
    }
    let random = RANDOM.get();
    let random = random ^ (random << 13);
    let random = random ^ (random >> 7);
    let random = random ^ (random << 17);
    RANDOM.set(random);
    (random >> 32).is_multiple_of(every).then_some(every as u32)
}

fn sample(address: usize, size: usize, weight: u32) {
    let mut frames = [0; FRAMES_MAX];
    let mut depth: usize = 0;
    backtrace::trace(|frame| {
        frames[depth] = frame.ip() as usize;
        depth += 1;
        depth < FRAMES_MAX
    });
    let sample = Sample { address, size, weight, depth: depth as u32, moment: MOMENT.load(Relaxed), frames };
    let mut samples = samples();
    let mut is_sampled = samples.insert(sample);
    let halving = HALVINGS.load(Relaxed);
    if !is_sampled && halving < HALVINGS_MAX {
        samples.halve(halving, uncount);
        HALVINGS.store(halving + 1, Relaxed);
        is_sampled = !is_dropped(address, halving) && samples.insert(Sample { weight: 2 * weight, ..sample });
    }
    if is_sampled {
        let _ = FILTER[slot(address)].fetch_update(Relaxed, Relaxed, |count| Some(count.saturating_add(1)));
    }
}

/// Names of functions that allocate for others: those of the allocator and of Rust's collections.
const ALLOCATORS: [&str; 9] = [
    "backtrace::",
    "xrun_core::allocation_sampling::",
    "xrun_core::heap::",
    "__rust",
    "__rustc",
    "alloc::",
    "<alloc::",
    "core::",
    "<core::",
];

/// Functions and lines of a stack, the innermost first, from the first that is not of the allocator.
fn resolve(frames: &[usize]) -> Vec<Frame> {
    let mut resolved = Vec::with_capacity(frames.len());
    // A program that exports its functions is resolved without its file, which is as large as a small run's memory. Functions of
    // libraries are then left out.
    let is_exported = dynamic_name(start as *const () as usize).is_some();
    // A frame has the address after the call; that of an outermost frame may be 0.
    for address in frames.iter().filter_map(|after| after.checked_sub(1)) {
        if is_exported {
            let function = dynamic_name(address);
            resolved.extend(function.map(|name| Frame { function: without_hash(&name), line: None }));
            continue;
        }
        backtrace::resolve(address as *mut std::ffi::c_void, |symbol| {
            let Some(name) = symbol.name() else { return };
            let function = without_hash(&name.to_string());
            let line = symbol.filename().zip(symbol.lineno());
            resolved.push(Frame { function, line: line.map(|(file, line)| (file.display().to_string(), line)) });
        });
    }
    let first = resolved.iter().position(|frame| !ALLOCATORS.iter().any(|name| frame.function.starts_with(name)));
    resolved.drain(..first.unwrap_or(0));
    resolved
}

/// Name of the dynamic symbol at an address.
fn dynamic_name(address: usize) -> Option<String> {
    // SAFETY: all zeros are a `Dl_info`; `dladdr` fills it with pointers into the tables of loaded programs, which stay.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address as *const libc::c_void, &mut info) == 0 || info.dli_sname.is_null() {
            return None;
        }
        std::ffi::CStr::from_ptr(info.dli_sname)
    };
    Some(backtrace::SymbolName::new(name.to_bytes()).to_string())
}

/// Name without the hash at its end.
fn without_hash(name: &str) -> String {
    match name.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => name.to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn kept_by_the_test(kept: &mut Vec<Vec<u8>>) {
        kept.push(vec![1; 64 << 10]);
    }

    #[inline(never)]
    fn freed_by_the_test() {
        drop(std::hint::black_box(vec![1u8; 64 << 10]));
    }

    #[test]
    fn what_lives_is_found_with_its_function_and_size() {
        start();
        let mut kept = Vec::new();
        for _ in 0..400 {
            kept_by_the_test(&mut kept);
            freed_by_the_test();
            next_step();
        }
        let sites = stop(100, 8);
        let of = |name: &str| sites.iter().find(|site| site.frames.iter().any(|frame| frame.function.contains(name)));
        let site = of("kept_by_the_test").unwrap();
        // 300 of 64 KiB, each of which is sampled.
        let expected = 300.0 * 65_536.0;
        assert!((site.bytes / expected - 1.0).abs() < 0.05, "{site:?}");
        assert!(of("freed_by_the_test").is_none());
        assert!(stop(0, 8).is_empty(), "it has ended");
        drop(kept);
    }

    /// An empty table that was never on the stack, which is too small for it.
    fn empty() -> Box<Samples> {
        // SAFETY: all zeros are `Sample::NONE`.
        unsafe { Box::new_zeroed().assume_init() }
    }

    #[test]
    fn a_removed_sample_hides_no_other_one_of_its_chain() {
        let mut samples = empty();
        let of = |address: usize| Sample { address, ..Sample::NONE };
        let addresses: Vec<usize> = (1..2000).map(|number| number * 4096).collect();
        assert!(addresses.iter().all(|address| samples.insert(of(*address))));
        for (at, address) in addresses.iter().enumerate() {
            assert!(samples.remove(*address) && !samples.remove(*address));
            let rest = &addresses[at + 1..];
            assert!(rest.iter().step_by(97).all(|address| samples.places[samples.find(*address)].address == *address));
        }
        assert_eq!(samples.count, 0);
    }

    #[test]
    fn half_of_the_samples_stand_for_all() {
        let mut samples = empty();
        let of = |address: usize| Sample { address, weight: 1, ..Sample::NONE };
        let mut number = 0;
        while samples.insert(of((number + 1) * 4096 + 16 * (number % 7))) {
            number += 1;
        }
        for halving in 0..3 {
            let mut dropped = 0;
            samples.halve(halving, |_| dropped += 1);
            let live = || samples.places.iter().filter(|place| place.address != 0);
            let weight: u32 = live().map(|place| place.weight).sum();
            assert_eq!((live().count(), dropped > 0), (samples.count, true));
            assert!((f64::from(weight) / number as f64 - 1.0).abs() < 0.25, "{weight} of {number}");
            assert!(live().all(|place| samples.places[samples.find(place.address)].address == place.address));
        }
    }
}
