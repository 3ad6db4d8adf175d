//! Is memory growing, how fast, and who holds it?
//!
//! Judged are floors: the least of each window of steps, so that what a cleanup gives back does not count.

pub(crate) mod command;
pub mod floors;
pub mod judge;
pub(crate) mod names;
pub mod of_file;
pub(crate) mod rising;
pub(crate) mod shape;
pub(crate) mod so_far;
pub mod table;
pub(crate) mod trend;
pub mod watch;
pub(crate) mod words;
