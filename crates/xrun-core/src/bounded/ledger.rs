//! Who holds memory, how much, and how much may they hold?
//!
//! Every buffer of xrun is an owner in the run's ledger: a name, a cap in items and in bytes, a policy at the
//! cap, and counters that anybody may read at any time in O(1). Dropping the [`Holding`] takes the owner out of
//! the ledger. The plan lists the same owners before the run (`plan.json`), made from the same declarations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a buffer does when it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The producer waits.
    Block,
    /// The least recently used item goes.
    Evict,
    /// Items are folded into a summary, or the least valuable one goes.
    Reduce,
    /// Adding is an error.
    Refuse,
    /// Nothing happens: a leak that `[leaks]` switched on.
    Leak,
}

/// The most that an owner may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Frames, lines, batches: whatever its owner counts.
    pub items: u64,
    /// Of all these items together.
    pub bytes: u64,
}

/// The cap of a leak that is switched on: there is none.
pub const NO_CAP: Cap = Cap { items: i64::MAX as u64, bytes: i64::MAX as u64 };

#[derive(Debug)]
struct Owner {
    name: &'static str,
    policy: Policy,
    cap: Cap,
    items: AtomicU64,
    bytes: AtomicU64,
    peak_items: AtomicU64,
    peak_bytes: AtomicU64,
}

/// What an owner holds at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Unique among the owners of a run.
    pub name: &'static str,
    /// What happens at the cap.
    pub policy: Policy,
    /// The most that may be held.
    pub cap: Cap,
    /// Held now.
    pub items: u64,
    /// Held now.
    pub bytes: u64,
    /// The most that was held.
    pub peak_items: u64,
    /// The most that was held.
    pub peak_bytes: u64,
}

impl Reading {
    /// The highest level ever reached went over the cap.
    pub fn exceeded(&self) -> bool {
        self.peak_items > self.cap.items || self.peak_bytes > self.cap.bytes
    }
}

/// The list of all owners of a run. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Mutex<Vec<Arc<Owner>>>>);

/// One owner's place in the ledger; it leaves when this is dropped.
#[derive(Debug)]
pub struct Holding {
    owner: Arc<Owner>,
    ledger: Ledger,
}

/// More owners than this are a bug in xrun: names are fixed in the code, not made from data.
pub const OWNERS_MAX: usize = 64;

/// The name of the series of an owner's bytes, before the owner's own.
pub const SERIES: &str = "owner:";

impl Ledger {
    /// Enters an owner: a [`Buffer`](super::buffer::Buffer) does. Panics when the name is taken: two owners of one name
    /// cannot be told apart.
    pub(super) fn enter(&self, name: &'static str, cap: Cap, policy: Policy) -> Holding {
        let owner = Arc::new(Owner {
            name,
            policy,
            cap,
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            peak_items: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
        });
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(owners.len() < OWNERS_MAX, "more than {OWNERS_MAX} owners");
        assert!(owners.iter().all(|known| known.name != name), "the owner {name} is registered twice");
        owners.push(owner.clone());
        Holding { owner, ledger: self.clone() }
    }

    /// All owners, sorted by name.
    pub fn read(&self) -> Vec<Reading> {
        let owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut readings: Vec<Reading> = owners
            .iter()
            .map(|owner| Reading {
                name: owner.name,
                policy: owner.policy,
                cap: owner.cap,
                items: owner.items.load(Relaxed),
                bytes: owner.bytes.load(Relaxed),
                peak_items: owner.peak_items.load(Relaxed),
                peak_bytes: owner.peak_bytes.load(Relaxed),
            })
            .collect();
        readings.sort_by_key(|reading| reading.name);
        readings
    }
}

impl Holding {
    /// Says what is held now.
    pub fn set(&self, items: u64, bytes: u64) {
        self.owner.items.store(items, Relaxed);
        self.owner.bytes.store(bytes, Relaxed);
        self.owner.peak_items.fetch_max(items, Relaxed);
        self.owner.peak_bytes.fetch_max(bytes, Relaxed);
    }

    /// Bytes that are held now.
    pub fn bytes(&self) -> u64 {
        self.owner.bytes.load(Relaxed)
    }

    /// The most that may be held.
    pub fn cap(&self) -> Cap {
        self.owner.cap
    }

    /// The owner's name.
    pub fn name(&self) -> &'static str {
        self.owner.name
    }
}

/// One of several threads' share of what an owner holds; dropped, it holds nothing.
#[derive(Debug)]
pub struct Share<'a> {
    holding: &'a Holding,
    bytes: u64,
}

impl Holding {
    /// One item, of no bytes yet, beside the shares of others. An owner of shares is not [`set`](Self::set).
    pub fn share(&self) -> Share<'_> {
        let items = self.owner.items.fetch_add(1, Relaxed) + 1;
        self.owner.peak_items.fetch_max(items, Relaxed);
        Share { holding: self, bytes: 0 }
    }
}

impl Share<'_> {
    /// Says what this share holds now.
    pub fn set(&mut self, bytes: u64) {
        let owner = &self.holding.owner;
        // Wraps where it shrinks, as the sum does.
        let change = bytes.wrapping_sub(self.bytes);
        let all = owner.bytes.fetch_add(change, Relaxed).wrapping_add(change);
        owner.peak_bytes.fetch_max(all, Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.set(0);
        self.holding.owner.items.fetch_sub(1, Relaxed);
    }
}

impl Drop for Holding {
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
    fn an_owner_is_in_the_ledger_until_it_is_dropped() {
        let ledger = Ledger::default();
        let queue = ledger.enter("queue", CAP, Policy::Block);
        let cache = ledger.enter("cache", CAP, Policy::Evict);
        queue.set(1, 60);
        queue.set(0, 0);
        let readings = ledger.read();
        assert_eq!(readings.iter().map(|r| r.name).collect::<Vec<_>>(), ["cache", "queue"]);
        assert_eq!((readings[1].bytes, readings[1].peak_bytes), (0, 60));
        assert!(!readings[1].exceeded());
        cache.set(3, 10);
        assert!(ledger.read()[0].exceeded());
        drop(cache);
        assert_eq!(ledger.read().len(), 1);
    }

    #[test]
    fn shares_of_several_threads_add_up_and_go_with_them() {
        let ledger = Ledger::default();
        let holding = ledger.enter("cache", CAP, Policy::Refuse);
        let (mut one, mut other) = (holding.share(), holding.share());
        one.set(60);
        other.set(30);
        one.set(10);
        let reading = &ledger.read()[0];
        assert_eq!((reading.items, reading.bytes, reading.peak_bytes), (2, 40, 90));
        drop(one);
        assert_eq!((ledger.read()[0].items, ledger.read()[0].bytes), (1, 30));
        drop(other);
        let reading = &ledger.read()[0];
        assert_eq!((reading.items, reading.bytes, reading.peak_items), (0, 0, 2));
    }

    #[test]
    #[should_panic(expected = "registered twice")]
    fn two_owners_cannot_share_a_name() {
        let ledger = Ledger::default();
        let _first = ledger.enter("queue", CAP, Policy::Block);
        let _second = ledger.enter("queue", CAP, Policy::Block);
    }
}
