//! `xrun watch`: runs, samples and limits a command of others, and writes the records of a run.

pub mod command;
mod explain;
