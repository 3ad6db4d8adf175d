//! Directory of a run, locked against other processes.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};

use crate::host;
use crate::memory::killed;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::files::{file, layout};

/// Directory of a run, locked by this process until it is dropped.
#[derive(Debug)]
pub struct RunDirectory {
    /// Path of the directory.
    pub path: PathBuf,
    /// Name of the directory; names sort by time and contain the experiment's fingerprint.
    pub id: String,
    _lock: File,
    reserve: PathBuf,
}

/// Disk space reserved for the last lines, the verdict and the summary, should the disk be full.
const RESERVE_BYTES: usize = 256 * 1024;

impl RunDirectory {
    fn locked(path: PathBuf, id: String, lock: File) -> Result<Self, WriteError> {
        let reserve = path.join(layout::DISK_RESERVE);
        write::replace(&reserve, &vec![0; RESERVE_BYTES])?;
        Ok(Self { path, id, _lock: lock, reserve })
    }

    /// Records this process, to find out later who killed it. A failure does not end the run.
    pub fn note_process(&self, segment: u32) {
        let note = killed::note(segment, host::name());
        let _ = write::replace_json(&self.path.join(layout::PROCESS), &note);
    }

    /// Frees the reserved disk space for the last records.
    pub fn free_reserve(&self) {
        // Already freed, or the disk fails: the next write reports it.
        let _ = std::fs::remove_file(&self.reserve);
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        self.free_reserve();
    }
}

/// Cap on the runs of one name within one second.
const ATTEMPTS: u32 = 1000;

/// Creates `results/<experiment>/<run>/`; a second run within one second gets a different name.
///
/// # Errors
/// The directory cannot be created or locked.
pub fn create(
    results: &Path,
    experiment: &str,
    fingerprint: &str,
    now: DateTime<Utc>,
) -> Result<RunDirectory, WriteError> {
    let parent = results.join(experiment);
    write::with_path(&parent, std::fs::create_dir_all(&parent))?;
    let base = format!("{}_{}", now.format("%Y-%m-%dT%H-%M-%S"), &fingerprint[..6.min(fingerprint.len())]);
    for attempt in 1..=ATTEMPTS {
        let id = if attempt == 1 { base.clone() } else { format!("{base}-{attempt}") };
        let path = parent.join(&id);
        match std::fs::create_dir(&path) {
            Ok(()) => {
                let lock = lock(&path, OpenOptions::new().create(true))?;
                write::with_path(&path, write::sync_directory(&parent))?;
                link_latest(&parent, &id);
                return RunDirectory::locked(path, id, lock);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(WriteError { path, source }),
        }
    }
    write::with_path(
        &parent,
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many runs of this name within one second")),
    )
}

/// Creates exactly this directory for a run, and its parents.
///
/// # Errors
/// It exists, or cannot be created.
pub fn create_at(path: &Path) -> Result<RunDirectory, WriteError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    write::with_path(parent, std::fs::create_dir_all(parent))?;
    write::with_path(path, std::fs::create_dir(path))?;
    reopen(path)
}

/// Locks the directory of an existing run.
///
/// # Errors
/// `WouldBlock` where another process has locked it.
pub fn reopen(path: &Path) -> Result<RunDirectory, WriteError> {
    let id = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    RunDirectory::locked(path.to_path_buf(), id, lock(path, OpenOptions::new().create(true))?)
}

/// Locks an existing run to remove it, without writing into its directory.
///
/// # Errors
/// As [`reopen`].
pub fn lock_run(run: &Path) -> Result<File, WriteError> {
    lock(run, &mut OpenOptions::new())
}

fn lock(run: &Path, options: &mut OpenOptions) -> Result<File, WriteError> {
    let path = run.join(layout::LOCK);
    let file = write::with_path(&path, file::open_own(&path, options.append(true)))?;
    // A process that lists runs takes the lock for an instant.
    let mut attempt = file.try_lock();
    for _ in 0..20 {
        if matches!(attempt, Err(TryLockError::WouldBlock)) {
            std::thread::sleep(std::time::Duration::from_millis(10));
            attempt = file.try_lock();
        }
    }
    match attempt {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => write::with_path(&path, Err(io::ErrorKind::WouldBlock.into())),
        // A file system without locks: the run continues without one.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(error)) => write::with_path(&path, Err(error)),
    }
}

/// Points the symlink `latest` to a run; failures are ignored, as file systems may lack symlinks.
pub fn link_latest(parent: &Path, id: &str) {
    #[cfg(unix)]
    {
        let temporary = parent.join(format!(".{}-{id}", layout::LATEST));
        if std::os::unix::fs::symlink(id, &temporary).is_ok()
            && std::fs::rename(&temporary, parent.join(layout::LATEST)).is_err()
        {
            let _ = std::fs::remove_file(&temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_within_one_second_get_different_directories() {
        let results = tempfile::tempdir().unwrap();
        let now = Utc::now();
        let first = create(results.path(), "stage2", "abcdef012345", now).unwrap();
        let second = create(results.path(), "stage2", "abcdef012345", now).unwrap();
        assert_ne!(first.path, second.path);
        let latest = std::fs::canonicalize(results.path().join("stage2/latest")).unwrap();
        assert_eq!(latest, std::fs::canonicalize(&second.path).unwrap());
    }

    #[test]
    fn a_locked_run_cannot_be_reopened() {
        let results = tempfile::tempdir().unwrap();
        let run = create(results.path(), "stage2", "abcdef", Utc::now()).unwrap();
        assert_eq!(reopen(&run.path).unwrap_err().source.kind(), io::ErrorKind::WouldBlock);
        let path = run.path.clone();
        drop(run);
        assert!(reopen(&path).is_ok());
    }
}
