//! Processes of this machine: what memory they hold, how they end, where they write; and a command of others that is watched.

pub mod child;
pub mod command;
pub mod directory;
pub mod host;
pub mod killed;
pub mod memory;
pub mod stop;
