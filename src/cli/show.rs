//! `xrun show RUN`: what did a run do, or what came out of a sweep?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::RunName;
use super::terminal::{Failure, Terminal};
use crate::report::summary;
use crate::results::sweep::Record;
use crate::results::{index, layout, named};
use crate::sweep::{listing, table, text};

pub fn run(arguments: &RunName, terminal: &Terminal) -> Result<u8, Failure> {
    let results = &arguments.results.folder;
    if let Some(sweep) = meant(results, &arguments.run) {
        return show_sweep(&sweep, arguments.json, terminal);
    }
    let run = index::find(results, &arguments.run).map_err(|error| Failure::Usage(error.to_string()))?;
    match arguments.json {
        true => terminal.json(&summary::json(&run).map_err(Failure::failed)?),
        false => terminal.answer(&summary::text(&run, terminal.width()).map_err(Failure::failed)?),
    }
    Ok(0)
}

/// The sweep of this name, or the newest one of an experiment that has no runs of its own.
fn meant(results: &Path, text: &str) -> Option<PathBuf> {
    let of_experiment = || {
        let has_runs = index::experiments(results).iter().any(|name| name == text);
        let sweeps = if has_runs { Vec::new() } else { listing::sweeps(results, Some(text)) };
        sweeps.into_iter().next().map(|sweep| sweep.folder)
    };
    named::sweep(results, Path::new(text)).or_else(of_experiment)
}

/// As it stands now, also while its runs go on; writes nothing.
fn show_sweep(sweep: &Path, json: bool, terminal: &Terminal) -> Result<u8, Failure> {
    let record = Record::read(sweep).map_err(Failure::failed)?;
    let table = table::table(sweep, &record, &BTreeMap::new());
    if json {
        terminal.json(&table);
        return Ok(0);
    }
    let page = sweep.join(layout::REPORT);
    let page = if page.is_file() { page.display().to_string() } else { "not written yet".into() };
    terminal.answer(&format!(
        "sweep   {}\nreport  {page}\n\n{}",
        sweep.display(),
        text::text(&table, terminal.width())
    ));
    Ok(0)
}
