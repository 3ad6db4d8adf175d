//! Files as xrun reads and writes them: whole or with a valid prefix, with a check over their bytes, and never a device or a pipe.

pub mod file;
pub mod layout;
pub mod seal;
pub mod sums;
pub mod tensors;
pub mod write;
