//! What is a run directory?

pub mod format;
pub mod layout;
pub mod read;
pub mod write;
