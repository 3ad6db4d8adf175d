//! Index of the runs below a results directory: listing, state, and lookup by name.
//!
//! Layout: `results/<experiment>/<run>/`. Run ids begin with the time (`2026-11-21T07-14-35_a3f20b`), so they sort by
//! age; a directory with another name is sorted by its modification time.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

use super::format::{Manifest, Outcome, Summary};
use super::index_file;
use super::view::RunView;
use xrun_core::files::layout;
use xrun_core::problem::nearest;
use xrun_core::units::pluralize;
use xrun_core::{invocation, printable};

/// Maximum number of runs found, the newest first; they take some 50 MB.
pub const RUNS_MAX: usize = 200_000;

/// Length of `2026-11-21T07-14-35`, the beginning of a run id.
const SECOND_CHARACTERS: usize = 19;
/// Maximum number of names in a message.
const CANDIDATES_MAX: usize = 8;

/// A name that matches no run, or several: a message.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct IndexError(String);

/// A directory that may be a run; ordered by time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RunEntry {
    /// Time in its name; at most that of the run to which `latest` points, which is the newest even if a clock was ahead.
    time: [u8; SECOND_CHARACTERS],
    /// Creation time, which orders runs of the same second, and is read of those only; that of the newest for the run to
    /// which `latest` points, as a copy has other times. `None` if the file system does not record it, or if the clock of
    /// the run was ahead.
    created: Option<SystemTime>,
    is_latest: bool,
    run: String,
    /// Name and directory of the experiment.
    experiment: Rc<(String, PathBuf)>,
}

impl RunEntry {
    fn experiment(&self) -> &str {
        &self.experiment.0
    }

    fn path(&self) -> PathBuf {
        self.experiment.1.join(&self.run)
    }

    fn name(&self) -> String {
        format!("{}/{}", self.experiment(), self.run)
    }
}

/// Iterates over the runs, newest first, at most [`RUNS_MAX`], optionally of one experiment. No file is read.
pub fn newest_first(results: &Path, experiment: Option<&str>) -> impl ExactSizeIterator<Item = RunView> {
    let view = |entry: RunEntry| RunView::new(entry.path(), entry.experiment().to_owned(), entry.run);
    run_directories(results, experiment).into_iter().rev().map(view)
}

/// Times and directories of all runs, newest first. No file is read.
pub fn directories_newest_first(results: &Path) -> impl ExactSizeIterator<Item = (String, PathBuf)> {
    run_directories(results, None)
        .into_iter()
        .rev()
        .map(|entry| (String::from_utf8_lossy(&entry.time).into_owned(), entry.path()))
}

/// Finds the directory of the run called `text`: a path, `experiment/run`, the beginning of a run id or the part
/// after its `_`, `latest`, `latest~2` (the second before it), `experiment/latest`, or an experiment's name (its
/// newest run, or `experiment~2`).
pub fn find(results: &Path, text: &str) -> Result<PathBuf, IndexError> {
    let as_path = Path::new(text);
    if is_run(as_path) {
        return Ok(as_path.to_path_buf());
    }
    let text = text.trim_end_matches('/');
    if let Some(path) = find_elsewhere(results, text) {
        return Ok(path);
    }
    let shown = printable::line(text, 200);
    // `EXPERIMENT` is `EXPERIMENT/latest`, and `EXPERIMENT~2` is `EXPERIMENT/latest~2`.
    let (name, steps) = text.split_once('~').unwrap_or((text, "0"));
    let is_experiment = experiments(results).iter().any(|known| known == name);
    let back = is_experiment.then(|| (name, format!("{}~{steps}", layout::LATEST)));
    let split = text.rsplit_once('/').map_or((None, text), |(experiment, run)| (Some(experiment), run));
    let (experiment, run) = back.as_ref().map_or(split, |(name, run)| (Some(*name), run.as_str()));
    let directories = run_directories(results, experiment);
    let mut found: Vec<&RunEntry> = directories.iter().collect();
    if let Some(steps) = steps_back(run)
        && !found.is_empty()
    {
        let (are, count) = (if found.len() == 1 { "is" } else { "are" }, pluralize(found.len() as u64, "run"));
        let too_far = || IndexError(format!("no run \"{shown}\": there {are} only {count}"));
        return found.iter().rev().nth(steps).map(|directory| directory.path()).ok_or_else(too_far);
    }
    if found.iter().any(|directory| directory.run == run) {
        found.retain(|directory| directory.run == run);
    } else {
        let ends_with_hash = |name: &str| name.rsplit_once('_').is_some_and(|(_, hash)| hash == run);
        found.retain(|one| !run.is_empty() && (one.run.starts_with(run) || ends_with_hash(&one.run)));
    }
    match found.as_slice() {
        [directory] => Ok(directory.path()),
        [] if as_path.is_dir() => {
            Err(IndexError(format!("{shown} is not a run: it has neither manifest.json, run.lock nor summary.json")))
        }
        [] => Err(no_run(results, text)),
        _ => {
            let (count, candidates) = (found.len(), listed(found.iter().rev().map(|directory| directory.name())));
            Err(IndexError(format!("\"{shown}\" matches {count} runs; type more of the name:{candidates}")))
        }
    }
}

fn empty(results: &Path) -> IndexError {
    let program = invocation::program();
    IndexError(format!(
        "no runs in {}; start one with `{program} FILE`, or name another directory with --results DIR",
        results.display()
    ))
}

/// The first of some names, a line each, and the number of the others.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(CANDIDATES_MAX);
    let shown = names.take(CANDIDATES_MAX).map(|name| format!("\n  {}", printable::line(&name, 200)));
    let mut text: String = shown.collect();
    if more > 0 {
        text.push_str(&format!("\n  and {more} more; `{} ls` lists them", invocation::program()));
    }
    text
}

fn not_found(what: &str, text: &str, near: Option<&str>, known: impl ExactSizeIterator<Item = String>) -> IndexError {
    let near = near.map(|near| format!("did you mean \"{}\"? The known", printable::line(near, 200)));
    let (near, text) = (near.as_deref().unwrap_or("the known"), printable::line(text, 200));
    IndexError(format!("no {what} named \"{text}\"; {near} {what}s are:{}", listed(known)))
}

/// Finds a run that is not in its experiment's own directory: `reference/experiment`, `experiment/reproductions/run`
/// (or `experiment/run`), `experiment/sweeps/sweep/trials/0001-1`.
fn find_elsewhere(results: &Path, text: &str) -> Option<PathBuf> {
    let path = results.join(text);
    let in_name = text.matches('/').count() > 1 || text.starts_with(&format!("{}/", layout::REFERENCE));
    if in_name && is_run(&path) {
        // Resolved now, because `latest` may soon be another run.
        return Some(std::fs::canonicalize(&path).unwrap_or(path));
    }
    let (experiment, run) = text.split_once('/').filter(|(_, run)| steps_back(run).is_none())?;
    let reproduction = results.join(experiment).join(layout::REPRODUCTIONS).join(run);
    (!run.is_empty() && is_run(&reproduction)).then_some(reproduction)
}

/// Parses `latest` as 0 and `latest~2` as 2.
fn steps_back(run: &str) -> Option<usize> {
    match run.strip_prefix(layout::LATEST)? {
        "" => Some(0),
        steps => steps.strip_prefix('~')?.parse().ok(),
    }
}

fn no_run(results: &Path, text: &str) -> IndexError {
    let directories = run_directories(results, None);
    if directories.is_empty() {
        return empty(results);
    }
    let names: Vec<String> = directories.iter().rev().map(RunEntry::name).collect();
    let experiments = directories.iter().map(RunEntry::experiment);
    let near = match nearest(text.split('/').next().unwrap_or(text), experiments) {
        Some(experiment) if !text.contains('/') => Some(format!("{experiment}/latest")),
        _ => nearest(text, names.iter().map(String::as_str))
            .or_else(|| nearest(text, directories.iter().map(|directory| directory.run.as_str())))
            .map(str::to_owned),
    };
    not_found("run", text, near.as_deref(), names.into_iter())
}

/// Names of the experiments that have runs, sorted.
pub fn experiments(results: &Path) -> Vec<String> {
    let root = std::fs::canonicalize(results).unwrap_or_else(|_| results.to_path_buf());
    let has_runs = |name: &String| run_names(&results.join(name), &root).next().is_some();
    let names: BTreeSet<String> = subdirectories(results, &root).filter(has_runs).collect();
    names.into_iter().collect()
}

/// Checks that an experiment has runs; the error suggests a similar name.
pub fn check_experiment(results: &Path, name: &str) -> Result<(), IndexError> {
    let known = experiments(results);
    if known.iter().any(|known| known == name) {
        return Ok(());
    }
    if known.is_empty() {
        return Err(empty(results));
    }
    let near = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
    Err(not_found("experiment", name, near.as_deref(), known.into_iter()))
}

/// Newest finished run of any experiment with this fingerprint on this kind of device (`cpu`, `cuda`, `vulkan`).
pub fn find_finished(results: &Path, fingerprint: &str, device: &str) -> Option<RunView> {
    newest_first(results, None).find(|run| {
        let same = |manifest: &Manifest| {
            let kind = manifest.device.chosen.split(':').next().unwrap_or_default();
            manifest.fingerprint == fingerprint && kind == device
        };
        let succeeded = |summary: &Summary| matches!(summary.outcome, Outcome::Finished | Outcome::StoppedEarly);
        run.manifest().is_some_and(same) && run.summary().is_some_and(succeeded)
    })
}

/// Returns `true` if a directory is that of a run.
pub fn is_run(path: &Path) -> bool {
    // A sweep has a lock file, too.
    !path.join(layout::SWEEP).is_file()
        && [layout::MANIFEST, layout::LOCK, layout::SUMMARY].iter().any(|name| path.join(name).is_file())
}

/// Runs in a directory that is not itself a run, sorted by path: its children and those of its `trials`, as in a
/// sweep.
pub fn runs_within(directory: &Path) -> Vec<PathBuf> {
    if is_run(directory) {
        return Vec::new();
    }
    let mut runs: Vec<PathBuf> = [directory.to_path_buf(), directory.join("trials")]
        .iter()
        .flat_map(|directory| subdirectories(directory, directory).map(|name| directory.join(name)))
        .filter(|path| is_run(path))
        .collect();
    runs.sort();
    runs
}

/// Subdirectories of an experiment that hold other runs than its own.
const OTHER_RUNS: [&str; 2] = [layout::SWEEPS, layout::REPRODUCTIONS];

/// Directories two levels below `results`, or of one experiment, oldest first, at most [`RUNS_MAX`].
fn run_directories(results: &Path, experiment: Option<&str>) -> Vec<RunEntry> {
    let root = std::fs::canonicalize(results).unwrap_or_else(|_| results.to_path_buf());
    let mut entries = Vec::new();
    for experiment in subdirectories(results, &root).filter(|name| experiment.is_none_or(|wanted| wanted == name)) {
        let directory = results.join(&experiment);
        let latest = std::fs::canonicalize(directory.join(layout::LATEST)).ok();
        let latest = latest.filter(|latest| is_run(latest)).and_then(|latest| {
            let run = latest.file_name()?.to_string_lossy().into_owned();
            Some((run_time(&run, latest.parent()?), run))
        });
        let experiment = Rc::new((experiment, directory));
        for run in index_file::names(results, &experiment.0, SystemTime::now(), || run_names(&experiment.1, &root)) {
            let (time, is_latest) = match &latest {
                Some((newest, name)) => (run_time(&run, &experiment.1).min(*newest), *name == run),
                None => (run_time(&run, &experiment.1), false),
            };
            entries.push(RunEntry { time, created: None, is_latest, run, experiment: experiment.clone() });
            if entries.len() == 2 * RUNS_MAX {
                keep_newest(&mut entries);
            }
        }
    }
    keep_newest(&mut entries);
    for same in entries.chunk_by_mut(|one, other| one.time == other.time).filter(|same| same.len() > 1) {
        for entry in same.iter_mut().filter(|entry| run_time(&entry.run, &entry.experiment.1) == entry.time) {
            entry.created = std::fs::metadata(entry.path()).and_then(|metadata| metadata.created()).ok();
        }
        for at in (0..same.len()).filter(|at| same[*at].is_latest).collect::<Vec<_>>() {
            let of_experiment = same.iter().filter(|entry| Rc::ptr_eq(&entry.experiment, &same[at].experiment));
            same[at].created = of_experiment.filter_map(|entry| entry.created).max();
        }
        same.sort_unstable();
    }
    entries
}

/// Names of the directories of an experiment that may be runs. Committed results are found by name and never count as the
/// newest: git gives them the time of the checkout.
fn run_names<'a>(experiment: &Path, root: &'a Path) -> impl Iterator<Item = String> + use<'a> {
    let is_experiment = !experiment.ends_with(layout::REFERENCE);
    let is_own = move |name: &String| !OTHER_RUNS.contains(&name.as_str()) && (is_experiment || starts_with_date(name));
    subdirectories(experiment, root).filter(is_own)
}

/// Sorts, and removes all but the newest [`RUNS_MAX`].
fn keep_newest(entries: &mut Vec<RunEntry>) {
    // Merges the experiments, whose names may be sorted.
    entries.sort();
    entries.drain(..entries.len().saturating_sub(RUNS_MAX));
}

/// Names of subdirectories. Symlinks into the results themselves (`latest`) are skipped, so that nothing counts twice;
/// symlinks to elsewhere (another disk) are followed. Hidden directories are being written or are not xrun's.
pub fn subdirectories<'a>(directory: &Path, root: &'a Path) -> impl Iterator<Item = String> + use<'a> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().filter_map(move |entry| {
        let name = entry.file_name().into_string().unwrap_or_else(|name| name.to_string_lossy().into_owned());
        let kind = entry.file_type().ok()?;
        let target = || std::fs::canonicalize(entry.path()).ok().filter(|target| target.is_dir());
        let elsewhere = || target().is_some_and(|target| !target.starts_with(root));
        let is_listed = !name.starts_with('.') && name != layout::LATEST;
        (is_listed && (kind.is_dir() || kind.is_symlink() && elsewhere())).then_some(name)
    })
}

/// Names of the committed results, which [`newest_first`] does not list, sorted.
pub fn committed(results: &Path) -> Vec<String> {
    let directory = results.join(layout::REFERENCE);
    let found = subdirectories(&directory, &directory);
    let found = found.filter(|name| !starts_with_date(name) && is_run(&directory.join(name)));
    let names: BTreeSet<String> = found.map(|name| printable::line(&name, 100)).collect();
    names.into_iter().collect()
}

/// Returns whether a name begins as `2026-11-21`.
fn starts_with_date(run: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() };
    run.len() >= 10 && run.bytes().take(10).enumerate().all(fits)
}

/// Time of a run in a directory, in the format of run ids.
fn run_time(run: &str, directory: &Path) -> [u8; SECOND_CHARACTERS] {
    let changed = || std::fs::metadata(directory.join(run)).and_then(|metadata| metadata.modified()).ok();
    let text = |time| chrono::DateTime::<chrono::Utc>::from(time).format("%Y-%m-%dT%H-%M-%S").to_string();
    let named = if starts_with_date(run) { Cow::from(run) } else { changed().map_or_else(String::new, text).into() };
    let mut time = [b' '; SECOND_CHARACTERS];
    time.iter_mut().zip(named.bytes()).for_each(|(to, byte)| *to = byte);
    time
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
