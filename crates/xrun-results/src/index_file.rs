//! File of the names of an experiment's runs, so that a directory of thousands of them is not walked for each list.
//!
//! `results/.index/EXPERIMENT` has a line with the version of the format, the time of the last change of the experiment's directory
//! (ctime, which no program sets) and the number of names, then the names, a line each. It is used if the directory has that time
//! still; else the directory is walked, and the file replaced. Without permission to write there is none, and every list is a walk.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::index::RUNS_MAX;
use xrun_core::files::{file, layout, write};

/// Version of the format.
const VERSION: u32 = 1;
/// Smallest number of names that are recorded: the walk of fewer takes a millisecond.
const NAMES_MIN: usize = 1_000;
/// Maximum size of a file: [`RUNS_MAX`] names of 64 bytes.
const BYTES_MAX: u64 = 64 * RUNS_MAX as u64;
/// Smallest age of a change before a walk. Another change in the same tick of the file system's clock would not be seen.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

/// Names of an experiment's runs: those of its file, or those of a walk, at the time `now`.
pub fn names<W: Iterator<Item = String>>(
    results: &Path,
    experiment: &str,
    now: SystemTime,
    walk: impl FnOnce() -> W,
) -> impl Iterator<Item = String> {
    let directory = results.join(experiment);
    let changed = last_change(&directory, now);
    let path = results.join(layout::INDEX).join(experiment);
    if let Some(names) = changed.and_then(|changed| read(&path, changed, &directory)) {
        return names.into_iter().chain(None.into_iter().flatten());
    }
    let mut walk = walk();
    let mut names: Vec<String> = walk.by_ref().take(RUNS_MAX).collect();
    if let Some(changed) = changed.filter(|_| names.len() >= NAMES_MIN && is_complete(&directory, names.len())) {
        let _ = record(&path, changed, &mut names); // a cache
    }
    names.into_iter().chain(Some(walk).into_iter().flatten())
}

/// Time of the last change of a directory since 1970 in nanoseconds, if it has settled. Of the open directory, since a network
/// file system may answer for a path from a cache.
fn last_change(directory: &Path, now: SystemTime) -> Option<i128> {
    let metadata = fs::File::open(directory).and_then(|open| open.metadata()).ok()?;
    let changed = i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
    let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_nanos();
    let age = i128::try_from(now).ok()? - changed;
    (age > i128::try_from(SETTLED_AFTER.as_nanos()).ok()?).then_some(changed)
}

/// Returns whether a directory can be read to its end and has no symlinks but `latest`, whose targets may come and go unseen, and no
/// more than [`RUNS_MAX`] names.
fn is_complete(directory: &Path, names: usize) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    names < RUNS_MAX
        && entries.into_iter().all(|entry| {
            entry.is_ok_and(|entry| {
                let is_link = entry.file_type().map_or(true, |kind| kind.is_symlink());
                !is_link || entry.file_name() == layout::LATEST
            })
        })
}

/// Returns whether a name is one line of the file and one component of a path.
fn is_line(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\n', '\r', char::REPLACEMENT_CHARACTER])
}

fn head(changed: i128, names: usize) -> String {
    format!("{VERSION} {changed} {names}")
}

/// Names in a file, if it is of the directory as it is, and has the newest run, to which `latest` points.
fn read(path: &Path, changed: i128, directory: &Path) -> Option<Vec<String>> {
    let text = String::from_utf8(file::bytes(path, BYTES_MAX).ok()?).ok()?;
    let (first, names) = text.split_once('\n')?;
    let names: Vec<String> = names.lines().map(str::to_owned).collect();
    let newest = fs::read_link(directory.join(layout::LATEST)).ok();
    let newest = newest.as_ref().and_then(|link| link.file_name()?.to_str());
    let has_newest = newest.is_none_or(|newest| names.iter().any(|name| name == newest));
    (first == head(changed, names.len()) && has_newest && names.iter().all(|name| is_line(name))).then_some(names)
}

fn record(path: &Path, changed: i128, names: &mut [String]) -> io::Result<()> {
    if !names.iter().all(|name| is_line(name)) {
        return Ok(());
    }
    // Sorting them again is then cheap.
    names.sort_unstable();
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory)?;
    write::remove_unfinished(directory)?;
    let text = head(changed, names.len()) + "\n" + &names.join("\n") + "\n";
    write::replace(path, text.as_bytes()).map_err(io::Error::other)
}
