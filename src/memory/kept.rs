//! Where do leaks keep things? Only what `[leaks]` switches on does; everything else in xrun has a cap.

use super::heap;
use super::ledger::{Holding, Ledger, NO_CAP, Policy};

/// Things that are kept for ever. A vector that grows is against the rules of this code; here it is the purpose.
pub struct Kept<T>(Option<(Holding, Vec<T>)>);

impl<T> std::fmt::Debug for Kept<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Kept({})", self.0.as_ref().map_or(0, |(_, list)| list.len()))
    }
}

impl<T> Kept<T> {
    /// Keeps nothing unless the leak is switched on; then it is `owner` in the ledger.
    pub fn new(on: bool, owner: &'static str, ledger: &Ledger) -> Self {
        Self(on.then(|| (ledger.register(owner, NO_CAP, Policy::Leak), Vec::new())))
    }

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

    /// Replaces the newest by what `make` makes of it, and counts what the heap in use grows by: what is kept is in the
    /// chain behind it.
    pub fn keep_measured_with(&mut self, make: impl FnOnce(Option<&T>) -> T) {
        let Some((holding, list)) = &mut self.0 else { return };
        let before = heap::read().bytes;
        let value = make(list.last());
        list.clear();
        list.push(value);
        let grown = heap::read().bytes.saturating_sub(before);
        holding.set(1, holding.bytes() + grown);
    }

    /// Keeps what `make` makes, and counts what the heap in use grows by. On the CPU, and exact with `limits.workers = 0`:
    /// other threads use the heap, too.
    pub fn keep_measured(&mut self, make: impl FnOnce() -> T) {
        self.keep(|| {
            let before = heap::read().bytes;
            let value = make();
            (value, heap::read().bytes.saturating_sub(before))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_in_the_ledger_and_only_when_it_is_switched_on() {
        let ledger = Ledger::default();
        let mut off = Kept::new(false, "leak_off", &ledger);
        off.keep(|| -> (u8, u64) { unreachable!("nothing is made for a leak that is off") });
        let mut on = Kept::new(true, "leak_on", &ledger);
        on.keep(|| (1u8, 10));
        on.keep(|| (2u8, 10));
        let readings = ledger.read();
        assert_eq!(readings.len(), 1);
        assert_eq!((readings[0].name, readings[0].items, readings[0].bytes), ("leak_on", 2, 20));
    }
}
