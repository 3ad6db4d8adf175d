//! A run directory -> text, JSON, and a page for people.
//!
//! Needs only the directory: also that of a run that goes on, was killed, or came from another machine. Files are
//! streamed; what is kept of them has a cap in [`series`], whatever the length of the run.

pub mod axes;
pub mod compare;
pub mod curves;
pub mod epochs;
pub mod evaluation;
pub mod junit;
pub mod listing;
pub mod material;
pub mod page;
pub mod perfetto;
pub mod plots;
pub mod reproduction;
pub mod result;
pub mod series;
mod stages;
pub mod summary;
pub mod trace;
pub mod verdict;
pub mod width;

#[cfg(test)]
#[path = "sample_tests.rs"]
mod sample;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::format::MemoryLine;
use crate::index::RunState;
use crate::read;
use crate::read::ReadError;
use crate::verdict::Verdict;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::files::{layout, sums};

/// A run could not be shown.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The folder has neither manifest nor summary.
    #[error(
        "{} is not the directory of a run: it has neither manifest.json nor summary.json",
        xrun_core::printable::line(path, 400)
    )]
    NotARun {
        /// The folder.
        path: String,
    },
    /// Lines that curves are made of are gone, and a report of before is there.
    #[error(
        "{} has no {missing}, which the curves of a report are drawn from: the report that is there stays as it is",
        xrun_core::printable::line(path, 400)
    )]
    NothingToDrawFrom {
        /// The run's folder.
        path: String,
        /// Names of the files that are gone.
        missing: String,
    },
    /// A record of the run is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The report cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes `report.html`, `memory_epochs.csv` and `memory.perfetto.json` into the run's directory, each replaced as a whole.
/// Results are often kept without the lines that these are made of: then a page that is there is left alone, and the
/// tables of memory are not written. Gives what could not be read, for people.
pub fn write(run: &Path) -> Result<Vec<String>, ReportError> {
    write_judged(run, None)
}

/// As [`write`], of a run that may go on still: `so_far` is the verdict on what was written, where the run itself has none.
///
/// # Errors
/// As [`write`].
pub fn write_judged(run: &Path, so_far: Option<Verdict>) -> Result<Vec<String>, ReportError> {
    let mut material = material::gather(run)?;
    material.verdict = material.verdict.take().or(so_far);
    let missing: Vec<&str> = [layout::METRICS, layout::MEMORY].into_iter().filter(|name| !has(run, name)).collect();
    if !missing.is_empty() && has(run, layout::REPORT) {
        let path = run.display().to_string();
        return Err(ReportError::NothingToDrawFrom { path, missing: missing.join(" and no ") });
    }
    let made = [layout::REPORT, layout::MEMORY_EPOCHS, layout::PERFETTO];
    if material.state != RunState::Running || made.iter().any(|name| sums::has(run, name)) {
        sums::forget(run, &made);
    }
    // What is made anew is not worth a word.
    material.damage.retain(|damage| !made.iter().any(|name| damage.starts_with(&*run.join(name).to_string_lossy())));
    write::replace(&run.join(layout::REPORT), page::html(&material).as_bytes())?;
    if has(run, layout::MEMORY) {
        epochs::write(run)?;
        perfetto::write(run)?;
    }
    // While it goes on the list is its own: it notes these files when it ends.
    if material.state != RunState::Running {
        sums::noted(run, &made);
    }
    Ok(material.damage)
}

fn has(run: &Path, name: &str) -> bool {
    run.join(name).is_file()
}

/// Goes through the samples of a run one by one; damaged lines are left out, and so is a trace that is not there.
fn each_sample(run: &Path, mut with: impl FnMut(MemoryLine) -> Result<(), ReportError>) -> Result<(), ReportError> {
    let lines = match read::memory(run) {
        Ok(lines) => lines,
        Err(error) if error.is_missing() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for line in lines {
        match line {
            Ok(line) => with(line)?,
            Err(ReadError::Content { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
