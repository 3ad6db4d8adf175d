//! Drives the built binary, as a user would.

mod command_line;
mod disk;
mod experiments;
mod interruption;
mod outcomes;
mod schemas;
mod tidy;
#[cfg(feature = "train")]
mod training;
mod workplace;
