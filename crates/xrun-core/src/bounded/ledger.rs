//! List of all buffers of a run with their caps and current contents.
//!
//! Every buffer is an owner in the ledger: a name, a cap in items and bytes, a policy at the cap, and counters that are
//! read in O(1) from any thread. Dropping the [`Registration`] removes the owner. The plan (`plan.json`) lists the same owners
//! before the run, from the same declarations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::rung::Rung;

/// Behaviour of a buffer when it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The producer waits.
    Block,
    /// The oldest or least recently used item is dropped.
    Evict,
    /// Items are folded into a summary, or the least valuable one is dropped.
    Reduce,
    /// Adding is an error.
    Refuse,
    /// It grows without a cap: a leak that `[leaks]` switches on.
    Leak,
}

/// Maximum contents of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Number of items: frames, lines, batches.
    pub items: u64,
    /// Bytes of all items together.
    pub bytes: u64,
}

/// Cap of a leak: none.
pub const NO_CAP: Cap = Cap { items: i64::MAX as u64, bytes: i64::MAX as u64 };

#[derive(Debug)]
struct Owner {
    name: &'static str,
    policy: Policy,
    cap: Cap,
    rung: Option<Rung>,
    allowed_items: AtomicU64,
    allowed_bytes: AtomicU64,
    items: AtomicU64,
    bytes: AtomicU64,
    peak_items: AtomicU64,
    peak_bytes: AtomicU64,
}

/// Snapshot of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerSnapshot {
    /// Name of the owner; unique in a run.
    pub name: &'static str,
    /// Behaviour at the cap.
    pub policy: Policy,
    /// Maximum contents.
    pub cap: Cap,
    /// Current number of items.
    pub items: u64,
    /// Current bytes.
    pub bytes: u64,
    /// Highest number of items so far.
    pub peak_items: u64,
    /// Highest number of bytes so far.
    pub peak_bytes: u64,
}

impl OwnerSnapshot {
    /// `true` if a peak is above the cap.
    pub fn exceeds_cap(&self) -> bool {
        self.peak_items > self.cap.items || self.peak_bytes > self.cap.bytes
    }
}

/// List of all owners of a run. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Mutex<Vec<Arc<Owner>>>>);

/// Registration of an owner in the ledger; dropping it removes the owner.
#[derive(Debug)]
pub struct Registration {
    owner: Arc<Owner>,
    ledger: Ledger,
}

/// Maximum number of owners. Names are fixed in the code, so exceeding it is a bug.
pub const OWNERS_MAX: usize = 64;

impl Ledger {
    /// Adds an owner, as declared by a [`Buffer`](super::buffer::Buffer). Panics when the name is taken.
    pub(super) fn register(&self, name: &'static str, cap: Cap, policy: Policy, rung: Option<Rung>) -> Registration {
        let owner = Arc::new(Owner {
            name,
            policy,
            cap,
            rung,
            allowed_items: AtomicU64::new(cap.items),
            allowed_bytes: AtomicU64::new(cap.bytes),
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            peak_items: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
        });
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(owners.len() < OWNERS_MAX, "more than {OWNERS_MAX} owners");
        assert!(owners.iter().all(|known| known.name != name), "owner {name} is registered twice");
        owners.push(owner.clone());
        Registration { owner, ledger: self.clone() }
    }

    /// Lowers or raises what the owners of a rung may hold, to `allowed` of their caps and at most these; returns the bytes that
    /// they hold or may prepare beyond it.
    pub fn allow(&self, rung: Rung, allowed: impl Fn(Cap) -> Cap) -> u64 {
        let owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_rung = owners.iter().filter(|owner| owner.rung == Some(rung));
        let beyond = of_rung.map(|owner| {
            let Cap { items, bytes } = allowed(owner.cap);
            let bytes = bytes.min(owner.cap.bytes);
            owner.allowed_items.store(items.min(owner.cap.items), Relaxed);
            let before = owner.allowed_bytes.swap(bytes, Relaxed);
            let held = match owner.policy {
                Policy::Block => before,
                _ => owner.bytes.load(Relaxed),
            };
            held.saturating_sub(bytes)
        });
        beyond.sum()
    }

    /// Snapshot of all owners, sorted by name.
    pub fn read(&self) -> Vec<OwnerSnapshot> {
        let owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut snapshots: Vec<OwnerSnapshot> = owners
            .iter()
            .map(|owner| OwnerSnapshot {
                name: owner.name,
                policy: owner.policy,
                cap: owner.cap,
                items: owner.items.load(Relaxed),
                bytes: owner.bytes.load(Relaxed),
                peak_items: owner.peak_items.load(Relaxed),
                peak_bytes: owner.peak_bytes.load(Relaxed),
            })
            .collect();
        snapshots.sort_by_key(|snapshot| snapshot.name);
        snapshots
    }
}

impl Registration {
    /// Sets the current contents.
    pub fn set(&self, items: u64, bytes: u64) {
        self.owner.items.store(items, Relaxed);
        self.owner.bytes.store(bytes, Relaxed);
        self.owner.peak_items.fetch_max(items, Relaxed);
        self.owner.peak_bytes.fetch_max(bytes, Relaxed);
    }

    /// Current bytes.
    pub fn bytes(&self) -> u64 {
        self.owner.bytes.load(Relaxed)
    }

    /// Maximum contents.
    pub fn cap(&self) -> Cap {
        self.owner.cap
    }

    /// Maximum contents at present: the cap, unless a rung of `limits.on_pressure` was taken.
    pub fn allowed(&self) -> Cap {
        Cap { items: self.owner.allowed_items.load(Relaxed), bytes: self.owner.allowed_bytes.load(Relaxed) }
    }

    /// Name of the owner.
    pub fn name(&self) -> &'static str {
        self.owner.name
    }
}

/// Part of an owner's contents that one of several threads holds; dropping it releases the part.
#[derive(Debug)]
pub struct Reservation<'a> {
    registration: &'a Registration,
    bytes: u64,
}

impl Registration {
    /// Adds an item of 0 bytes for the calling thread. Must not be mixed with [`set`](Self::set).
    pub fn reserve(&self) -> Reservation<'_> {
        let items = self.owner.items.fetch_add(1, Relaxed) + 1;
        self.owner.peak_items.fetch_max(items, Relaxed);
        Reservation { registration: self, bytes: 0 }
    }
}

impl Reservation<'_> {
    /// Sets the bytes of this part.
    pub fn set(&mut self, bytes: u64) {
        let owner = &self.registration.owner;
        // Modular arithmetic: a decrease wraps, and so does the sum.
        let change = bytes.wrapping_sub(self.bytes);
        let all = owner.bytes.fetch_add(change, Relaxed).wrapping_add(change);
        owner.peak_bytes.fetch_max(all, Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.set(0);
        self.registration.owner.items.fetch_sub(1, Relaxed);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut owners = self.ledger.0.lock().unwrap_or_else(PoisonError::into_inner);
        owners.retain(|owner| !Arc::ptr_eq(owner, &self.owner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Cap = Cap { items: 2, bytes: 100 };

    #[test]
    fn an_owner_is_listed_until_it_is_dropped() {
        let ledger = Ledger::default();
        let queue = ledger.register("queue", CAP, Policy::Block, None);
        let cache = ledger.register("cache", CAP, Policy::Evict, None);
        queue.set(1, 60);
        queue.set(0, 0);
        let snapshots = ledger.read();
        assert_eq!(snapshots.iter().map(|r| r.name).collect::<Vec<_>>(), ["cache", "queue"]);
        assert_eq!((snapshots[1].bytes, snapshots[1].peak_bytes), (0, 60));
        assert!(!snapshots[1].exceeds_cap());
        cache.set(3, 10);
        assert!(ledger.read()[0].exceeds_cap());
        drop(cache);
        assert_eq!(ledger.read().len(), 1);
    }

    #[test]
    fn parts_of_several_threads_add_up_until_they_are_dropped() {
        let ledger = Ledger::default();
        let registration = ledger.register("cache", CAP, Policy::Refuse, None);
        let (mut one, mut other) = (registration.reserve(), registration.reserve());
        one.set(60);
        other.set(30);
        one.set(10);
        let snapshot = &ledger.read()[0];
        assert_eq!((snapshot.items, snapshot.bytes, snapshot.peak_bytes), (2, 40, 90));
        drop(one);
        assert_eq!((ledger.read()[0].items, ledger.read()[0].bytes), (1, 30));
        drop(other);
        let snapshot = &ledger.read()[0];
        assert_eq!((snapshot.items, snapshot.bytes, snapshot.peak_items), (0, 0, 2));
    }

    #[test]
    fn a_rung_lowers_what_its_owners_may_hold_and_raises_it_again() {
        let ledger = Ledger::default();
        let cache = ledger.register("cache", CAP, Policy::Evict, Some(Rung::Caches));
        let other = ledger.register("other", CAP, Policy::Evict, None);
        cache.set(2, 90);
        let half = |cap: Cap| Cap { bytes: cap.bytes / 2, ..cap };
        assert_eq!(ledger.allow(Rung::Caches, half), 40);
        assert_eq!((cache.allowed().bytes, other.allowed().bytes, cache.cap()), (50, 100, CAP));
        assert_eq!((ledger.allow(Rung::Caches, |cap| Cap { bytes: 9 * cap.bytes, ..cap }), cache.allowed()), (0, CAP));
        assert_eq!(ledger.allow(Rung::Prefetch, half), 0, "it has no owner");
    }

    #[test]
    #[should_panic(expected = "registered twice")]
    fn a_name_is_unique() {
        let ledger = Ledger::default();
        let _first = ledger.register("queue", CAP, Policy::Block, None);
        let _second = ledger.register("queue", CAP, Policy::Block, None);
    }
}
