//! `xrun ui --export`: the page, its data and all reports as files.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::catalog::Catalog;
use super::{RUNS, Report, curves, page, report_text, sweep_text};
use crate::cli::terminal::Failure;
use crate::files::write;
use crate::units::{Bytes, pluralize};

/// Name of the page.
pub const INDEX: &str = "index.html";
/// Largest size of all curves in the page; those of the newest runs are kept.
const CURVES_BYTES_MAX: usize = 48 * 1024 * 1024;
/// Longest time of reading the list.
const READING_MAX: Duration = Duration::from_secs(3600);

/// Summary of what was written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    runs: usize,
    sweeps: usize,
    without_curves: usize,
    failed: Vec<String>,
}

impl Written {
    /// The summary as a message.
    pub fn message(&self) -> String {
        let mut text =
            format!("wrote {} and {}", pluralize(self.runs as u64, "run"), pluralize(self.sweeps as u64, "sweep"));
        if self.without_curves > 0 {
            text.push_str(&format!(
                "; the curves of {} are left out, because curves take more than {}",
                pluralize(self.without_curves as u64, "older run"),
                Bytes(CURVES_BYTES_MAX as u64)
            ));
        }
        if let Some(first) = self.failed.first() {
            text.push_str(&format!("; {} without a report: {first}", self.failed.len()));
        }
        text
    }
}

/// Writes everything below a new or empty directory.
pub fn write(results: &Path, directory: &Path) -> Result<Written, Failure> {
    let is_empty = std::fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none());
    if !is_empty {
        return Err(Failure::Usage(format!("{} is not empty; name a new directory", directory.display())));
    }
    for directory in [directory.to_path_buf(), directory.join("report"), directory.join("sweep")] {
        write::create_directories(&directory).map_err(Failure::failed)?;
    }
    let mut catalog = Catalog::new(results);
    let begin = Instant::now();
    while catalog.listing().pending > 0 && begin.elapsed() < READING_MAX {}
    let listing = catalog.listing().clone();
    let mut written = Written { runs: listing.runs.len(), sweeps: listing.sweeps.len(), ..Written::default() };
    let mut documents: BTreeMap<String, Value> = BTreeMap::new();
    let mut bytes = 0;
    let id = |row: &Value| row["id"].as_str().unwrap_or_default().to_owned();
    for id in listing.runs.iter().map(id) {
        let Some(run) = catalog.directory(&id) else { continue };
        if bytes <= CURVES_BYTES_MAX {
            // Texts, numbers and lists always serialise.
            let curves = serde_json::to_value(curves::read(run)).unwrap_or_default();
            bytes += curves.to_string().len();
            documents.insert(format!("curves/{id}.json"), curves);
        } else {
            written.without_curves += 1;
        }
        match report_text(run) {
            Ok(Report::Written(text) | Report::Stored(text)) => {
                write::replace(&directory.join("report").join(format!("{id}.html")), text.as_bytes())
                    .map_err(Failure::failed)?;
            }
            Err(message) => written.failed.push(message),
        }
    }
    for id in listing.sweeps.iter().map(id) {
        let Some(sweep) = catalog.directory(&id) else { continue };
        match sweep_text(sweep) {
            Ok(text) => write::replace(&directory.join("sweep").join(format!("{id}.html")), text.as_bytes())
                .map_err(Failure::failed)?,
            Err(message) => written.failed.push(message),
        }
    }
    documents.insert(RUNS.to_owned(), serde_json::to_value(&listing).unwrap_or_default());
    let data = serde_json::to_string(&documents).unwrap_or_default();
    write::replace(&directory.join(INDEX), page::html(Some(&data)).as_bytes()).map_err(Failure::failed)?;
    Ok(written)
}
