//! Processes of this machine: their memory, how they end, where they write; and `xrun watch`, which runs and samples a
//! command.

pub mod child;
pub mod command;
pub mod directory;
pub mod exit;
pub mod host;
pub mod killed;
pub mod memory;
pub mod stop;
