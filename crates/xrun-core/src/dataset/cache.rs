//! Where is kept what can be made again: generated data, digests, probes?

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::files::write;

/// `XRUN_CACHE`, or the user's cache folder, or a folder of the user's own in the temporary one.
pub fn folder() -> PathBuf {
    named().unwrap_or_else(shared)
}

fn named() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("XRUN_CACHE")
        .or_else(|| named("XDG_CACHE_HOME").map(|folder| folder.join("xrun")))
        .or_else(|| named("HOME").map(|folder| folder.join(".cache/xrun")))
}

#[cfg(unix)]
fn shared() -> PathBuf {
    // SAFETY: a question to the system that cannot fail.
    std::env::temp_dir().join(format!("xrun-{}", unsafe { libc::geteuid() }))
}

#[cfg(not(unix))]
fn shared() -> PathBuf {
    std::env::temp_dir().join("xrun")
}

/// Makes a cache folder, if it is not there. One in the temporary folder, where anybody may have made it first, must be
/// the user's own.
///
/// # Errors
/// It cannot be made, or it belongs to somebody else, who could change in it what is trained on.
pub fn make(folder: &Path) -> io::Result<()> {
    let cache = self::folder();
    let named_for_us = cache.file_name().is_some_and(|name| name.to_string_lossy().starts_with("xrun"));
    let ours = named_for_us || !cache.exists();
    made(folder)?;
    // A variable may name a folder that holds more than the cache, and a backup should not leave that out.
    if ours {
        tag(&cache);
    }
    Ok(())
}

/// Backups leave out a folder with this file (bford.info/cachedir).
fn tag(cache: &Path) {
    let path = cache.join("CACHEDIR.TAG");
    if cache.is_dir() && !path.exists() {
        // A cache without it works as well.
        let _ = write::replace(&path, TAG);
    }
}

const TAG: &[u8] =
    b"Signature: 8a477f597d28d172789f06886806bc55\n# What xrun can make again. See https://bford.info/cachedir/\n";

fn made(folder: &Path) -> io::Result<()> {
    match folder.starts_with(shared()) && named().is_none() {
        true => private(&shared()).and_then(|()| std::fs::create_dir_all(folder)),
        false => std::fs::create_dir_all(folder),
    }
}

#[cfg(unix)]
fn private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Not what a link leads to.
    let found = std::fs::symlink_metadata(folder)?;
    // SAFETY: a question to the system that cannot fail.
    let own = found.is_dir() && found.uid() == unsafe { libc::geteuid() } && found.mode() & 0o022 == 0;
    own.then_some(()).ok_or_else(|| {
        let message = format!("{} is not this user's own folder, and others could change data in it", folder.display());
        io::Error::new(io::ErrorKind::PermissionDenied, message)
    })
}

#[cfg(not(unix))]
fn private(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)
}

/// Suffix of the file that has a cached file's digest.
pub const SUM: &str = "sha256";

/// The lock of whoever makes this file or folder, in the same folder.
pub fn lock_of(name: &str) -> String {
    format!(".{name}.lock")
}

/// Takes away all but the newest files of a folder of the cache, each with its digest and its lock.
pub fn forget_oldest(folder: &Path, most: usize) {
    let is_counted = |path: &Path| {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        !hidden && path.extension().is_none_or(|extension| extension != SUM)
    };
    let mut files: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .filter(|(_, path)| is_counted(path))
        .collect();
    files.sort();
    let surplus = files.len().saturating_sub(most);
    for (_, path) in &files[..surplus] {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for name in [name.to_string(), format!("{name}.{SUM}"), lock_of(&name)] {
            // What cannot be removed harms nobody.
            let _ = std::fs::remove_file(path.with_file_name(name));
        }
    }
}

/// What to do about a cache that cannot be written.
pub fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space there, or name another folder with the environment variable XRUN_CACHE"
        }
        _ => "; name another folder with the environment variable XRUN_CACHE",
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_shared_place_must_be_the_users_own_folder() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        private(&own).unwrap();
        private(&own).unwrap();
        assert_eq!(std::fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
        std::os::unix::fs::symlink(&own, folder.path().join("link")).unwrap();
        assert!(private(&folder.path().join("link")).unwrap_err().to_string().contains("own folder"));
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(private(&own).unwrap_err().to_string().contains("own folder"));
    }
}
