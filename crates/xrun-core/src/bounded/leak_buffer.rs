//! Unbounded buffer for leak injection; only leaks that `[leaks]` switches on use it.

use super::buffer::Buffer;
use super::ledger::{Ledger, NO_CAP, Policy, Registration};

/// Declaration of a leak's buffer, which has no cap.
pub fn leak(name: &'static str) -> Buffer {
    Buffer::new(name, Policy::Leak, NO_CAP)
}

/// Values that are never freed. An unbounded vector is against the rules of this code; here it is the purpose.
pub struct LeakBuffer<T>(Option<(Registration, Vec<T>)>);

impl<T> std::fmt::Debug for LeakBuffer<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "LeakBuffer({})", self.0.as_ref().map_or(0, |(_, list)| list.len()))
    }
}

impl<T> LeakBuffer<T> {
    /// An empty buffer. If `on`, it is registered in the ledger; otherwise it stores nothing.
    pub fn new(on: bool, buffer: &Buffer, ledger: &Ledger) -> Self {
        Self(on.then(|| (buffer.register_as(Policy::Leak, ledger), Vec::new())))
    }

    /// `true` if the leak is switched on.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Stores a value and its size in bytes; `make` is called only if the leak is on.
    pub fn keep(&mut self, make: impl FnOnce() -> (T, u64)) {
        let Some((registration, list)) = &mut self.0 else { return };
        let (value, bytes) = make();
        list.push(value);
        registration.set(list.len() as u64, registration.bytes() + bytes);
    }

    /// Replaces the last value by one that `make` builds from it, as for a chain of graphs, and adds the growth of `in_use` to
    /// the size.
    pub fn replace_measured(&mut self, in_use: impl Fn() -> u64, make: impl FnOnce(Option<&T>) -> T) {
        let Some((registration, list)) = &mut self.0 else { return };
        let before = in_use();
        let value = make(list.last());
        list.clear();
        list.push(value);
        let grown = in_use().saturating_sub(before);
        registration.set(1, registration.bytes() + grown);
    }

    /// Stores a value whose size is the growth of `in_use` (bytes in use of the heap or pool) while `make` runs. On the heap
    /// that is exact only with `limits.workers = 0`, because other threads allocate, too. `left` returns bytes to add: memory
    /// that is shared now and will soon be held by the value alone, such as weights that the optimiser replaces.
    pub fn keep_measured(&mut self, in_use: impl Fn() -> u64, left: impl FnOnce() -> u64, make: impl FnOnce() -> T) {
        self.keep(|| {
            let before = in_use();
            let value = make();
            (value, left() + in_use().saturating_sub(before))
        });
    }
}
