//! Directory of a run, locked against other processes.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};

use crate::host;
use crate::killed::cluster_state;
use crate::memory::killed;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::files::{file, layout};
use xrun_core::printable;
use xrun_results::process::{ProcessRecord, SlurmJob};

/// Directory of a run, locked by this process until it is dropped.
#[derive(Debug)]
pub struct RunDirectory {
    /// Path of the directory.
    pub path: PathBuf,
    /// Name of the directory; names sort by time and contain the experiment's fingerprint.
    pub id: String,
    lock: File,
    /// `process.json` as this process wrote it. It stays open, so that no other file gets its inode.
    note: Mutex<Option<File>>,
}

/// Disk space reserved for the last lines, the verdict and the summary, should the disk be full.
const RESERVE_BYTES: usize = 256 * 1024;

impl RunDirectory {
    fn locked(path: PathBuf, id: String, lock: File) -> Result<Self, WriteError> {
        write::replace(&path.join(layout::DISK_RESERVE), &vec![0; RESERVE_BYTES])?;
        Ok(Self { path, id, lock, note: Mutex::default() })
    }

    /// Locks a directory that this process has just created; without the lock, no empty directory is left.
    fn locked_new(path: PathBuf, id: String) -> Result<Self, WriteError> {
        let lock = lock(&path, OpenOptions::new().create(true));
        let directory = lock.and_then(|lock| Self::locked(path.clone(), id, lock));
        if directory.is_err() {
            let _ = std::fs::remove_file(path.join(layout::LOCK)).and_then(|()| std::fs::remove_dir(&path));
        }
        directory
    }

    /// Records this process, to find out later who killed it, and for [`check_held`](Self::check_held). A failure does not
    /// end the run.
    pub fn note_process(&self, segment: u32) {
        let path = self.path.join(layout::PROCESS);
        let written = write::replace_json(&path, &killed::note(segment));
        if let Ok(mut note) = self.note.lock() {
            *note = written.ok().and_then(|()| file::open(&path).ok());
        }
    }

    /// Checks that no other process has taken the directory over: `run.lock` and `process.json` are still the files of this
    /// one. A removed lock can be taken twice, and so can one that holds on one machine only, as NFS has with `nolock`.
    ///
    /// # Errors
    /// One of the files was removed or replaced.
    pub fn check_held(&self) -> Result<(), WriteError> {
        let note = self.note.lock().ok();
        let note = note.as_deref().and_then(Option::as_ref).map(|note| (layout::PROCESS, note));
        for (name, file) in std::iter::once((layout::LOCK, &self.lock)).chain(note) {
            let path = self.path.join(name);
            // Where the system cannot tell, the next write fails if the disk is gone.
            if file::is_at(file, &path).is_ok_and(|same| !same) {
                let why = "was removed or replaced during the run, so another process may be writing to it";
                write::with_path(&path, Err(io::Error::other(why)))?;
            }
        }
        Ok(())
    }

    /// Frees the reserved disk space for the last records.
    pub fn free_reserve(&self) {
        // Already freed, or the disk fails: the next write reports it.
        let _ = std::fs::remove_file(self.path.join(layout::DISK_RESERVE));
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if self.check_held().is_ok() {
            self.free_reserve();
        }
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
    write::create_directories(&parent)?;
    let base = format!("{}_{}", now.format("%Y-%m-%dT%H-%M-%S"), &fingerprint[..6.min(fingerprint.len())]);
    let path = create_numbered(&parent, &base)?;
    let directory = RunDirectory::locked_new(path.clone(), name_of(&path))?;
    link_latest(&parent, &directory.id);
    Ok(directory)
}

/// Creates a directory with this name, or the same with a number if there is one.
///
/// # Errors
/// It cannot be created.
pub fn create_numbered(parent: &Path, name: &str) -> Result<PathBuf, WriteError> {
    let numbered = (2..=ATTEMPTS).map(|number| format!("{name}-{number}"));
    for name in std::iter::once(name.to_owned()).chain(numbered) {
        let path = parent.join(name);
        match write::create_new_directory(&path) {
            Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path),
        }
    }
    let error = io::Error::new(io::ErrorKind::AlreadyExists, "too many runs of this name within one second");
    write::with_path(parent, Err(error))
}

/// Creates exactly this directory for a run, and its parents.
///
/// # Errors
/// It exists, or cannot be created.
pub fn create_at(path: &Path) -> Result<RunDirectory, WriteError> {
    path.parent().map_or(Ok(()), write::create_directories)?;
    write::create_new_directory(path)?;
    RunDirectory::locked_new(path.to_path_buf(), name_of(path))
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Locks the directory of an existing run.
///
/// # Errors
/// `WouldBlock` where another process has locked it.
pub fn reopen(path: &Path) -> Result<RunDirectory, WriteError> {
    let lock = lock(path, OpenOptions::new().create(true))?;
    RunDirectory::locked(path.to_path_buf(), name_of(path), lock)
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
    let busy = |why: String| write::with_path(&path, Err(io::Error::new(io::ErrorKind::WouldBlock, why)));
    if let Some(note) = active_elsewhere(run, ELSEWHERE_FOR).filter(|note| !job_has_ended(run, note)) {
        let host = printable::line(&note.host, 100);
        return busy(format!("a process on {host} wrote to the run less than {} s ago", ELSEWHERE_FOR.as_secs()));
    }
    let file = write::with_path(&path, file::open_own(&path, options.append(true)))?;
    // A process that lists runs takes the lock for an instant.
    let mut attempt = file.try_lock();
    for _ in 0..20 {
        if matches!(attempt, Err(TryLockError::WouldBlock)) {
            std::thread::sleep(Duration::from_millis(10));
            attempt = file.try_lock();
        }
    }
    match attempt {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => busy("another process is writing to the run".into()),
        // A file system without locks: the run continues without one.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(error)) => write::with_path(&path, Err(error)),
    }
}

/// Time after its last write for which a process on another machine keeps a run. Samples are written every second or step.
const ELSEWHERE_FOR: Duration = Duration::from_secs(120);

/// Record of a process on another machine that wrote to a run `within` this time and recorded no end: not every file system
/// shows the locks of other machines.
pub fn active_elsewhere(run: &Path, within: Duration) -> Option<ProcessRecord> {
    let note = killed::noted(run)?;
    let is_active = note.host != host::name() && !run.join(layout::SUMMARY).exists();
    (is_active && age(run, &WRITTEN).is_some_and(|age| age < within)).then_some(note)
}

/// Returns true if Slurm has ended the job of a process, or has requeued it as the job of this one.
fn job_has_ended(run: &Path, note: &ProcessRecord) -> bool {
    let own = SlurmJob::from_environment().map(|own| own.job);
    (own.is_some() && own == note.slurm.as_ref().map(|job| job.job.clone()))
        || cluster_state(run).is_some_and(|state| !["RUNNING", "COMPLETING", "SUSPENDED"].contains(&state.as_str()))
}

/// Files that a process writes while it works on a run.
pub const WRITTEN: [&str; 5] = [layout::MEMORY, layout::METRICS, layout::LOG, layout::PROCESS, layout::MANIFEST];

/// Time since the newest of these files of a run was written; 0 if the clock of another machine is ahead.
pub fn age(run: &Path, files: &[&str]) -> Option<Duration> {
    let modified = |name| std::fs::metadata(run.join(name)).ok()?.modified().ok();
    Some(SystemTime::now().duration_since(files.iter().filter_map(modified).max()?).unwrap_or_default())
}

/// Points the symlink `latest` to a run; failures are ignored, as file systems may lack symlinks.
pub fn link_latest(parent: &Path, id: &str) {
    let temporary = parent.join(format!(".{}-{id}", layout::LATEST));
    let latest = parent.join(layout::LATEST);
    let linked = std::os::unix::fs::symlink(id, &temporary).and_then(|()| std::fs::rename(&temporary, &latest));
    if linked.and_then(|()| write::sync_entry(&latest)).is_err() {
        let _ = std::fs::remove_file(&temporary);
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
    fn a_run_that_another_machine_writes_to_cannot_be_reopened() {
        let results = tempfile::tempdir().unwrap();
        let run = create(results.path(), "stage2", "abcdef", Utc::now()).unwrap();
        let (path, process) = (run.path.clone(), run.path.join(layout::PROCESS));
        drop(run);
        write::replace_json(&process, &ProcessRecord { host: "another-machine".into(), ..killed::note(0) }).unwrap();
        let refused = reopen(&path).unwrap_err().source;
        assert!(refused.kind() == io::ErrorKind::WouldBlock && refused.to_string().contains("another-machine"));
        let long_ago = SystemTime::now() - ELSEWHERE_FOR;
        File::options().write(true).open(&process).unwrap().set_modified(long_ago).unwrap();
        assert!(reopen(&path).is_ok());
    }

    #[test]
    fn a_run_that_was_taken_over_is_not_held() {
        let results = tempfile::tempdir().unwrap();
        for name in [layout::LOCK, layout::PROCESS] {
            let run = create(results.path(), "stage2", "abcdef", Utc::now()).unwrap();
            run.note_process(0);
            run.check_held().unwrap();
            write::replace(&run.path.join(name), b"").unwrap();
            assert!(run.check_held().unwrap_err().path.ends_with(name));
        }
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
