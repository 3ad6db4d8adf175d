//! The sweeps below the results, with the progress of each.

use std::path::{Path, PathBuf};

use super::record::run_directory;
use super::search::progress::{RunStage, stage};
use crate::records::search::Search;
use crate::records::sweep::SweepRecord;
use xrun_core::files::layout;
use xrun_core::printable;
use xrun_core::units::pluralize;
use xrun_results::index::subdirectories;
use xrun_results::report::formatting::utc_time;
use xrun_results::report::listing::columns_within;
use xrun_results::run_name;

/// Largest number of sweeps that are listed, the newest first.
const SWEEPS_MAX: usize = 50;

/// Entry of the list of sweeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSweep {
    /// `experiment/sweeps/sweep`, the name that every command accepts.
    pub name: String,
    /// Its directory.
    pub directory: PathBuf,
    /// RFC 3339, UTC.
    pub created: String,
    /// The swept keys.
    pub keys: Vec<String>,
    /// Number of trials, so far.
    pub trials: usize,
    /// Number of runs, at most.
    pub runs: usize,
    /// Number of runs that finished, or wait at a rung.
    pub finished: usize,
}

/// The newest sweeps below the results, or of one experiment, newest first, and the number of older ones. Invalid ones are left
/// out: `sweep --collect` reports them.
pub fn sweeps(results: &Path, experiment: Option<&str>) -> (Vec<ListedSweep>, usize) {
    let mut all: Vec<(String, String, PathBuf)> = directories_of_sweeps(results, experiment).collect();
    all.sort_by(|a, b| b.cmp(a));
    let older = all.len().saturating_sub(SWEEPS_MAX);
    all.truncate(SWEEPS_MAX);
    let name = |experiment, sweep| format!("{experiment}/{}/{sweep}", layout::SWEEPS);
    let newest = all.into_iter().filter_map(|(sweep, experiment, path)| listed(name(experiment, sweep), path));
    (newest.collect(), older)
}

/// The sweeps below the results, or of one experiment: name, which begins with the time, experiment and directory.
fn directories_of_sweeps(results: &Path, experiment: Option<&str>) -> impl Iterator<Item = (String, String, PathBuf)> {
    let experiments =
        subdirectories(results, results).filter(move |name| experiment.is_none_or(|experiment| experiment == name));
    let sweeps = experiments.flat_map(move |experiment| {
        let directory = results.join(&experiment).join(layout::SWEEPS);
        subdirectories(&directory, results).map(move |sweep| (sweep.clone(), experiment.clone(), directory.join(sweep)))
    });
    sweeps.filter(|(_, _, path)| path.join(layout::SWEEP).is_file())
}

/// Directory of the sweep called `text`: a path, `experiment/sweeps/sweep`, or for the newest sweep `latest`, `experiment`
/// or `experiment/latest`.
pub fn find(results: &Path, text: &str) -> Option<PathBuf> {
    let newest = || {
        let text = text.trim_end_matches('/');
        let named = text.strip_suffix(layout::LATEST).map_or(text, |before| before.trim_end_matches('/'));
        newest(results, Some(named).filter(|name| !name.is_empty()))
    };
    run_name::sweep(results, Path::new(text)).or_else(newest)
}

/// Directory of the newest sweep, of all experiments or of one.
pub fn newest(results: &Path, experiment: Option<&str>) -> Option<PathBuf> {
    directories_of_sweeps(results, experiment).max().map(|(_, _, path)| path)
}

fn listed(name: String, directory: PathBuf) -> Option<ListedSweep> {
    let record = SweepRecord::read(&directory).ok()?;
    let rungs = record.search.as_ref().map_or(&[][..], Search::rungs);
    let done = |run| match stage(&run_directory(&directory, run), rungs) {
        RunStage::Over(outcome) => outcome.is_complete(),
        stage => stage == RunStage::Waits,
    };
    let finished = record.runs().filter(|run| done(*run)).count();
    let (trials, runs) = (record.trials.len(), record.runs_at_most());
    Some(ListedSweep { name, created: record.created, keys: record.keys, trials, runs, finished, directory })
}

/// A line for each sweep and for the number of `older` ones, ending with a line break; empty without sweeps.
pub fn text((sweeps, older): &(Vec<ListedSweep>, usize), width: Option<usize>) -> String {
    let row = |sweep: &ListedSweep| {
        vec![
            printable::line(&sweep.name, 80),
            printable::line(&utc_time(&sweep.created), 30),
            format!("{}/{}", sweep.finished, sweep.runs),
            sweep.trials.to_string(),
            printable::line(&sweep.keys.join(", "), 60),
        ]
    };
    let rows: Vec<Vec<String>> = sweeps.iter().map(row).collect();
    let header = ["sweep", "begun", ">finished", ">trials", "swept"];
    let more = if *older > 0 { format!("and {}\n", pluralize(*older as u64, "older sweep")) } else { String::new() };
    match rows.is_empty() {
        true => more,
        false => columns_within(&header, &rows, width, &["begun", "trials", "swept"]) + &more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_sweep_is_found_by_its_experiment_and_as_the_latest() {
        let results = tempfile::tempdir().unwrap();
        for (experiment, sweep) in
            [("a", "2026-11-21T00-00-00_1"), ("a", "2026-11-22T00-00-00_2"), ("b", "2026-11-21T12-00-00_3")]
        {
            let directory = results.path().join(experiment).join(layout::SWEEPS).join(sweep);
            std::fs::create_dir_all(&directory).unwrap();
            xrun_core::files::write::replace(&directory.join(layout::SWEEP), b"").unwrap();
        }
        let found = |text: &str| {
            let name = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
            find(results.path(), text).map(name)
        };
        for (text, sweep) in
            [("latest", "_2"), ("a", "_2"), ("b", "_3"), ("b/latest", "_3"), ("a/sweeps/2026-11-21T00-00-00_1", "_1")]
        {
            assert!(found(text).is_some_and(|name| name.ends_with(sweep)), "{text}: {:?}", found(text));
        }
        assert_eq!((found("c"), found("a/b")), (None, None));
    }
}
