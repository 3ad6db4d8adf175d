//! Is memory growing, how fast, and who holds it?

pub mod floors;
pub mod judge;
pub mod trend;
