//! Memory budget for temporary allocations of several threads: a counting semaphore over bytes.

use std::sync::{Condvar, Mutex, PoisonError};

use super::buffer::Buffer;
use super::ledger::{Cap, Ledger, Policy, Registration};

/// Memory budget in bytes and permits. Policy: block.
#[derive(Debug)]
pub struct MemoryBudget {
    reserved: Mutex<Cap>,
    freed: Condvar,
    registration: Registration,
}

/// Reserved bytes; dropping it returns them to the budget.
#[derive(Debug)]
pub struct Permit<'a> {
    budget: &'a MemoryBudget,
    bytes: u64,
}

impl MemoryBudget {
    /// A budget of which nothing is reserved, registered in the ledger.
    pub fn new(ledger: &Ledger, buffer: &Buffer) -> Self {
        let registration = buffer.register_as(Policy::Block, ledger);
        Self { reserved: Mutex::new(Cap { items: 0, bytes: 0 }), freed: Condvar::new(), registration }
    }

    /// Waits until `bytes` are available and reserves them; `None` if they exceed the whole budget.
    pub fn take(&self, bytes: u64) -> Option<Permit<'_>> {
        let cap = self.registration.cap();
        if bytes > cap.bytes || cap.items == 0 {
            return None;
        }
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |reserved: &mut Cap| reserved.bytes + bytes > cap.bytes || reserved.items + 1 > cap.items;
        let mut reserved = self.freed.wait_while(reserved, full).unwrap_or_else(PoisonError::into_inner);
        (reserved.items, reserved.bytes) = (reserved.items + 1, reserved.bytes + bytes);
        self.registration.set(reserved.items, reserved.bytes);
        Some(Permit { budget: self, bytes })
    }

    /// Maximum that all threads together may reserve.
    pub fn cap(&self) -> Cap {
        self.registration.cap()
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut reserved = self.budget.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        (reserved.items, reserved.bytes) = (reserved.items - 1, reserved.bytes - self.bytes);
        self.budget.registration.set(reserved.items, reserved.bytes);
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_never_exceed_the_cap_and_all_are_served() {
        let ledger = Ledger::default();
        let budget = MemoryBudget::new(&ledger, &Buffer::new("budget", Policy::Block, Cap { items: 3, bytes: 100 }));
        std::thread::scope(|scope| {
            for thread in 0..6u64 {
                let budget = &budget;
                scope.spawn(move || {
                    for turn in 0..50 {
                        let _taken = budget.take(1 + (thread * 31 + turn * 17) % 100).unwrap();
                        std::thread::yield_now();
                    }
                });
            }
        });
        let snapshot = &ledger.read()[0];
        assert!(!snapshot.exceeds_cap() && snapshot.peak_bytes > 0, "{snapshot:?}");
        assert_eq!((snapshot.items, snapshot.bytes), (0, 0));
        assert!(budget.take(101).is_none());
    }
}
