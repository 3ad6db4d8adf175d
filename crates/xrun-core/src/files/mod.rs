//! Reading and writing of result files: atomic replacement or append of whole lines, checksums, and regular files only.

pub mod checksum;
pub mod file;
pub mod layout;
pub mod scratch;
pub mod sums;
pub mod tensors;
pub mod write;
