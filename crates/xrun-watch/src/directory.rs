//! Where does a run write? A folder of its own that nobody else writes into.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};

use crate::host;
use crate::memory::killed;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::files::{file, layout};

/// A run's folder, held by this process until it is dropped.
#[derive(Debug)]
pub struct RunDirectory {
    /// The run's folder.
    pub path: PathBuf,
    /// The folder's name: sorts by time, and tells experiments apart.
    pub id: String,
    _lock: File,
    reserve: PathBuf,
}

/// Enough for the lines that wait, the verdict and the summary, whatever else fills the disk.
const RESERVE_BYTES: usize = 256 * 1024;

impl RunDirectory {
    fn held(path: PathBuf, id: String, lock: File) -> Result<Self, WriteError> {
        let reserve = path.join(layout::RESERVE);
        write::replace(&reserve, &vec![0; RESERVE_BYTES])?;
        Ok(Self { path, id, _lock: lock, reserve })
    }

    /// Notes this process, for whoever asks later who killed it. A run that cannot note this does not end for it.
    pub fn note_process(&self, segment: u32) {
        let note = killed::note(segment, host::name());
        let _ = write::replace_json(&self.path.join(layout::PROCESS), &note);
    }

    /// Gives back the room that was kept for the last records: they are written next.
    pub fn free_reserve(&self) {
        // Gone already, or on a disk that takes nothing more: the writes that follow say so.
        let _ = std::fs::remove_file(&self.reserve);
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        self.free_reserve();
    }
}

/// More runs than this with one name in one second are not believed.
const ATTEMPTS: u32 = 1000;

/// Makes `results/<experiment>/<run>/`. Never an existing one: two runs of one second get different names.
pub fn create(
    results: &Path,
    experiment: &str,
    fingerprint: &str,
    now: DateTime<Utc>,
) -> Result<RunDirectory, WriteError> {
    let parent = results.join(experiment);
    write::at(&parent, std::fs::create_dir_all(&parent))?;
    let base = format!("{}_{}", now.format("%Y-%m-%dT%H-%M-%S"), &fingerprint[..6.min(fingerprint.len())]);
    for attempt in 1..=ATTEMPTS {
        let id = if attempt == 1 { base.clone() } else { format!("{base}-{attempt}") };
        let path = parent.join(&id);
        match std::fs::create_dir(&path) {
            Ok(()) => {
                let lock = lock(&path, OpenOptions::new().create(true))?;
                write::at(&path, write::sync_folder(&parent))?;
                point_latest(&parent, &id);
                return RunDirectory::held(path, id, lock);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(WriteError { path, source }),
        }
    }
    write::at(&parent, Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many runs of this name in one second")))
}

/// Makes exactly this folder for a run; the one that it stands in is made, too.
///
/// # Errors
/// It is there already, or cannot be made.
pub fn create_at(path: &Path) -> Result<RunDirectory, WriteError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    write::at(parent, std::fs::create_dir_all(parent))?;
    write::at(path, std::fs::create_dir(path))?;
    reopen(path)
}

/// Takes hold of an existing run; an error of kind `WouldBlock` says that another process has it.
pub fn reopen(path: &Path) -> Result<RunDirectory, WriteError> {
    let id = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    RunDirectory::held(path.to_path_buf(), id, lock(path, OpenOptions::new().create(true))?)
}

/// Takes hold of an existing run to remove it, and makes nothing in it; errors as [`reopen`].
pub fn hold(run: &Path) -> Result<File, WriteError> {
    lock(run, &mut OpenOptions::new())
}

fn lock(run: &Path, options: &mut OpenOptions) -> Result<File, WriteError> {
    let path = run.join(layout::LOCK);
    let file = write::at(&path, file::open_own(&path, options.append(true)))?;
    // Who lists runs holds a lock for an instant, to see whether it can.
    let mut attempt = file.try_lock();
    for _ in 0..20 {
        if matches!(attempt, Err(TryLockError::WouldBlock)) {
            std::thread::sleep(std::time::Duration::from_millis(10));
            attempt = file.try_lock();
        }
    }
    match attempt {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => write::at(&path, Err(io::ErrorKind::WouldBlock.into())),
        // A file system without locks: the run goes on, unprotected.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(error)) => write::at(&path, Err(error)),
    }
}

/// A convenience, so a file system without links is no reason to stop.
pub fn point_latest(parent: &Path, id: &str) {
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
    fn two_runs_of_one_second_get_folders_of_their_own() {
        let results = tempfile::tempdir().unwrap();
        let now = Utc::now();
        let first = create(results.path(), "stage2", "abcdef012345", now).unwrap();
        let second = create(results.path(), "stage2", "abcdef012345", now).unwrap();
        assert_ne!(first.path, second.path);
        let latest = std::fs::canonicalize(results.path().join("stage2/latest")).unwrap();
        assert_eq!(latest, std::fs::canonicalize(&second.path).unwrap());
    }

    #[test]
    fn a_run_that_another_process_has_is_not_taken() {
        let results = tempfile::tempdir().unwrap();
        let run = create(results.path(), "stage2", "abcdef", Utc::now()).unwrap();
        assert_eq!(reopen(&run.path).unwrap_err().source.kind(), io::ErrorKind::WouldBlock);
        let path = run.path.clone();
        drop(run);
        assert!(reopen(&path).is_ok());
    }
}
