//! Ring buffer of the last N items.

use std::collections::VecDeque;

use super::DeepSize;
use super::buffer::Buffer;
use super::ledger::{Ledger, Policy, Registration};

/// Ring buffer that drops the oldest item when it is full. Policy: evict.
#[derive(Debug)]
pub struct Ring<T> {
    items: VecDeque<T>,
    capacity: usize,
    bytes: u64,
    registration: Registration,
}

impl<T: DeepSize> Ring<T> {
    /// An empty ring, registered in the ledger. The cap is at least one item, and its bytes must suffice for as many of the
    /// largest items.
    pub fn new(ledger: &Ledger, buffer: &Buffer) -> Self {
        let capacity = buffer.cap.items as usize;
        Self {
            items: VecDeque::with_capacity(capacity),
            capacity,
            bytes: 0,
            registration: buffer.register_as(Policy::Evict, ledger),
        }
    }

    /// Adds an item, and drops the oldest if the ring is full.
    pub fn push(&mut self, item: T) {
        if self.items.len() == self.capacity {
            self.bytes -= self.items.pop_front().map_or(0, |old| old.deep_size());
        }
        self.bytes += item.deep_size();
        self.items.push_back(item);
        self.registration.set(self.items.len() as u64, self.bytes);
    }

    /// Items, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::ledger::Cap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_holds_exactly_the_last_items(capacity in 1usize..20, count in 0usize..60) {
            let ledger = Ledger::default();
            let cap = Cap { items: capacity as u64, bytes: 8 * capacity as u64 };
            let mut ring = Ring::new(&ledger, &Buffer::new("norms", Policy::Evict, cap));
            for value in 0..count {
                ring.push(value as f64);
            }
            let expected: Vec<f64> = (count.saturating_sub(capacity)..count).map(|v| v as f64).collect();
            prop_assert_eq!(ring.iter().copied().collect::<Vec<_>>(), expected);
            prop_assert!(!ledger.read()[0].exceeds_cap());
        }
    }
}
