//! Drives the built binary, as a user would.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests write samples and stop at what is wrong")]

mod command_line;
mod disk;
mod experiments;
mod export;
mod interruption;
mod outcomes;
mod plan;
mod schemas;
mod sweep;
mod sweep_kills;
mod tidy;
#[cfg(feature = "train")]
mod training;
mod verdict;
mod workplace;
