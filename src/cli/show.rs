//! `xrun show RUN`: what did a run do?

use super::RunName;
use super::terminal::{Failure, Terminal};
use crate::report::summary;
use crate::results::index;

pub fn run(arguments: &RunName, terminal: &Terminal) -> Result<u8, Failure> {
    let run =
        index::find(&arguments.results.folder, &arguments.run).map_err(|error| Failure::Usage(error.to_string()))?;
    match arguments.json {
        true => terminal.json(&summary::json(&run).map_err(Failure::failed)?),
        false => terminal.answer(&summary::text(&run, terminal.width()).map_err(Failure::failed)?),
    }
    Ok(0)
}
