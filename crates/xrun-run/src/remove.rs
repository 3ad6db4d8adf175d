//! Removal of runs. Only a directory that is verifiably a run is removed, and never one that is active, committed in git, part
//! of a sweep, or a symlink.

use std::ffi::OsStr;
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
use xrun_results::proof::{self, ProofError};

/// Reason why a run is not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The directory is not a run, or the run is protected: a message.
    #[error("{0}")]
    Refused(String),
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
    fn refused<T>(why: &str) -> Result<T, Self> {
        Err(Self::Refused(why.to_owned()))
    }

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
            io::ErrorKind::WouldBlock => Self::Refused("a process is writing to it; stop the process first".into()),
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
    manifest_digest: String,
}

/// Verifies that a directory is a run: it has a lock file, and a valid manifest of the run with the directory's name. Any
/// other directory among runs belongs to the user.
///
/// # Errors
/// It is not a run, or cannot be read.
pub fn verify_run(run: &Path) -> Result<(), RemoveError> {
    manifest_of(run).map(drop)
}

fn manifest_of(run: &Path) -> Result<Manifest, RemoveError> {
    match proof::manifest_of(run, &[layout::LOCK]) {
        Ok(manifest) if run.file_name() == Some(OsStr::new(&manifest.run)) => Ok(manifest),
        Err(ProofError::Unreadable(error)) => Err(RemoveError::failed(run, error)),
        // Another process may remove it at this moment.
        _ if !run.exists() => Err(RemoveError::Gone),
        Ok(manifest) => Err(RemoveError::Refused(format!(
            "not a run: its {} is of the run {}",
            layout::MANIFEST,
            printable::line(&manifest.run, 100)
        ))),
        Err(ProofError::Foreign(why)) => Err(RemoveError::Refused(why)),
    }
}

/// Checks everything that protects a run from removal except its lock; returns the digest of its manifest.
fn check_unprotected(run: &Path) -> Result<String, RemoveError> {
    let manifest = manifest_of(run)?;
    if is_of_sweep(run) {
        return RemoveError::refused(
            "it is part of a sweep, which would run it again; remove the directory of the sweep",
        );
    }
    match git::tracked(run) {
        Tracked::Yes => RemoveError::refused("it has files that are committed in git; use `git rm -r`"),
        Tracked::Unknown => {
            RemoveError::refused("it is in a git checkout, but git cannot tell whether its files are committed")
        }
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
    let manifest_digest = check_unprotected(run)?;
    drop(directory::lock_run(run)?);
    Ok(Removable { path: run.to_path_buf(), bytes: disk_usage(run), manifest_digest })
}

/// Removes a run, and points `latest` to the newest run that is left.
///
/// # Errors
/// The run is protected by now, has changed, or a file cannot be removed.
pub fn remove(run: &Removable) -> Result<(), RemoveError> {
    let Removable { path, manifest_digest, .. } = run;
    // Held until the run is removed, so that it cannot be resumed meanwhile.
    let lock = directory::lock_run(path)?;
    // Now verify that it is the run that was checked and is locked.
    let is_locked = file::is_at(&lock, &path.join(layout::LOCK)).is_ok_and(|same| same);
    if check_unprotected(path)? != *manifest_digest || !is_locked {
        return RemoveError::refused("it was resumed or replaced in the meantime");
    }
    remove_directory(path, lock)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => update_latest(parent, name),
        _ => Ok(()),
    }
}

/// Removes the directory of a run. Lock and manifest go last, so that what a kill leaves is still a run, which can be removed.
fn remove_directory(run: &Path, lock: File) -> Result<(), RemoveError> {
    let removed = |path: &Path, result: io::Result<()>| result.map_err(|error| RemoveError::failed(path, error));
    for entry in std::fs::read_dir(run).map_err(|error| RemoveError::failed(run, error))? {
        let entry = entry.map_err(|error| RemoveError::failed(run, error))?;
        let path = entry.path();
        if [layout::LOCK, layout::MANIFEST].iter().any(|proof| entry.file_name() == *proof) {
            continue;
        }
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        removed(&path, if is_directory { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) })?;
    }
    let [manifest, locked] = [layout::MANIFEST, layout::LOCK].map(|file| run.join(file));
    removed(&manifest, std::fs::remove_file(&manifest))?;
    // On NFS a deleted file that is still open stays as `.nfs...`, so the directory would not be empty.
    drop(lock);
    removed(&locked, std::fs::remove_file(&locked))?;
    removed(run, std::fs::remove_dir(run))
}

fn update_latest(parent: &Path, removed: &OsStr) -> Result<(), RemoveError> {
    let latest = parent.join(layout::LATEST);
    if std::fs::read_link(&latest).is_ok_and(|target| target.as_os_str() == removed) {
        match newest_run_name(parent) {
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
fn newest_run_name(parent: &Path) -> Option<String> {
    let entries = std::fs::read_dir(parent).ok()?.flatten();
    let runs = entries.filter(|entry| entry.path().join(layout::LOCK).is_file());
    let names = runs.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.') && name != layout::LATEST).max()
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
        describe(&run.path, 1);
        run.path.clone()
    }

    fn describe(run: &Path, seed: u32) {
        let name = run.file_name().unwrap().to_str().unwrap();
        let record = Manifest { run: name.into(), seed, ..Manifest::default() };
        write::replace_json(&run.join(layout::MANIFEST), &record).unwrap();
    }

    #[test]
    fn a_run_that_changed_since_the_check_is_not_removed() {
        let results = tempfile::tempdir().unwrap();
        let path = run(&results);
        let removable = check_removable(&path).unwrap();
        describe(&path, 2);
        assert!(matches!(remove(&removable), Err(RemoveError::Refused(_))));
        let (one, other) = (check_removable(&path).unwrap(), check_removable(&path).unwrap());
        let held = directory::reopen(&path).unwrap();
        assert!(matches!(remove(&one), Err(RemoveError::Refused(_))) && path.exists());
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
        assert!(matches!(verify_run(&link), Err(RemoveError::Refused(_))));
        let manifest = path.join(layout::MANIFEST);
        std::fs::rename(&manifest, results.path().join("manifest")).unwrap();
        std::os::unix::fs::symlink(results.path().join("manifest"), &manifest).unwrap();
        assert!(matches!(verify_run(&path), Err(RemoveError::Refused(_))));
    }
}
