//! A list that refuses to grow past its capacity.

use super::HeldBytes;
use super::buffer::Buffer;
use super::ledger::{Holding, Ledger, Policy};

/// Holds at most as many items and bytes as its buffer's cap says. Policy: refuse.
#[derive(Debug)]
pub struct CappedList<T> {
    items: Vec<T>,
    bytes: u64,
    holding: Holding,
}

impl<T: HeldBytes> CappedList<T> {
    /// An empty list, entered in the ledger as declared.
    pub fn new(ledger: &Ledger, buffer: &Buffer) -> Self {
        Self { items: Vec::new(), bytes: 0, holding: buffer.register_as(Policy::Refuse, ledger) }
    }

    /// Gives the item back when it does not fit.
    pub fn push(&mut self, item: T) -> Result<(), T> {
        let (bytes, cap) = (self.bytes + item.held_bytes(), self.holding.cap());
        if self.items.len() as u64 >= cap.items || bytes > cap.bytes {
            return Err(item);
        }
        self.bytes = bytes;
        self.items.push(item);
        self.holding.set(self.items.len() as u64, self.bytes);
        Ok(())
    }

    /// Takes all items out and frees their memory.
    pub fn take(&mut self) -> Vec<T> {
        self.bytes = 0;
        self.holding.set(0, 0);
        std::mem::take(&mut self.items)
    }

    /// In the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::ledger::Cap;

    #[test]
    fn it_refuses_what_does_not_fit_and_gives_it_back() {
        let ledger = Ledger::default();
        let values = Buffer::new("values", Policy::Refuse, Cap { items: 3, bytes: 16 });
        let mut list = CappedList::new(&ledger, &values);
        assert_eq!(list.push(1.0), Ok(()));
        assert_eq!(list.push(2.0), Ok(()));
        assert_eq!(list.push(3.0), Err(3.0), "24 bytes do not fit in 16");
        assert_eq!(ledger.read()[0].bytes, 16);
        assert_eq!(list.take(), [1.0, 2.0]);
        assert_eq!((ledger.read()[0].items, ledger.read()[0].bytes), (0, 0));
    }
}
