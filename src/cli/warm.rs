//! `xrun warm FILE`: compiles and tunes what an experiment needs on a GPU, so that its first run starts in seconds.

use std::time::Instant;

use super::WarmArguments;
use super::terminal::{Failure, Terminal};
use crate::experiment::read;
use crate::probe::ProbeError;
use crate::run::prepare::Planned;
use crate::run::stop::EXIT_DOES_NOT_FIT;
use crate::units::seconds;

pub fn run(arguments: &WarmArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let overrides = arguments.overrides.all();
    let checked = read::read(&arguments.file, &overrides, super::environment())?;
    let planned = Planned::new(checked.experiment, *terminal)?;
    let device = planned.chosen.kind;
    let Some(kernels) = planned.kernels.clone() else {
        let why = "nothing is kept for it: only CUDA compiles kernels that xrun keeps, and `cubecl.toml` may say where";
        return Err(Failure::Usage(format!("{device}: {why}")));
    };
    let begun = Instant::now();
    match planned.measure(&arguments.file, &overrides) {
        Err(error @ ProbeError::OutOfMemory(_)) => {
            terminal.answer(&format!("does not fit: {error}"));
            return Ok(EXIT_DOES_NOT_FIT);
        }
        measured => measured?,
    };
    terminal.answer(&format!(
        "{device}: {} kernels were compiled in {}, and are kept in {}",
        kernels.new_ones(),
        seconds(begun.elapsed().as_secs_f64()),
        kernels.folder().display()
    ));
    Ok(0)
}
