//! List with a fixed maximum of items and bytes.

use super::DeepSize;
use super::buffer::Buffer;
use super::ledger::{Ledger, Policy, Registration};

/// List that rejects items beyond its cap. Policy: refuse.
#[derive(Debug)]
pub struct CappedList<T> {
    items: Vec<T>,
    bytes: u64,
    registration: Registration,
}

impl<T: DeepSize> CappedList<T> {
    /// An empty list, registered in the ledger.
    pub fn new(ledger: &Ledger, buffer: &Buffer) -> Self {
        Self { items: Vec::new(), bytes: 0, registration: buffer.register_as(Policy::Refuse, ledger) }
    }

    /// Adds an item, or returns it as the error if it does not fit.
    pub fn push(&mut self, item: T) -> Result<(), T> {
        let (bytes, cap) = (self.bytes + item.deep_size(), self.registration.cap());
        if self.items.len() as u64 >= cap.items || bytes > cap.bytes {
            return Err(item);
        }
        self.bytes = bytes;
        self.items.push(item);
        self.registration.set(self.items.len() as u64, self.bytes);
        Ok(())
    }

    /// Removes and returns all items.
    pub fn take(&mut self) -> Vec<T> {
        self.bytes = 0;
        self.registration.set(0, 0);
        std::mem::take(&mut self.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::ledger::Cap;

    #[test]
    fn an_item_that_does_not_fit_is_returned() {
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
