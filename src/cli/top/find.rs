//! Which runs does a folder have that are worth a look?

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use crate::cli::terminal::Failure;
use crate::files::layout;
use crate::results::{index, named};

/// Only the newest sweeps of an experiment are looked at, and so many of their runs.
const SWEEPS_MAX: usize = 20;
const POINTS_MAX: usize = 2000;

/// The folder that a word means: a path, or a run or a sweep by its name.
pub fn meant(results: &Path, text: &str) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(text);
    if path.is_dir() {
        return Ok(path);
    }
    if let Some(sweep) = named::sweep(results, &path) {
        return Ok(sweep);
    }
    index::find(results, text).map_err(|error| Failure::Usage(format!("there is no such folder, and {error}")))
}

/// The runs of a folder, newest first: the run itself, those of a sweep, or of results all runs, those of their sweeps and
/// those that were made to reproduce others.
pub fn runs(folder: &Path) -> Vec<PathBuf> {
    if index::is_run(folder) {
        return vec![folder.to_path_buf()];
    }
    if folder.join(layout::SWEEP).is_file() {
        return points(folder);
    }
    let below = folders(folder, usize::MAX);
    // The folder of an experiment, or of its sweeps.
    let is_experiment = below.iter().any(|one| index::is_run(one)) || folder.join(layout::SWEEPS).is_dir();
    let sweeps: Vec<&PathBuf> = below.iter().filter(|one| one.join(layout::SWEEP).is_file()).take(SWEEPS_MAX).collect();
    if !is_experiment && !sweeps.is_empty() {
        return sweeps.into_iter().flat_map(|sweep| points(sweep)).collect();
    }
    let (mut found, experiments) = match is_experiment {
        true => {
            let runs = below.into_iter().filter(|one| index::is_run(one)).map(|run| (name(&run), run));
            (runs.collect::<Vec<(String, PathBuf)>>(), vec![folder.to_path_buf()])
        }
        false => (index::folders_newest_first(folder).collect(), below),
    };
    for experiment in experiments {
        let apart = |name: &str, most| folders(&experiment.join(name), most);
        for run in apart(layout::REPRODUCTIONS, index::RUNS_MAX) {
            found.push((name(&run), run));
        }
        for sweep in apart(layout::SWEEPS, SWEEPS_MAX) {
            let time = name(&sweep);
            found.extend(points(&sweep).into_iter().map(|point| (time.clone(), point)));
        }
    }
    // Their names begin with the time; the sort keeps the order of the points of a sweep.
    found.sort_by(|one, other| other.0.cmp(&one.0));
    found.truncate(index::RUNS_MAX);
    found.into_iter().map(|(_, run)| run).collect()
}

fn points(sweep: &Path) -> Vec<PathBuf> {
    let mut points = folders(&sweep.join(layout::POINTS), POINTS_MAX);
    points.reverse();
    points
}

/// The folders in a folder whose names come last, last first; without links and what is hidden.
fn folders(folder: &Path, most: usize) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .take(index::RUNS_MAX)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .map(|entry| entry.path())
        .collect();
    found.sort_by_key(|path| Reverse(path.clone()));
    found.truncate(most);
    found
}

fn name(path: &Path) -> String {
    path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned())
}
