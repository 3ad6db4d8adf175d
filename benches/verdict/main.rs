//! How often is the verdict wrong? Habits of memory whose truth is known, judged, and counted.
//!
//! `cargo bench --no-default-features --bench verdict`

mod outcome;
mod series;

fn main() {}
