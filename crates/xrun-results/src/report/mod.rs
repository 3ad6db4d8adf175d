//! Reports on a run directory: text, JSON and HTML.
//!
//! Only the directory is needed, also of a running or killed run or one from another machine. Files are streamed;
//! what is held of them is capped in [`series`], whatever the length of the run.

pub mod axes;
pub mod brief;
pub mod compare;
pub mod curves;
pub mod epochs;
pub mod evaluation;
pub mod formatting;
pub mod groups;
pub mod listing;
pub mod page;
pub mod plots;
pub mod reproduction;
pub mod result;
pub mod run_report;
pub mod series;
mod stages;
pub mod summary;
pub mod trace;
pub mod verdict;
pub mod width;

#[cfg(test)]
#[path = "sample_tests.rs"]
pub(crate) mod sample;
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

/// Error of reporting on a run.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The directory has neither manifest nor summary.
    #[error(
        "{} is not a run directory: it has neither manifest.json nor summary.json",
        xrun_core::printable::line(path, 400)
    )]
    NotARun {
        /// The directory.
        path: String,
    },
    /// Metrics or trace are missing, and an older report exists.
    #[error(
        "{} has no {missing}, from which curves are drawn; the existing report is kept",
        xrun_core::printable::line(path, 400)
    )]
    NothingToDrawFrom {
        /// The run's directory.
        path: String,
        /// Names of the missing files.
        missing: String,
    },
    /// A record of the run is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The report cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes `report.html` and `memory_epochs.csv` into the run's directory, each replaced as a
/// whole. Results are often kept without metrics and trace: then an existing page is left alone and the memory tables
/// are not written. Returns descriptions of what could not be read.
pub fn write(run: &Path) -> Result<Vec<String>, ReportError> {
    write_judged(run, None)
}

/// Writes the reports of a run that may still be running. `so_far` is used if the run has written no verdict.
///
/// # Errors
/// As [`write()`].
pub fn write_judged(run: &Path, so_far: Option<Verdict>) -> Result<Vec<String>, ReportError> {
    let mut report = run_report::gather(run)?;
    write::with_path(run, write::remove_unfinished(run))?;
    report.verdict = report.verdict.take().or(so_far);
    let missing: Vec<&str> = [layout::METRICS, layout::MEMORY].into_iter().filter(|name| !has(run, name)).collect();
    if !missing.is_empty() && has(run, layout::REPORT) {
        let path = run.display().to_string();
        return Err(ReportError::NothingToDrawFrom { path, missing: missing.join(" and no ") });
    }
    let generated = [layout::REPORT, layout::MEMORY_EPOCHS];
    if report.state != RunState::Running || generated.iter().any(|name| sums::has(run, name)) {
        sums::remove(run, &generated);
    }
    // Damage of files that are generated again is not reported.
    report.damage.retain(|damage| !generated.iter().any(|name| damage.starts_with(&*run.join(name).to_string_lossy())));
    write::replace(&run.join(layout::REPORT), page::html(&report).as_bytes())?;
    if has(run, layout::MEMORY) {
        epochs::write(run)?;
    }
    // A running run maintains its list of checksums itself and adds these files when it ends.
    if report.state != RunState::Running {
        sums::record(run, &generated);
    }
    Ok(report.damage)
}

fn has(run: &Path, name: &str) -> bool {
    run.join(name).is_file()
}

/// Calls `handle` for each memory sample of a run. Damaged lines and a missing trace are skipped.
fn for_each_sample(
    run: &Path,
    mut handle: impl FnMut(MemoryLine) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    match read::memory(run) {
        Err(error) if error.is_missing() => Ok(()),
        lines => lines?.try_for_each(|line| match line {
            Ok(line) => handle(line),
            Err(ReadError::Content { .. } | ReadError::Lines { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }),
    }
}
