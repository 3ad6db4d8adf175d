//! `xrun completions SHELL`.

use clap::CommandFactory;

use super::terminal::{Failure, Terminal};
use super::{CommandLine, CompletionsArguments};

pub fn run(arguments: &CompletionsArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut CommandLine::command(), "xrun", &mut script);
    terminal.answer(&String::from_utf8_lossy(&script));
    Ok(0)
}
