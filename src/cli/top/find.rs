//! Finding the runs that `xrun top` shows.

use std::path::{Path, PathBuf};

use crate::cli::terminal::Failure;
use crate::files::layout;
use crate::results::{index, run_name};

/// Largest number of runs that are followed, the newest ones.
pub const FOLLOWED_MAX: usize = 10_000;
/// Largest number of sweeps of an experiment, the newest ones.
const SWEEPS_MAX: usize = 20;
/// Largest number of trials of a sweep.
const TRIALS_MAX: usize = 2000;

/// Finds a directory by its path or by the name of a run or a sweep.
pub fn directory(results: &Path, text: &str) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(text);
    if path.is_dir() {
        return Ok(path);
    }
    if let Some(sweep) = run_name::sweep(results, &path) {
        return Ok(sweep);
    }
    index::find(results, text).map_err(|error| Failure::Usage(format!("no such directory, and {error}")))
}

/// Runs of a directory, newest first, at most [`FOLLOWED_MAX`], and the number of older ones. The directory may be a run, a
/// sweep, an experiment or a results directory; those of sweeps and reproductions are included.
pub fn runs(directory: &Path) -> (Vec<PathBuf>, usize) {
    if index::is_run(directory) {
        return (vec![directory.to_path_buf()], 0);
    }
    if directory.join(layout::SWEEP).is_file() {
        return (trials(directory), 0);
    }
    let below = directories(directory, usize::MAX);
    // The directory of an experiment, or of its sweeps.
    let is_experiment = below.iter().any(|one| index::is_run(one)) || directory.join(layout::SWEEPS).is_dir();
    let sweeps: Vec<&PathBuf> = below.iter().filter(|one| one.join(layout::SWEEP).is_file()).take(SWEEPS_MAX).collect();
    if !is_experiment && !sweeps.is_empty() {
        return (sweeps.into_iter().flat_map(|sweep| trials(sweep)).collect(), 0);
    }
    let mut older = 0;
    let (mut found, experiments) = match is_experiment {
        true => {
            let runs = below.into_iter().filter(|one| index::is_run(one)).map(|run| (name(&run), run));
            (runs.collect::<Vec<(String, PathBuf)>>(), vec![directory.to_path_buf()])
        }
        false => {
            let runs = index::directories_newest_first(directory);
            older = runs.len().saturating_sub(FOLLOWED_MAX);
            (runs.take(FOLLOWED_MAX).collect(), below)
        }
    };
    for experiment in experiments {
        let within = |name: &str, count_max| directories(&experiment.join(name), count_max);
        for run in within(layout::REPRODUCTIONS, index::RUNS_MAX) {
            found.push((name(&run), run));
        }
        for sweep in within(layout::SWEEPS, SWEEPS_MAX) {
            let time = name(&sweep);
            found.extend(trials(&sweep).into_iter().map(|trial| (time.clone(), trial)));
        }
    }
    // Names start with the time. The sort is stable and keeps the order of trials.
    found.sort_by(|one, other| other.0.cmp(&one.0));
    older += found.len().saturating_sub(FOLLOWED_MAX);
    (found.into_iter().take(FOLLOWED_MAX).map(|(_, run)| run).collect(), older)
}

fn trials(sweep: &Path) -> Vec<PathBuf> {
    let mut trials = directories(&sweep.join(layout::TRIALS), TRIALS_MAX);
    trials.reverse();
    trials
}

/// Last `count_max` directories in a directory in descending order of names.
fn directories(directory: &Path, count_max: usize) -> Vec<PathBuf> {
    let mut found: Vec<String> = index::subdirectories(directory, directory).take(index::RUNS_MAX).collect();
    found.sort_unstable_by(|one, other| other.cmp(one));
    found.into_iter().take(count_max).map(|name| directory.join(name)).collect()
}

fn name(path: &Path) -> String {
    path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned())
}
