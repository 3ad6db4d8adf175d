//! File of the names of an experiment's runs, so that a directory of thousands of them is not walked for each list.
//!
//! `results/.index/EXPERIMENT` has a line with the version of the format, the modification time of the experiment's directory and the
//! number of names, then the names, a line each. It is used if the directory has that time still; else the directory is walked, and the
//! file replaced. Without permission to write there is none, and every list is a walk.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// Name in an experiment's directory, and whether it is a symlink, whose target may change unseen.
pub type Entry = (String, bool);

/// Names of an experiment's runs: those of its file, or those of a walk.
pub fn names<W: Iterator<Item = Entry>>(results: &Path, experiment: &str, walk: impl FnOnce() -> W) -> Vec<String> {
    let changed = modified(&results.join(experiment));
    let path = results.join(layout::INDEX).join(experiment);
    if let Some(names) = changed.and_then(|changed| read(&path, changed)) {
        return names;
    }
    let (mut names, mut is_recorded) = (Vec::new(), true);
    for (name, is_link) in walk() {
        is_recorded &= !is_link && is_line(&name);
        names.push(name);
    }
    if let Some(changed) = changed.filter(|_| is_recorded && (NAMES_MIN..=RUNS_MAX).contains(&names.len())) {
        let _ = record(&path, changed, &mut names); // a cache
    }
    names
}

/// Modification time of a directory since 1970, if it has settled by now.
fn modified(directory: &Path) -> Option<Duration> {
    let time = fs::metadata(directory).and_then(|metadata| metadata.modified()).ok()?;
    let age = SystemTime::now().duration_since(time).ok()?;
    (age > SETTLED_AFTER).then(|| time.duration_since(UNIX_EPOCH).ok()).flatten()
}

/// Returns whether a name is one line of the file and one component of a path.
fn is_line(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\n', '\r', char::REPLACEMENT_CHARACTER])
}

fn head(changed: Duration, names: usize) -> String {
    format!("{VERSION} {} {names}", changed.as_nanos())
}

fn read(path: &Path, changed: Duration) -> Option<Vec<String>> {
    let text = String::from_utf8(file::bytes(path, BYTES_MAX).ok()?).ok()?;
    let (first, names) = text.split_once('\n')?;
    let names: Vec<String> = names.lines().map(str::to_owned).collect();
    (first == head(changed, names.len()) && names.iter().all(|name| is_line(name))).then_some(names)
}

fn record(path: &Path, changed: Duration, names: &mut [String]) -> io::Result<()> {
    // Sorting them again is then cheap.
    names.sort_unstable();
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory)?;
    let text = head(changed, names.len()) + "\n" + &names.join("\n") + "\n";
    write::replace(path, text.as_bytes()).map_err(io::Error::other)
}
