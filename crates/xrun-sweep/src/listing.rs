//! Which sweeps are there, and how far is each?

use std::path::{Path, PathBuf};

use super::record::run_folder;
use super::search::progress::{Stage, stage};
use crate::records::search::Search;
use crate::records::sweep::Record;
use xrun_core::files::layout;
use xrun_core::printable;
use xrun_results::report::axes::time_of_day;
use xrun_results::report::listing::columns_within;

/// Only the newest are looked at.
const SWEEPS_MAX: usize = 50;

/// A sweep, as a person looks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// `experiment/sweeps/sweep`, as every command understands it.
    pub name: String,
    pub folder: PathBuf,
    pub created: String,
    pub keys: Vec<String>,
    pub points: usize,
    pub runs: usize,
    pub finished: usize,
}

/// The sweeps below the results, or of one experiment, newest first; what does not read is left to `sweep --collect`.
pub fn sweeps(results: &Path, experiment: Option<&str>) -> Vec<Listed> {
    let mut places: Vec<(String, String, PathBuf)> = Vec::new();
    for of in folders(results).filter(|name| experiment.is_none_or(|asked| asked == name)) {
        let folder = results.join(&of).join(layout::SWEEPS);
        for sweep in folders(&folder).filter(|name| name != layout::LATEST) {
            let path = folder.join(&sweep);
            if path.join(layout::SWEEP).is_file() {
                places.push((sweep, of.clone(), path));
            }
        }
    }
    // Their names begin with the time.
    places.sort_by(|a, b| b.cmp(a));
    places.truncate(SWEEPS_MAX);
    places
        .into_iter()
        .filter_map(|(sweep, of, folder)| listed(format!("{of}/{}/{sweep}", layout::SWEEPS), folder))
        .collect()
}

fn listed(name: String, folder: PathBuf) -> Option<Listed> {
    let record = Record::read(&folder).ok()?;
    let rungs = record.search.as_ref().map_or(&[][..], Search::rungs);
    let done = |run| match stage(&run_folder(&folder, run), rungs) {
        Stage::Over(outcome) => outcome.is_done(),
        stage => stage == Stage::Waits,
    };
    let finished = record.runs().filter(|run| done(*run)).count();
    let (points, runs) = (record.points.len(), record.runs_at_most());
    Some(Listed { name, created: record.created, keys: record.keys, points, runs, finished, folder })
}

fn folders(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
}

/// A line a sweep. Ends with a line break; empty without sweeps.
pub fn text(sweeps: &[Listed], width: Option<usize>) -> String {
    let row = |sweep: &Listed| {
        vec![
            printable::line(&sweep.name, 80),
            printable::line(&time_of_day(&sweep.created), 30),
            format!("{}/{}", sweep.finished, sweep.runs),
            sweep.points.to_string(),
            printable::line(&sweep.keys.join(", "), 60),
        ]
    };
    let rows: Vec<Vec<String>> = sweeps.iter().map(row).collect();
    let header = ["sweep", "begun", ">finished", ">points", "swept"];
    if rows.is_empty() { String::new() } else { columns_within(&header, &rows, width, &["begun", "points", "swept"]) }
}
