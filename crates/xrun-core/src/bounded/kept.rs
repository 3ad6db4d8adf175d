//! Where do leaks keep things? Only what `[leaks]` switches on does; everything else in xrun has a cap.

use super::buffer::Buffer;
use super::ledger::{Holding, Ledger, NO_CAP, Policy};

/// The buffer of a leak: it has no cap.
pub fn leak(name: &'static str) -> Buffer {
    Buffer::new(name, Policy::Leak, NO_CAP)
}

/// Things that are kept for ever. A vector that grows is against the rules of this code; here it is the purpose.
pub struct Kept<T>(Option<(Holding, Vec<T>)>);

impl<T> std::fmt::Debug for Kept<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Kept({})", self.0.as_ref().map_or(0, |(_, list)| list.len()))
    }
}

impl<T> Kept<T> {
    /// Keeps nothing unless the leak is switched on; then it is in the ledger as [`leak`] declares it.
    pub fn new(on: bool, buffer: &Buffer, ledger: &Ledger) -> Self {
        Self(on.then(|| (buffer.register_as(Policy::Leak, ledger), Vec::new())))
    }

    /// Whether its leak is switched on.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Keeps what `make` makes, whose bytes are known.
    pub fn keep(&mut self, make: impl FnOnce() -> (T, u64)) {
        let Some((holding, list)) = &mut self.0 else { return };
        let (value, bytes) = make();
        list.push(value);
        holding.set(list.len() as u64, holding.bytes() + bytes);
    }

    /// Replaces the newest by what `make` makes of it, and counts what `in_use` grows by: what is kept is in the chain
    /// behind it.
    pub fn keep_measured_with(&mut self, in_use: impl Fn() -> u64, make: impl FnOnce(Option<&T>) -> T) {
        let Some((holding, list)) = &mut self.0 else { return };
        let before = in_use();
        let value = make(list.last());
        list.clear();
        list.push(value);
        let grown = in_use().saturating_sub(before);
        holding.set(1, holding.bytes() + grown);
    }

    /// Keeps what `make` makes, and counts what `in_use`, the bytes in use where it lives, grows by. On the heap that is
    /// exact with `limits.workers = 0`: other threads use it, too. `left` says the bytes that it shares with others who
    /// soon leave them to it alone, as a graph does that holds weights which the optimiser replaces.
    pub fn keep_measured(&mut self, in_use: impl Fn() -> u64, left: impl FnOnce() -> u64, make: impl FnOnce() -> T) {
        self.keep(|| {
            let before = in_use();
            let value = make();
            (value, left() + in_use().saturating_sub(before))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_in_the_ledger_and_only_when_it_is_switched_on() {
        let ledger = Ledger::default();
        let mut off = Kept::new(false, &leak("leak_off"), &ledger);
        off.keep(|| -> (u8, u64) { unreachable!("nothing is made for a leak that is off") });
        let mut on = Kept::new(true, &leak("leak_on"), &ledger);
        on.keep(|| (1u8, 10));
        on.keep(|| (2u8, 10));
        let readings = ledger.read();
        assert_eq!(readings.len(), 1);
        assert_eq!((readings[0].name, readings[0].items, readings[0].bytes), ("leak_on", 2, 20));
    }
}
