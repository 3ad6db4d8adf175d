//! Temporary directories that are removed even if their process is killed: by the next process that creates one.
//!
//! Each holds a lock file, which proves that it is xrun's and, while locked, that its process lives.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::file;

/// Name of the lock file.
const LOCK: &str = ".xrun-scratch";
/// Number of attempts to create a directory that no other process takes for the rest of a killed one.
const ATTEMPTS: u32 = 10;

/// Temporary directory, removed with its contents when it is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Creates a directory that only this user can read, after removing those of killed processes with the same prefix.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(parent: &Path, prefix: &str) -> io::Result<Self> {
        remove_rests(parent, prefix);
        for _ in 0..ATTEMPTS {
            let mut builder = tempfile::Builder::new();
            builder.permissions(PermissionsExt::from_mode(0o700));
            let path = builder.prefix(prefix).tempdir_in(parent)?.keep();
            let lock = file::open_own(&path.join(LOCK), OpenOptions::new().append(true).create_new(true))?;
            if is_kept(&lock)? {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(io::Error::other("other processes keep removing new temporary directories"))
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed with the rests of killed processes.
        let _ = clear(&self.path);
    }
}

/// Locks a new temporary file. Returns `false` if another process has taken it for the rest of a killed one.
pub(super) fn is_kept(new: &File) -> io::Result<bool> {
    match new.try_lock() {
        Err(TryLockError::WouldBlock) => Ok(false),
        // On a file system without locks nothing is ever taken for a rest.
        _ => Ok(new.metadata()?.nlink() > 0),
    }
}

fn remove_rests(parent: &Path, prefix: &str) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_string_lossy().starts_with(prefix);
        if !is_named || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let Ok(lock) = file::open_own(&entry.path().join(LOCK), OpenOptions::new().append(true)) else { continue };
        if lock.try_lock().is_ok() {
            let _ = clear(&entry.path());
        }
    }
}

/// Removes a directory, its lock file last: after a kill the rest is still recognised.
fn clear(directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            _ if entry.file_name() == LOCK => {}
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    std::fs::remove_file(directory.join(LOCK))?;
    std::fs::remove_dir(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::write;

    #[test]
    fn rests_of_killed_processes_are_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        for name in ["own-killed/run", "own-foreign", "other-killed"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["own-killed", "other-killed"] {
            write::replace(&at(name).join(LOCK), b"").unwrap();
        }
        write::replace(&at("own-foreign").join("thesis.tex"), b"").unwrap();
        let first = Scratch::create(parent.path(), "own-").unwrap();
        write::replace(&first.path().join("file"), b"").unwrap();
        let second = Scratch::create(parent.path(), "own-").unwrap();
        assert!(first.path().join("file").exists() && second.path().exists(), "both live");
        assert!(!at("own-killed").exists() && at("own-foreign/thesis.tex").exists() && at("other-killed").exists());
        let path = first.path().to_path_buf();
        drop(first);
        assert!(!path.exists());
    }
}
