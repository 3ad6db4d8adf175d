//! Removal of runs. Only a directory that is verifiably a run is removed, and never one that is active, committed in git, part
//! of a sweep, or a symlink.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::directory;
use xrun_core::dataset::digest::digest;
use xrun_core::files::write::WriteError;
use xrun_core::files::{file, layout};
use xrun_core::printable;
use xrun_results::format::Manifest;
use xrun_results::git;
use xrun_results::git::Tracked;
use xrun_results::index;
use xrun_results::proof::{self, ProofError};

/// Prefix of a run's directory while it is removed. A kill leaves such a directory, which is not listed as a run.
const REMOVING: &str = ".removing-";

/// Reason why a run is not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The directory is not a run.
    #[error("not a run: {0}")]
    NotARun(String),
    /// A process holds the lock of the run.
    #[error("a process is writing to it; stop the process first")]
    Running,
    /// Files of the run are committed in git.
    #[error("it has files that are committed in git; use `git rm -r`")]
    Committed,
    /// The state of the run in git is unknown.
    #[error("it is in a git checkout, but git cannot tell whether its files are committed")]
    GitUnknown,
    /// The path is a symlink.
    #[error("it is a symlink, which is not followed; name its target")]
    Symlink,
    /// The run is a trial of a sweep.
    #[error("it is part of a sweep, which would run it again; remove the directory of the sweep")]
    OfSweep,
    /// The run was changed after it was checked.
    #[error("it was resumed or replaced in the meantime")]
    Changed,
    /// The run does not exist any more.
    #[error("it does not exist any more")]
    Gone,
    /// A file cannot be removed.
    #[error("cannot remove {}: {source}{}", path.display(), advice(source))]
    Failed {
        /// Path that cannot be removed.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Advice as the end of a message; may be empty.
fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOLCK) => {
            "; the file system has no locks now: start its lock service, or mount it with locks (NFS: `local_lock=flock`)"
        }
        _ => "",
    }
}

impl RemoveError {
    fn failed(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::Gone,
            _ => Self::Failed { path: path.to_path_buf(), source },
        }
    }
}

impl From<WriteError> for RemoveError {
    fn from(error: WriteError) -> Self {
        match error.source.kind() {
            io::ErrorKind::WouldBlock => Self::Running,
            _ => Self::failed(&error.path, error.source),
        }
    }
}

/// Run that was checked and may be removed.
#[derive(Debug)]
pub struct Removable {
    /// Directory of the run.
    pub path: PathBuf,
    /// Bytes of all its files.
    pub bytes: u64,
    /// SHA-256 of its manifest, which a resume changes.
    manifest: String,
}

/// Verifies that a directory is a run: it has a lock file, and a valid manifest of the run with the directory's name. Any
/// other directory among runs belongs to the user.
///
/// # Errors
/// It is not a run, or cannot be read.
pub fn verify_run(run: &Path) -> Result<(), RemoveError> {
    manifest_of(run, run.file_name().unwrap_or_default()).map(drop)
}

fn manifest_of(directory: &Path, name: &OsStr) -> Result<Manifest, RemoveError> {
    match proof::manifest_of(directory, &[layout::LOCK]) {
        Ok(manifest) if OsStr::new(&manifest.run) == name => Ok(manifest),
        Err(ProofError::Symlink) => Err(RemoveError::Symlink),
        Err(ProofError::Unreadable(error)) => Err(RemoveError::failed(directory, error)),
        // Another process may remove it at this moment.
        _ if !directory.exists() => Err(RemoveError::Gone),
        Ok(manifest) => Err(RemoveError::NotARun(format!(
            "its {} is of the run {}",
            layout::MANIFEST,
            printable::line(&manifest.run, 100)
        ))),
        Err(ProofError::NotARun(message)) => Err(RemoveError::NotARun(message)),
    }
}

/// Checks everything that protects a run from removal except its lock; returns the digest of its manifest.
fn check_unprotected(run: &Path) -> Result<String, RemoveError> {
    let manifest = manifest_of(run, run.file_name().unwrap_or_default())?;
    if is_of_sweep(run) {
        return Err(RemoveError::OfSweep);
    }
    match git::tracked(run) {
        Tracked::Yes => Err(RemoveError::Committed),
        Tracked::Unknown => Err(RemoveError::GitUnknown),
        Tracked::No => Ok(digest_of(&manifest)),
    }
}

fn digest_of(manifest: &Manifest) -> String {
    digest(&serde_json::to_vec(manifest).unwrap_or_default())
}

/// Returns true for a run of a sweep, by the record of the sweep: names do not suffice, as an experiment may be called `sweeps`.
fn is_of_sweep(run: &Path) -> bool {
    let trials = run.parent().filter(|parent| parent.file_name() == Some(OsStr::new(layout::TRIALS)));
    trials.and_then(Path::parent).is_some_and(|sweep| sweep.join(layout::SWEEP).try_exists().unwrap_or(true))
}

/// Checks that a run may be removed.
///
/// # Errors
/// The run is protected.
pub fn check_removable(run: &Path) -> Result<Removable, RemoveError> {
    let manifest = check_unprotected(run)?;
    drop(directory::lock_run(run)?);
    Ok(Removable { path: run.to_path_buf(), bytes: disk_usage(run), manifest })
}

/// Removes a run, and points `latest` to the newest run that is left.
///
/// # Errors
/// The run is protected by now, has changed, or a file cannot be removed.
pub fn remove(run: &Removable) -> Result<(), RemoveError> {
    let Removable { path, manifest, .. } = run;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(RemoveError::Symlink) };
    if check_unprotected(path)? != *manifest {
        return Err(RemoveError::Changed);
    }
    // Held until the run is removed, so that it cannot be resumed meanwhile.
    let lock = directory::lock_run(path)?;
    let mut aside = OsString::from(REMOVING);
    aside.push(name);
    let aside = parent.join(aside);
    std::fs::rename(path, &aside).map_err(|error| RemoveError::failed(path, error))?;
    // Under its new name no other process uses it. Now verify that it is the run that was checked and is locked.
    let same = file::is_at(&lock, &aside.join(layout::LOCK)).is_ok_and(|same| same)
        && manifest_of(&aside, name).is_ok_and(|found| digest_of(&found) == *manifest);
    if !same {
        std::fs::rename(&aside, path).map_err(|error| RemoveError::failed(&aside, error))?;
        return Err(RemoveError::Changed);
    }
    let cleared = clear(&aside, Some(lock));
    update_latest(parent, name)?;
    cleared
}

/// Removes a directory that was set aside. Lock and manifest go last, so that after a kill the rest is still recognised. Another
/// process may do the same at the same time.
fn clear(directory: &Path, lock: Option<File>) -> Result<(), RemoveError> {
    let gone = |path: &Path, result: io::Result<()>| match result.map_err(|error| RemoveError::failed(path, error)) {
        Err(RemoveError::Gone) => Ok(()),
        other => other,
    };
    let entries = std::fs::read_dir(directory).map_err(|error| RemoveError::failed(directory, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| RemoveError::failed(directory, error))?;
        let path = entry.path();
        if [layout::LOCK, layout::MANIFEST].iter().any(|proof| entry.file_name() == *proof) {
            continue;
        }
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        gone(&path, if is_directory { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) })?;
    }
    let [manifest, locked] = [layout::MANIFEST, layout::LOCK].map(|file| directory.join(file));
    gone(&manifest, std::fs::remove_file(&manifest))?;
    // A network file system keeps open files, and with them the directory.
    drop(lock);
    gone(&locked, std::fs::remove_file(&locked))?;
    gone(directory, std::fs::remove_dir(directory))
}

fn update_latest(parent: &Path, gone: &OsStr) -> Result<(), RemoveError> {
    let latest = parent.join(layout::LATEST);
    if std::fs::read_link(&latest).is_ok_and(|target| target.as_os_str() == gone) {
        match newest(parent) {
            Some(newest) => directory::link_latest(parent, &newest),
            None => match std::fs::remove_file(&latest).map_err(|error| RemoveError::failed(&latest, error)) {
                Ok(()) | Err(RemoveError::Gone) => {}
                Err(error) => return Err(error),
            },
        }
    }
    Ok(())
}

/// Name of the newest run in a directory, including one that has just started. Names start with the time.
fn newest(parent: &Path) -> Option<String> {
    let entries = std::fs::read_dir(parent).ok()?.flatten();
    let runs = entries.filter(|entry| entry.path().join(layout::LOCK).is_file());
    let names = runs.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.') && name != layout::LATEST).max()
}

/// Directories that killed removals left.
#[derive(Debug, Default)]
pub struct Leftovers {
    /// Directories that are verifiably the rest of a run.
    pub runs: Vec<PathBuf>,
    /// Number of directories with such a name that are not, or cannot be verified.
    pub unverified: u64,
}

/// Finds the leftovers of killed removals, in all experiments or in one.
pub fn find_leftovers(results: &Path, experiment: Option<&str>) -> Leftovers {
    let within = |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut left = Leftovers::default();
    let named = |name: &OsStr| experiment.is_none_or(|one| name == one) && !name.to_string_lossy().starts_with('.');
    for parent in within(results).filter(|entry| named(&entry.file_name())) {
        // A symlink to the directory of an experiment is followed, as in the list of runs.
        let Ok(parent) = std::fs::canonicalize(parent.path()) else { continue };
        for entry in within(&parent).filter(|entry| original_name(&entry.path()).is_some()) {
            let path = entry.path();
            match verify_leftover(&path) {
                // Another process is removing it, or has removed it.
                _ if index::is_locked(&path) => {}
                Err(RemoveError::Gone) => {}
                Ok(()) if git::tracked(&path) == Tracked::No => left.runs.push(path),
                _ => left.unverified += 1,
            }
        }
    }
    left.runs.sort();
    left.runs.dedup();
    left
}

/// Name of a run's directory before it was set aside.
fn original_name(directory: &Path) -> Option<&OsStr> {
    directory.file_name()?.to_str()?.strip_prefix(REMOVING).map(OsStr::new)
}

/// Verifies that a directory is the rest of a run: as for a run, or because only an empty lock file is left in it.
fn verify_leftover(directory: &Path) -> Result<(), RemoveError> {
    let verified = manifest_of(directory, original_name(directory).unwrap_or_default()).map(drop);
    let is_bare = |entry: io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| {
            let empty = entry.metadata().is_ok_and(|found| found.is_file() && found.len() == 0);
            entry.file_name() == layout::LOCK && empty
        })
    };
    match verified {
        Err(RemoveError::NotARun(_)) if std::fs::read_dir(directory).is_ok_and(|mut entries| entries.all(is_bare)) => {
            Ok(())
        }
        verified => verified,
    }
}

/// Removes a leftover.
///
/// # Errors
/// It is not the rest of a run, or a file cannot be removed.
pub fn remove_leftover(directory: &Path) -> Result<(), RemoveError> {
    // The lock is removed last: without it the directory is empty.
    let lock = match directory::lock_run(directory).map_err(RemoveError::from) {
        Err(RemoveError::Gone) => None,
        lock => Some(lock?),
    };
    verify_leftover(directory)?;
    clear(directory, lock)?;
    match (directory.parent(), original_name(directory)) {
        (Some(parent), Some(name)) => update_latest(parent, name),
        _ => Ok(()),
    }
}

/// Bytes of all files below a directory. Symlinks are not followed.
pub fn disk_usage(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => disk_usage(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(size).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::files::write;

    fn run(results: &tempfile::TempDir) -> PathBuf {
        let run = directory::create(results.path(), "trial", "abcdef", chrono::Utc::now()).unwrap();
        describe(&run.path, "2026-11-21T00:00:00Z");
        run.path.clone()
    }

    fn describe(run: &Path, started: &str) {
        let code = serde_json::json!({ "xrun": "1", "features": [], "lock_digest": "" });
        let host = serde_json::json!({ "name": "", "system": "", "processor": "", "instruction_sets": "", "cores": 1 });
        let device = serde_json::json!({ "chosen": "cpu", "because": "", "name": "" });
        let record = serde_json::json!({
            "version": 1, "experiment": "trial", "description": "", "run": run.file_name().unwrap().to_str(),
            "fingerprint": "abcdef", "seed": 1, "command": [], "working_directory": "/", "started": started,
            "resumed": [], "resume_commands": [], "code": code, "host": host, "device": device, "data": {},
            "data_skipped": {}, "origins": {},
        });
        write::replace_json(&run.join(layout::MANIFEST), &record).unwrap();
    }

    #[test]
    fn a_run_that_changed_since_the_check_is_not_removed() {
        let results = tempfile::tempdir().unwrap();
        let path = run(&results);
        let removable = check_removable(&path).unwrap();
        describe(&path, "2026-11-22T00:00:00Z");
        assert!(matches!(remove(&removable), Err(RemoveError::Changed)));
        let (one, other) = (check_removable(&path).unwrap(), check_removable(&path).unwrap());
        let held = directory::reopen(&path).unwrap();
        assert!(matches!(remove(&one), Err(RemoveError::Running)) && path.exists());
        drop(held);
        remove(&one).unwrap();
        assert!(!path.exists() && matches!(remove(&other), Err(RemoveError::Gone)));
        assert!(matches!(check_removable(&path), Err(RemoveError::Gone)));
        assert!(std::fs::read_dir(results.path().join("trial")).unwrap().next().is_none(), "`latest` is removed, too");
    }

    #[test]
    #[cfg(unix)]
    fn a_symlink_or_a_symlinked_manifest_is_not_a_run() {
        let results = tempfile::tempdir().unwrap();
        let path = run(&results);
        let link = path.with_file_name("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(verify_run(&link), Err(RemoveError::Symlink)));
        let manifest = path.join(layout::MANIFEST);
        std::fs::rename(&manifest, results.path().join("manifest")).unwrap();
        std::os::unix::fs::symlink(results.path().join("manifest"), &manifest).unwrap();
        assert!(matches!(verify_run(&path), Err(RemoveError::NotARun(_))));
    }

    #[test]
    fn every_state_that_a_kill_may_leave_is_recognised() {
        let results = tempfile::tempdir().unwrap();
        let path = run(&results);
        let aside = path.with_file_name(format!("{REMOVING}{}", path.file_name().unwrap().to_str().unwrap()));
        std::fs::rename(&path, &aside).unwrap();
        let known = || find_leftovers(results.path(), Some("trial")).runs == [std::fs::canonicalize(&aside).unwrap()];
        assert!(known() && find_leftovers(results.path(), Some("other")).runs.is_empty());
        std::fs::remove_file(aside.join(layout::MANIFEST)).unwrap();
        assert!(known());
        std::fs::remove_file(aside.join(layout::LOCK)).unwrap();
        assert!(known());
        write::replace(&aside.join("mine"), b"mine").unwrap();
        assert!(!known() && matches!(remove_leftover(&aside), Err(RemoveError::NotARun(_))));
        std::fs::remove_file(aside.join("mine")).unwrap();
        remove_leftover(&aside).unwrap();
        assert!(!aside.exists());
    }
}
