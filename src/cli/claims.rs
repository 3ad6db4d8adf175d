//! `xrun claims`: answer the claims of reports on memory from the kept results.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::Results;
use super::terminal::{Failure, Terminal};
use crate::sweep::claims::{CLAIMS, Claims, Results as KeptResults, markdown};

#[derive(Clone, Debug, Args)]
pub struct ClaimsArguments {
    /// File of the claims. Default: claims.toml in the directory of all results.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    #[command(flatten)]
    results: Results,
}

pub fn run(arguments: &ClaimsArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let results = &arguments.results.directory;
    let file = arguments.file.clone().unwrap_or_else(|| results.join(CLAIMS));
    let claims = Claims::read(&file).map_err(|error| Failure::Usage(error.to_string()))?;
    let answered = claims.answer(&mut KeptResults::new(results)).map_err(Failure::failed)?;
    terminal.print(&markdown(&answered));
    Ok(0)
}
