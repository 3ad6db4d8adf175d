//! A run goes: never one that is running, committed in git, part of a sweep, or behind a link.

use std::path::{Path, PathBuf};

use super::directory;
use super::git::{self, Committed};
use crate::results::write::{self, WriteError};
use crate::results::{index, layout};

/// A folder on its way out; a kill in between leaves it, and nothing lists it.
const REMOVING: &str = ".removing-";

/// Why a run stays.
#[derive(Debug, thiserror::Error)]
pub enum Stays {
    #[error("a process is writing it; stop that first")]
    Running,
    #[error("files of it are committed in git; `git rm -r` takes them out")]
    Committed,
    #[error("it is in a git checkout, and git does not say whether files of it are committed")]
    Unknown,
    #[error("it is a link; remove what it leads to yourself")]
    Link,
    #[error("it belongs to a sweep, which would run it again; remove the sweep's folder")]
    OfSweep,
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The bytes of a run that may go.
pub fn may_go(run: &Path) -> Result<u64, Stays> {
    if std::fs::symlink_metadata(run).is_ok_and(|found| found.is_symlink()) {
        return Err(Stays::Link);
    }
    if run.components().any(|part| part.as_os_str() == layout::SWEEPS) {
        return Err(Stays::OfSweep);
    }
    if index::is_locked(run) {
        return Err(Stays::Running);
    }
    match git::committed(run) {
        Committed::Yes => Err(Stays::Committed),
        Committed::Unknown => Err(Stays::Unknown),
        Committed::No => Ok(bytes(run)),
    }
}

/// Removes it. What `latest` meant becomes the newest that is left.
pub fn remove(run: &Path) -> Result<(), Stays> {
    may_go(run)?;
    // Held until it is gone, so that nobody resumes it meanwhile.
    let held = directory::reopen(run).map_err(|_| Stays::Running)?;
    let (Some(parent), Some(name)) = (run.parent(), run.file_name()) else { return Err(Stays::Link) };
    let name = name.to_string_lossy().into_owned();
    let aside = parent.join(format!("{REMOVING}{name}"));
    write::at(run, std::fs::rename(run, &aside))?;
    write::at(&aside, std::fs::remove_dir_all(&aside))?;
    drop(held);
    let latest = parent.join(layout::LATEST);
    if std::fs::read_link(&latest).is_ok_and(|target| target.as_os_str() == name.as_str()) {
        match newest(parent) {
            Some(newest) => directory::point_latest(parent, &newest),
            None => write::at(&latest, std::fs::remove_file(&latest))?,
        }
    }
    Ok(())
}

/// The newest run that is left beside it: names begin with the time.
fn newest(parent: &Path) -> Option<String> {
    let entries = std::fs::read_dir(parent).ok()?.flatten();
    let runs = entries.filter(|entry| entry.path().join(layout::LOCK).is_file());
    let names = runs.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.') && name != layout::LATEST).max()
}

/// What a removal that was killed left, in the folders of these runs.
pub fn left_over(runs: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut parents: Vec<PathBuf> = runs.filter_map(|run| run.parent().map(Path::to_path_buf)).collect();
    parents.sort();
    parents.dedup();
    let within = |parent: &PathBuf| std::fs::read_dir(parent).into_iter().flatten().flatten().collect::<Vec<_>>();
    let entries = parents.iter().flat_map(within);
    let left = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(REMOVING));
    left.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// Of all files, links not followed.
pub fn bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(of).fold(0, u64::saturating_add)
}
