//! LRU cache bounded by bytes and items.
//!
//! A bound by count alone is not enough, because items differ in size: a cache of 500 frames per video once grew to
//! whatever 500 frames take (docs/origins.md).

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use super::DeepSize;
use super::buffer::Buffer;
use super::ledger::{Cap, Ledger, Policy, Registration};

/// LRU cache shared between threads. Values are cloned out, so they should be cheap to clone (`Arc`). Policy: evict.
#[derive(Debug)]
pub struct ByteCache<K: Hash + Eq, V>(Mutex<Inner<K, V>>);

#[derive(Debug)]
struct Inner<K: Hash + Eq, V> {
    entries: LruCache<K, V>,
    bytes: u64,
    counters: CacheCounters,
    registration: Registration,
}

/// Counters of a cache since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Lookups that found their item.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Items dropped to stay within the cap.
    pub evictions: u64,
    /// Items larger than the whole cache, which were not stored.
    pub too_large: u64,
}

impl<K: Hash + Eq, V: Clone + DeepSize> ByteCache<K, V> {
    /// An empty cache, registered in the ledger.
    pub fn new(ledger: &Ledger, buffer: &Buffer) -> Self {
        Self(Mutex::new(Inner {
            entries: LruCache::unbounded(), // `insert` bounds it by bytes and items
            bytes: 0,
            counters: CacheCounters::default(),
            registration: buffer.register_as(Policy::Evict, ledger),
        }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a clone of the item and marks it as most recently used.
    pub fn get(&self, key: &K) -> Option<V> {
        let mut inner = self.inner();
        let found = inner.entries.get(key).cloned();
        match found {
            Some(_) => inner.counters.hits += 1,
            None => inner.counters.misses += 1,
        }
        found
    }

    /// Stores the value and evicts least recently used ones. A value larger than the whole cache is not stored.
    pub fn insert(&self, key: K, value: V) {
        let mut inner = self.inner();
        let (bytes, cap) = (value.deep_size(), inner.registration.allowed());
        if bytes > cap.bytes || cap.items == 0 {
            inner.counters.too_large += 1;
            return;
        }
        if let Some(old) = inner.entries.pop(&key) {
            inner.bytes -= old.deep_size();
        }
        inner.evict_down_to(Cap { items: cap.items - 1, bytes: cap.bytes - bytes });
        inner.entries.push(key, value);
        inner.bytes += bytes;
        inner.report();
    }

    /// Evicts down to a fraction of the present maximum; returns the bytes freed.
    pub fn evict_to_fraction(&self, share: f64) -> u64 {
        let mut inner = self.inner();
        let (before, allowed) = (inner.bytes, inner.registration.allowed());
        let target = Cap { bytes: (allowed.bytes as f64 * share) as u64, ..inner.registration.cap() };
        inner.evict_down_to(target);
        inner.report();
        before - inner.bytes
    }

    /// Counters since the cache was created.
    pub fn counters(&self) -> CacheCounters {
        self.inner().counters
    }
}

impl<K: Hash + Eq, V: Clone + DeepSize> Inner<K, V> {
    fn evict_down_to(&mut self, target: Cap) {
        while self.bytes > target.bytes || self.entries.len() as u64 > target.items {
            let Some((_, old)) = self.entries.pop_lru() else { break };
            self.bytes -= old.deep_size();
            self.counters.evictions += 1;
        }
    }

    fn report(&self) {
        self.registration.set(self.entries.len() as u64, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::rung::Rung;
    use proptest::prelude::*;

    fn frames(items: u64) -> Buffer {
        Buffer::new("frames", Policy::Evict, Cap { items, bytes: 100 })
    }

    #[derive(Clone, Debug, PartialEq)]
    struct Sized(u64);

    impl DeepSize for Sized {
        fn deep_size(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn the_least_recently_used_item_is_evicted() {
        let ledger = Ledger::default();
        let cache = ByteCache::new(&ledger, &frames(10));
        cache.insert("a", Sized(40));
        cache.insert("b", Sized(40));
        assert_eq!(cache.get(&"a"), Some(Sized(40)));
        cache.insert("c", Sized(40));
        assert_eq!(cache.get(&"b"), None);
        assert_eq!(cache.get(&"a"), Some(Sized(40)));
        let counters = cache.counters();
        assert_eq!((counters.hits, counters.misses, counters.evictions), (2, 1, 1));
        cache.insert("huge", Sized(101));
        assert_eq!(cache.counters().too_large, 1);
        assert_eq!(cache.evict_to_fraction(0.5), 40);
    }

    #[test]
    fn a_rung_halves_the_cache_and_what_does_not_fit_is_not_stored() {
        let ledger = Ledger::default();
        let cache = ByteCache::new(&ledger, &frames(10).rung(Rung::Caches));
        cache.insert("a", Sized(40));
        cache.insert("b", Sized(40));
        ledger.allow(Rung::Caches, |cap| Cap { bytes: cap.bytes / 2, ..cap });
        assert_eq!((cache.evict_to_fraction(1.0), cache.get(&"b")), (40, Some(Sized(40))));
        cache.insert("c", Sized(45));
        cache.insert("d", Sized(51));
        assert_eq!([cache.get(&"b"), cache.get(&"c"), cache.get(&"d")], [None, Some(Sized(45)), None]);
        ledger.allow(Rung::Caches, |cap| Cap { bytes: 0, ..cap });
        assert_eq!((cache.evict_to_fraction(0.5), ledger.read()[0].bytes), (45, 0));
    }

    proptest! {
        #[test]
        fn no_sequence_of_inserts_exceeds_the_cap(
            sizes in prop::collection::vec((0u8..20, 0u64..70), 0..200),
            items in 1u64..8,
        ) {
            let ledger = Ledger::default();
            let cache = ByteCache::new(&ledger, &frames(items));
            for (key, size) in sizes {
                cache.insert(key, Sized(size));
                let snapshot = &ledger.read()[0];
                prop_assert!(!snapshot.exceeds_cap(), "{:?}", snapshot);
            }
        }
    }
}
