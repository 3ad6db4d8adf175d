//! Memory budget for temporary allocations of several threads: a counting semaphore over bytes.

use std::sync::{Condvar, Mutex, PoisonError};

use super::buffer::Buffer;
use super::ledger::{Cap, Holding, Ledger, Policy};

/// Memory budget in bytes and permits. Policy: block.
#[derive(Debug)]
pub struct Room {
    taken: Mutex<Cap>,
    freed: Condvar,
    holding: Holding,
}

/// Reserved bytes; dropping it returns them to the budget.
#[derive(Debug)]
pub struct Permit<'a> {
    room: &'a Room,
    bytes: u64,
}

impl Room {
    /// A budget of which nothing is reserved, registered in the ledger.
    pub fn new(ledger: &Ledger, buffer: &Buffer) -> Self {
        let holding = buffer.register_as(Policy::Block, ledger);
        Self { taken: Mutex::new(Cap { items: 0, bytes: 0 }), freed: Condvar::new(), holding }
    }

    /// Waits until `bytes` are available and reserves them; `None` if they exceed the whole budget.
    pub fn take(&self, bytes: u64) -> Option<Permit<'_>> {
        let cap = self.holding.cap();
        if bytes > cap.bytes || cap.items == 0 {
            return None;
        }
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |taken: &mut Cap| taken.bytes + bytes > cap.bytes || taken.items + 1 > cap.items;
        let mut taken = self.freed.wait_while(taken, full).unwrap_or_else(PoisonError::into_inner);
        (taken.items, taken.bytes) = (taken.items + 1, taken.bytes + bytes);
        self.holding.set(taken.items, taken.bytes);
        Some(Permit { room: self, bytes })
    }

    /// Maximum that all threads together may reserve.
    pub fn cap(&self) -> Cap {
        self.holding.cap()
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut taken = self.room.taken.lock().unwrap_or_else(PoisonError::into_inner);
        (taken.items, taken.bytes) = (taken.items - 1, taken.bytes - self.bytes);
        self.room.holding.set(taken.items, taken.bytes);
        self.room.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_never_exceed_the_cap_and_all_are_served() {
        let ledger = Ledger::default();
        let room = Room::new(&ledger, &Buffer::new("room", Policy::Block, Cap { items: 3, bytes: 100 }));
        std::thread::scope(|scope| {
            for thread in 0..6u64 {
                let room = &room;
                scope.spawn(move || {
                    for turn in 0..50 {
                        let _taken = room.take(1 + (thread * 31 + turn * 17) % 100).unwrap();
                        std::thread::yield_now();
                    }
                });
            }
        });
        let reading = &ledger.read()[0];
        assert!(!reading.exceeded() && reading.peak_bytes > 0, "{reading:?}");
        assert_eq!((reading.items, reading.bytes), (0, 0));
        assert!(room.take(101).is_none());
    }
}
