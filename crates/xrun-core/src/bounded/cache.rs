//! A cache bounded by bytes: the least recently used item goes first.
//!
//! The cap is in bytes because items differ in size: a cache of "500 frames" holds whatever 500 frames happen to
//! weigh, which is how a cache of 500 frames a video grew (docs/origins.md). A map bounded by count alone does not exist in xrun.

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use super::HeldBytes;
use super::buffer::Buffer;
use super::ledger::{Cap, Holding, Ledger, Policy};

/// Shared between threads; values are cloned out, so make them cheap to clone (`Arc`). Policy: evict.
#[derive(Debug)]
pub struct ByteCache<K: Hash + Eq, V>(Mutex<Inner<K, V>>);

#[derive(Debug)]
struct Inner<K: Hash + Eq, V> {
    entries: LruCache<K, V>,
    bytes: u64,
    counters: CacheCounters,
    holding: Holding,
}

/// What happened in a cache since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Items that were asked for and there.
    pub hits: u64,
    /// Items that were asked for and not there.
    pub misses: u64,
    /// Items that went to make room.
    pub evictions: u64,
    /// Items larger than the whole cache, which were not kept.
    pub too_large: u64,
}

impl<K: Hash + Eq, V: Clone + HeldBytes> ByteCache<K, V> {
    /// An empty cache, entered in the ledger as declared.
    pub fn new(ledger: &Ledger, buffer: &Buffer) -> Self {
        Self(Mutex::new(Inner {
            entries: LruCache::unbounded(), // bounded below, by bytes and by items
            bytes: 0,
            counters: CacheCounters::default(),
            holding: buffer.register_as(Policy::Evict, ledger),
        }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of the item, which is then the most recently used.
    pub fn get(&self, key: &K) -> Option<V> {
        let mut inner = self.inner();
        let found = inner.entries.get(key).cloned();
        match found {
            Some(_) => inner.counters.hits += 1,
            None => inner.counters.misses += 1,
        }
        found
    }

    /// Keeps the value, at the cost of the least recently used ones. A value larger than the cache is not kept.
    pub fn insert(&self, key: K, value: V) {
        let mut inner = self.inner();
        let (bytes, cap) = (value.held_bytes(), inner.holding.cap());
        if bytes > cap.bytes || cap.items == 0 {
            inner.counters.too_large += 1;
            return;
        }
        if let Some(old) = inner.entries.pop(&key) {
            inner.bytes -= old.held_bytes();
        }
        let room = Cap { items: cap.items - 1, bytes: cap.bytes - bytes };
        inner.evict_down_to(room);
        inner.entries.push(key, value);
        inner.bytes += bytes;
        inner.report();
    }

    /// Evicts until at most `bytes` are held; returns the bytes that went.
    pub fn evict_to(&self, bytes: u64) -> u64 {
        let mut inner = self.inner();
        let before = inner.bytes;
        let room = Cap { items: inner.holding.cap().items, bytes };
        inner.evict_down_to(room);
        inner.report();
        before - inner.bytes
    }

    /// What was counted since the cache was made.
    pub fn counters(&self) -> CacheCounters {
        self.inner().counters
    }

    /// The most that it may hold.
    pub fn cap(&self) -> Cap {
        self.inner().holding.cap()
    }
}

impl<K: Hash + Eq, V: Clone + HeldBytes> Inner<K, V> {
    fn evict_down_to(&mut self, room: Cap) {
        while self.bytes > room.bytes || self.entries.len() as u64 > room.items {
            let Some((_, old)) = self.entries.pop_lru() else { break };
            self.bytes -= old.held_bytes();
            self.counters.evictions += 1;
        }
    }

    fn report(&self) {
        self.holding.set(self.entries.len() as u64, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(items: u64) -> Buffer {
        Buffer::new("frames", Policy::Evict, Cap { items, bytes: 100 })
    }

    #[derive(Clone, Debug, PartialEq)]
    struct Sized(u64);

    impl HeldBytes for Sized {
        fn held_bytes(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let ledger = Ledger::default();
        let cache = ByteCache::new(&ledger, &frames(10));
        cache.insert("a", Sized(40));
        cache.insert("b", Sized(40));
        assert_eq!(cache.get(&"a"), Some(Sized(40)));
        cache.insert("c", Sized(40));
        assert_eq!(cache.get(&"b"), None, "b was used least recently");
        assert_eq!(cache.get(&"a"), Some(Sized(40)));
        let counters = cache.counters();
        assert_eq!((counters.hits, counters.misses, counters.evictions), (2, 1, 1));
        cache.insert("huge", Sized(101));
        assert_eq!(cache.counters().too_large, 1);
        assert_eq!(cache.evict_to(50), 40);
    }

    proptest! {
        #[test]
        fn no_sequence_of_inserts_exceeds_either_cap(
            sizes in prop::collection::vec((0u8..20, 0u64..70), 0..200),
            items in 1u64..8,
        ) {
            let ledger = Ledger::default();
            let cache = ByteCache::new(&ledger, &frames(items));
            for (key, size) in sizes {
                cache.insert(key, Sized(size));
                let reading = &ledger.read()[0];
                prop_assert!(!reading.exceeded(), "{:?}", reading);
            }
        }
    }
}
