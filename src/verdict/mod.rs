//! Is memory growing, how fast, and who holds it?
//!
//! Judged are floors: the least of each window of steps, so that what a cleanup gives back does not count.

pub mod command;
pub mod floors;
pub mod judge;
pub mod names;
pub mod of_file;
pub mod rising;
pub mod shape;
pub mod table;
pub mod trend;
pub mod watch;
pub mod words;
