//! The records of a sweep.

pub mod search;
pub mod sweep;
pub mod sweep_memory;
