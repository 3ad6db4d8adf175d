//! A bounded queue whose items come out in the order of their numbers, whoever finishes first.
//!
//! Workers claim the next number, prepare that item and deliver it; the consumer takes items 0, 1, 2, … . At most
//! `capacity` items are ahead of the consumer, counted from the claim, so that the bound holds whatever the number of
//! workers and however uneven their work: claiming blocks (back pressure). The order does not depend on the number of
//! workers. Burn's own loader is the counter-example: it holds up to 100 batches (`MAX_QUEUED_ITEMS`).

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::HeldBytes;
use super::buffer::Buffer;
use super::ledger::{Holding, Ledger, Policy};

/// Shared by the workers and the consumer. Policy: block.
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
    holding: Holding,
}

impl<T> Clone for OrderedQueue<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: HeldBytes> OrderedQueue<T> {
    /// `first` is the number of the first item. The cap is of one item at least, and in bytes of as many of the largest.
    pub fn new(ledger: &Ledger, buffer: &Buffer, first: u64) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(State {
                next_claim: first,
                next_take: first,
                ready: BTreeMap::new(),
                bytes: 0,
                closed: false,
                holding: buffer.register_as(Policy::Block, ledger),
            }),
            changed: Condvar::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more item may be prepared and returns its number; `None` once the queue is closed.
    pub fn claim(&self) -> Option<u64> {
        let mut state = self.state();
        // Items that may be ahead of the consumer.
        let capacity = state.holding.cap().items;
        while !state.closed && state.next_claim >= state.next_take + capacity {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return None;
        }
        state.next_claim += 1;
        Some(state.next_claim - 1)
    }

    /// Hands in a claimed item. Never waits: its place was taken by the claim.
    pub fn deliver(&self, number: u64, item: T) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        state.bytes += item.held_bytes();
        state.ready.insert(number, item);
        state.holding.set(state.ready.len() as u64, state.bytes);
        self.0.changed.notify_all();
    }

    /// Waits for the next item in order; `None` once the queue is closed.
    pub fn take(&self) -> Option<T> {
        let mut state = self.state();
        loop {
            let next = state.next_take;
            if let Some(item) = state.ready.remove(&next) {
                state.next_take += 1;
                state.bytes -= item.held_bytes();
                state.holding.set(state.ready.len() as u64, state.bytes);
                self.0.changed.notify_all();
                return Some(item);
            }
            if state.closed {
                return None;
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes everybody; items that were not taken are dropped.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.ready.clear();
        state.bytes = 0;
        state.holding.set(0, 0);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::ledger::Cap;
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
                    while let Some(number) = queue.claim() {
                        // Uneven work, so that items finish out of order.
                        std::thread::sleep(Duration::from_micros((number * 7 + worker as u64 * 13) % 50));
                        queue.deliver(number, number as f64);
                    }
                });
            }
            let taken = (0..count).map(|_| queue.take().unwrap()).collect();
            queue.close();
            assert!(!ledger.read()[0].exceeded(), "{:?}", ledger.read());
            taken
        })
    }

    #[test]
    fn the_order_is_that_of_the_numbers_whatever_the_workers() {
        let expected: Vec<f64> = (0..200).map(f64::from).collect();
        for (workers, capacity) in [(1, 1), (2, 2), (4, 3), (8, 16)] {
            assert_eq!(run(workers, capacity, 200), expected, "{workers} workers, capacity {capacity}");
        }
    }

    #[test]
    fn a_slow_consumer_holds_the_workers_back() {
        let ledger = Ledger::default();
        let queue = OrderedQueue::<f64>::new(&ledger, &feed(3), 0);
        for _ in 0..3 {
            let number = queue.claim().unwrap();
            queue.deliver(number, 0.0);
        }
        let blocked = {
            let queue = queue.clone();
            std::thread::Builder::new().spawn(move || queue.claim()).unwrap()
        };
        std::thread::sleep(Duration::from_millis(30));
        assert!(!blocked.is_finished(), "a fourth claim must wait");
        queue.take();
        assert_eq!(blocked.join().unwrap(), Some(3));
    }

    #[test]
    fn closing_wakes_those_who_wait() {
        let ledger = Ledger::default();
        let queue = OrderedQueue::<f64>::new(&ledger, &feed(1), 0);
        queue.claim();
        let waiting = {
            let queue = queue.clone();
            std::thread::Builder::new().spawn(move || (queue.claim(), queue.take())).unwrap()
        };
        std::thread::sleep(Duration::from_millis(10));
        queue.close();
        assert_eq!(waiting.join().unwrap(), (None, None));
    }
}
