//! What is a run directory, and that of a sweep?

pub mod agreement;
pub mod axis;
pub mod comparison;
pub mod file;
pub mod format;
pub mod index;
pub mod layout;
pub mod loss;
pub mod metric;
pub mod named;
pub mod need;
pub mod picture;
pub mod printable;
pub mod read;
pub mod reproduction;
pub mod resolved;
pub mod seal;
pub mod selection;
pub mod smaller;
pub mod state;
pub mod sums;
pub mod sweep;
pub mod tensors;
pub mod verdict;
pub mod write;
