//! How much memory is in use, and who holds it?

pub mod ledger;
