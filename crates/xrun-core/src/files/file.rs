//! How is a file of a result opened, whatever lies in its place? The one way to read a result: regular files, up to a size.
//!
//! A result may come from elsewhere. A device in the place of a file never ends, and a pipe waits for ever.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

/// Opens a regular file to read; links to one are followed. Never waits.
///
/// # Errors
/// There is none, it cannot be opened, or it is a folder, a pipe, a socket or a device.
pub fn open(path: &Path) -> io::Result<File> {
    checked(waitless(OpenOptions::new().read(true)).open(path)?)
}

/// Opens a regular file with these options, which may make it. Never waits, and follows no link in its place.
///
/// # Errors
/// As [`open`], and where a link stands there.
pub fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(io::Error::other("is a link, and xrun writes only into a run's own folder"));
    }
    checked(unlinked(options).open(path)?)
}

/// The bytes of a regular file.
///
/// # Errors
/// As [`open`], and where it has more bytes than `most`.
pub fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::with_capacity(file.metadata()?.len().min(most) as usize);
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::other(format!("has more than {most} bytes"))),
        false => Ok(bytes),
    }
}

/// Waits until no other process replaces, in this folder, what it has read there; others wait until the lock is dropped.
/// `None` on a file system that cannot lock a folder: unprotected.
///
/// # Errors
/// The folder cannot be opened, or another process keeps the lock for too long.
pub fn turn(folder: &Path) -> io::Result<Option<File>> {
    let (held, begun) = (File::open(folder)?, Instant::now());
    loop {
        match held.try_lock() {
            Ok(()) => return Ok(Some(held)),
            Err(TryLockError::WouldBlock) if begun.elapsed() < TURN_MAX => std::thread::sleep(TURN_EVERY),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process changes it; try again"));
            }
            Err(TryLockError::Error(_)) => return Ok(None),
        }
    }
}

/// Longer than some hundred small files take.
const TURN_MAX: Duration = Duration::from_secs(30);
const TURN_EVERY: Duration = Duration::from_millis(2);

fn checked(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("is not a regular file")),
    }
}

#[cfg(unix)]
fn waitless(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.custom_flags(libc::O_NONBLOCK)
}

#[cfg(unix)]
fn unlinked(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
}

#[cfg(not(unix))]
fn waitless(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(not(unix))]
fn unlinked(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_device_a_pipe_and_a_folder_are_refused_at_once_and_a_link_to_a_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        crate::files::write::replace(&at("file"), b"four").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        let pipe = std::ffi::CString::new(at("pipe").to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        assert_eq!(bytes(&at("link"), 4).unwrap(), b"four");
        assert!(bytes(&at("file"), 3).unwrap_err().to_string().contains("more than 3 bytes"));
        for name in ["zero", "pipe", "."] {
            let error = bytes(&at(name), 100).unwrap_err();
            assert!(error.to_string().contains("not a regular file"), "{name}: {error}");
        }
        assert!(open_own(&at("link"), OpenOptions::new().append(true)).unwrap_err().to_string().contains("is a link"));
        assert!(open_own(&at("pipe"), OpenOptions::new().append(true)).is_err());
    }
}
