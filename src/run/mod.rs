//! How is a planned task trained, stopped, saved and continued?

pub mod calendar;
pub mod clock;
pub mod schedule;
pub mod stop;
