//! `xrun man`: the manual page.

use clap::CommandFactory;

use super::terminal::{Failure, Terminal};
use super::{CommandLine, ManArguments};

pub fn run(arguments: &ManArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let mut command = CommandLine::command();
    command.build();
    let command = match &arguments.subcommand {
        None => command,
        Some(name) => command
            .find_subcommand(name)
            .cloned()
            .ok_or_else(|| Failure::Usage(format!("there is no subcommand `{name}`; see xrun --help")))?,
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(Failure::failed)?;
    terminal.answer(&String::from_utf8_lossy(&page));
    Ok(0)
}
