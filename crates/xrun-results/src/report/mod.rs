//! Reports on a run directory: text, JSON and HTML.
//!
//! Only the directory is needed, also of a running or killed run or one from another machine. Files are streamed;
//! what is held of them is capped in [`series`], whatever the length of the run.

pub mod axes;
mod classes;
pub mod compare;
pub mod curves;
pub mod evaluation;
pub mod formatting;
pub mod listing;
pub mod page;
pub mod periods;
pub mod plots;
pub mod reproduction;
pub mod result;
pub mod run_report;
pub mod series;
pub mod summary;
pub mod table;
pub mod trace;
pub mod verdict;
pub mod width;

#[cfg(test)]
#[path = "sample_tests.rs"]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::read::ReadError;
use crate::run_state::RunState;
use crate::view::RunView;
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

/// Writes `report.html` into the run's directory, replaced as a whole. Results are often kept without metrics and trace: then
/// an existing page is left alone. Returns descriptions of what could not be read.
pub fn write(run: &Path) -> Result<Vec<String>, ReportError> {
    write_view(&run_report::open(run)?)
}

/// Writes the reports of a run from what is known of it, as [`write()`].
///
/// # Errors
/// As [`write()`].
pub fn write_view(report: &RunView) -> Result<Vec<String>, ReportError> {
    let run = report.path.as_path();
    // Found before a file is replaced.
    report.damage();
    write::with_path(run, write::remove_unfinished(run))?;
    let missing: Vec<&str> = [layout::METRICS, layout::MEMORY].into_iter().filter(|name| !has(run, name)).collect();
    if !missing.is_empty() && has(run, layout::REPORT) {
        let path = run.display().to_string();
        return Err(ReportError::NothingToDrawFrom { path, missing: missing.join(" and no ") });
    }
    let is_running = *report.state() == RunState::Running;
    if !is_running || sums::has(run, layout::REPORT) {
        sums::remove(run, &[layout::REPORT]);
    }
    write::replace(&run.join(layout::REPORT), page::html(report).as_bytes())?;
    // A running run maintains its list of checksums itself and adds the page when it ends.
    if !is_running {
        sums::record(run, &[layout::REPORT]);
    }
    Ok(damage(report).map(str::to_owned).collect())
}

/// Damage without that of the page, which is generated again.
fn damage(report: &RunView) -> impl Iterator<Item = &str> {
    let page = report.path.join(layout::REPORT).to_string_lossy().into_owned();
    report.damage().iter().map(String::as_str).filter(move |damage| !damage.starts_with(&page))
}

fn has(run: &Path, name: &str) -> bool {
    run.join(name).is_file()
}
