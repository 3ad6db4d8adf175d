//! Containers for a varying number of items. Each has a cap in items and bytes, a policy at the cap, and an owner in the
//! ledger. No other container may grow across steps.

pub mod buffer;
pub mod cache;
pub mod graphs;
pub mod leak_buffer;
pub mod leak_growth;
pub mod ledger;
pub mod list;
pub mod memory_budget;
pub mod planned;
pub mod queue;
pub mod ring;

use std::sync::Arc;

/// Size of a value, including its heap allocations, as the ledger counts it.
pub trait DeepSize {
    /// Bytes of the value itself and of the heap that it owns.
    fn deep_size(&self) -> u64;
}

impl DeepSize for f64 {
    fn deep_size(&self) -> u64 {
        8
    }
}

impl DeepSize for f32 {
    fn deep_size(&self) -> u64 {
        4
    }
}

/// Includes unused capacity.
impl<T: DeepSize> DeepSize for Vec<T> {
    fn deep_size(&self) -> u64 {
        let spare_capacity = (self.capacity() - self.len()) * size_of::<T>();
        (size_of::<Self>() + spare_capacity) as u64 + self.iter().map(DeepSize::deep_size).sum::<u64>()
    }
}

/// Counts the shared value in full, whatever the number of pointers to it.
impl<T: DeepSize> DeepSize for Arc<T> {
    fn deep_size(&self) -> u64 {
        self.as_ref().deep_size() + size_of::<Self>() as u64
    }
}

impl DeepSize for Arc<[f32]> {
    fn deep_size(&self) -> u64 {
        size_of_val(self.as_ref()) as u64
    }
}

impl DeepSize for String {
    fn deep_size(&self) -> u64 {
        (size_of::<Self>() + self.capacity()) as u64
    }
}
