//! Opening and reading of regular files up to a size limit; all results are read this way.
//!
//! A result may come from elsewhere: reading a device may never end, and opening a pipe may block.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Opens a regular file for reading. Follows symlinks, and never blocks.
///
/// # Errors
/// It is missing, cannot be opened, or is a directory, pipe, socket or device.
pub fn open(path: &Path) -> io::Result<File> {
    regular(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?)
}

/// Opens a regular file with `options`, which may create it. Follows no symlink, and never blocks.
///
/// # Errors
/// As [`open`], and if it is a symlink.
pub fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(io::Error::other("is a symlink; xrun does not write through symlinks"));
    }
    regular(options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?)
}

/// Reads a regular file.
///
/// # Errors
/// As [`open`], and if it has more than `most` bytes.
pub fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::with_capacity(file.metadata()?.len().min(most) as usize);
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::other(format!("has more than {most} bytes"))),
        false => Ok(bytes),
    }
}

/// Returns whether an open file is the one at a path; `false` if there is none.
///
/// # Errors
/// The system cannot tell.
pub fn is_at(open: &File, path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(is_same(&found?, &open.metadata()?)),
    }
}

/// Waits for the lock on a directory that guards read-modify-write of its files; dropping the file releases it. `None` on
/// file systems without locks, where updates are unprotected.
///
/// # Errors
/// The directory cannot be opened, or another process holds the lock for 30 seconds.
pub fn lock_directory(directory: &Path) -> io::Result<Option<File>> {
    let (lock, since) = (File::open(directory)?, Instant::now());
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(Some(lock)),
            Err(TryLockError::WouldBlock) if since.elapsed() < LOCK_TIMEOUT => std::thread::sleep(LOCK_RETRY_INTERVAL),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process holds the lock; try again"));
            }
            Err(TryLockError::Error(_)) => return Ok(None),
        }
    }
}

/// Longer than any update of some hundred small files.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// Returns true if both are the same file, under whatever names.
pub fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("is not a regular file")) }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_and_symlinks_to_them_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        crate::files::write::replace(&at("file"), b"four").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        let pipe = std::ffi::CString::new(at("pipe").to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        assert_eq!(bytes(&at("link"), 4).unwrap(), b"four");
        assert!(bytes(&at("file"), 3).is_err());
        for name in ["zero", "pipe", "."] {
            assert!(bytes(&at(name), 100).is_err(), "{name}");
        }
        let append = |name: &str| open_own(&at(name), OpenOptions::new().append(true));
        assert!(append("file").is_ok());
        assert!(append("link").is_err() && append("pipe").is_err());
    }
}
