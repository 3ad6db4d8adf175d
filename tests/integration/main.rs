//! Drives the built binary, as a user would.

mod command_line;
mod disk;
mod interruption;
mod outcomes;
mod tidy;
mod workplace;
