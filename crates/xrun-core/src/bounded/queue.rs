//! Bounded reorder queue: items come out in the order of their numbers, whichever worker finishes first.
//!
//! Workers claim the next number, prepare that item and deliver it; the consumer takes items 0, 1, 2, …. Claiming blocks
//! (back pressure) while `capacity` claimed items are ahead of the consumer, so the bound holds for any number of workers
//! and any imbalance of their work. Burn's own loader queues up to 100 batches (`MAX_QUEUED_ITEMS`).

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::DeepSize;
use super::buffer::Buffer;
use super::ledger::{Ledger, Policy, Registration};

/// Reorder queue shared by the workers and the consumer. Policy: block.
#[derive(Debug)]
pub struct OrderedQueue<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    next_claim: u64,
    next_take: u64,
    ready: BTreeMap<u64, T>,
    bytes: u64,
    closed: bool,
    registration: Registration,
}

impl<T> Clone for OrderedQueue<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: DeepSize> OrderedQueue<T> {
    /// An empty queue, registered in the ledger, whose first item has the number `first`. The cap is at least one item, and
    /// its bytes must suffice for as many of the largest items.
    pub fn new(ledger: &Ledger, buffer: &Buffer, first: u64) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(State {
                next_claim: first,
                next_take: first,
                ready: BTreeMap::new(),
                bytes: 0,
                closed: false,
                registration: buffer.register_as(Policy::Block, ledger),
            }),
            changed: Condvar::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until another item may be prepared and returns its number; `None` once the queue is closed, or has no place for
    /// the worker of this number, from 0.
    pub fn claim(&self, worker: usize) -> Option<u64> {
        let mut state = self.state();
        loop {
            // Maximum number of items ahead of the consumer.
            let capacity = state.registration.allowed().items;
            if state.closed || worker as u64 >= capacity.max(1) {
                return None;
            }
            if state.next_claim < state.next_take + capacity {
                state.next_claim += 1;
                return Some(state.next_claim - 1);
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Number of items that may be ahead of the consumer at present.
    pub fn capacity(&self) -> u64 {
        self.state().registration.allowed().items
    }

    /// Delivers a claimed item. Never blocks: the claim reserved its slot.
    pub fn deliver(&self, number: u64, item: T) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        state.bytes += item.deep_size();
        state.ready.insert(number, item);
        state.registration.set(state.ready.len() as u64, state.bytes);
        self.0.changed.notify_all();
    }

    /// Waits for the next item in order; `None` once the queue is closed.
    pub fn take(&self) -> Option<T> {
        let mut state = self.state();
        loop {
            let next = state.next_take;
            if let Some(item) = state.ready.remove(&next) {
                state.next_take += 1;
                state.bytes -= item.deep_size();
                state.registration.set(state.ready.len() as u64, state.bytes);
                self.0.changed.notify_all();
                return Some(item);
            }
            if state.closed {
                return None;
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Closes the queue: drops the items left and wakes all waiting threads.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.ready.clear();
        state.bytes = 0;
        state.registration.set(0, 0);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::ledger::Cap;
    use crate::settings::rung::Rung;
    use std::time::Duration;

    fn feed(items: u64) -> Buffer {
        Buffer::new("feed", Policy::Block, Cap { items, bytes: 8 * items })
    }

    fn run(workers: usize, capacity: u64, count: u64) -> Vec<f64> {
        let ledger = Ledger::default();
        let queue = OrderedQueue::<f64>::new(&ledger, &feed(capacity), 0);
        std::thread::scope(|scope| {
            for worker in 0..workers {
                let queue = queue.clone();
                scope.spawn(move || {
                    while let Some(number) = queue.claim(0) {
                        // Uneven work, so that items finish out of order.
                        std::thread::sleep(Duration::from_micros((number * 7 + worker as u64 * 13) % 50));
                        queue.deliver(number, number as f64);
                    }
                });
            }
            let taken = (0..count).map(|_| queue.take().unwrap()).collect();
            queue.close();
            assert!(!ledger.read()[0].exceeds_cap(), "{:?}", ledger.read());
            taken
        })
    }

    #[test]
    fn the_order_does_not_depend_on_the_workers() {
        let expected: Vec<f64> = (0..200).map(f64::from).collect();
        for (workers, capacity) in [(1, 1), (2, 2), (4, 3), (8, 16)] {
            assert_eq!(run(workers, capacity, 200), expected, "{workers} workers, capacity {capacity}");
        }
    }

    #[test]
    fn a_full_queue_blocks_the_workers() {
        let ledger = Ledger::default();
        let queue = OrderedQueue::<f64>::new(&ledger, &feed(3), 0);
        for _ in 0..3 {
            let number = queue.claim(0).unwrap();
            queue.deliver(number, 0.0);
        }
        let blocked = {
            let queue = queue.clone();
            std::thread::Builder::new().spawn(move || queue.claim(0)).unwrap()
        };
        std::thread::sleep(Duration::from_millis(30));
        assert!(!blocked.is_finished(), "a fourth claim must wait");
        queue.take();
        assert_eq!(blocked.join().unwrap(), Some(3));
    }

    #[test]
    fn a_shorter_queue_lets_surplus_workers_end() {
        let ledger = Ledger::default();
        let queue = OrderedQueue::<f64>::new(&ledger, &feed(4).rung(Rung::Prefetch), 0);
        let claimed = [queue.claim(0), queue.claim(3)];
        ledger.allow(Rung::Prefetch, |_| Cap { items: 2, bytes: 16 });
        assert_eq!((claimed, queue.claim(2)), ([Some(0), Some(1)], None));
        queue.deliver(0, 0.0);
        queue.take();
        assert_eq!((queue.claim(1), queue.capacity()), (Some(2), 2));
    }

    #[test]
    fn closing_wakes_waiting_threads() {
        let ledger = Ledger::default();
        let queue = OrderedQueue::<f64>::new(&ledger, &feed(1), 0);
        queue.claim(0);
        let waiting = {
            let queue = queue.clone();
            std::thread::Builder::new().spawn(move || (queue.claim(0), queue.take())).unwrap()
        };
        std::thread::sleep(Duration::from_millis(10));
        queue.close();
        assert_eq!(waiting.join().unwrap(), (None, None));
    }
}
