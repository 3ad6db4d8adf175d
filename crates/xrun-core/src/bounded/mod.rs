//! Which containers may hold a changing number of things?
//!
//! Only these. Each has a cap in items and bytes, a policy at the cap, and an owner in the ledger.

pub mod buffer;
pub mod cache;
pub mod growth;
pub mod kept;
pub mod ledger;
pub mod list;
pub mod planned;
pub mod queue;
pub mod ring;
pub mod room;

use std::sync::Arc;

/// The bytes that a value holds, on the heap and in itself; what the ledger counts.
pub trait HeldBytes {
    /// Bytes, those of the value itself among them.
    fn held_bytes(&self) -> u64;
}

impl HeldBytes for f64 {
    fn held_bytes(&self) -> u64 {
        8
    }
}

impl HeldBytes for f32 {
    fn held_bytes(&self) -> u64 {
        4
    }
}

/// With the room that it has for more.
impl<T: HeldBytes> HeldBytes for Vec<T> {
    fn held_bytes(&self) -> u64 {
        let free = (self.capacity() - self.len()) * size_of::<T>();
        (size_of::<Self>() + free) as u64 + self.iter().map(HeldBytes::held_bytes).sum::<u64>()
    }
}

/// Counts the value that it points to in full, whoever else points to it.
impl<T: HeldBytes> HeldBytes for Arc<T> {
    fn held_bytes(&self) -> u64 {
        self.as_ref().held_bytes() + size_of::<Self>() as u64
    }
}

impl HeldBytes for Arc<[f32]> {
    fn held_bytes(&self) -> u64 {
        size_of_val(self.as_ref()) as u64
    }
}

impl HeldBytes for String {
    fn held_bytes(&self) -> u64 {
        (size_of::<Self>() + self.capacity()) as u64
    }
}
