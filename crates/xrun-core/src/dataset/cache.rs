//! Cache directory for data that can be regenerated: generated data sets, digests, probes.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::files::write;

/// Cache directory: `XRUN_CACHE`, else the user's cache directory, else a private directory in the temporary one.
pub fn directory() -> PathBuf {
    configured().unwrap_or_else(fallback)
}

/// Cache directory that the environment names.
fn configured() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("XRUN_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|directory| directory.join("xrun")))
        .or_else(|| variable("HOME").map(|directory| directory.join(".cache/xrun")))
}

fn fallback() -> PathBuf {
    // SAFETY: `geteuid` takes no arguments and cannot fail.
    std::env::temp_dir().join(format!("xrun-{}", unsafe { libc::geteuid() }))
}

/// Creates a directory of the cache if it is missing. A cache in the temporary directory must belong to the user.
///
/// # Errors
/// It cannot be created, or other users can write to it and could change the training data.
pub fn create(directory: &Path) -> io::Result<()> {
    let cache = self::directory();
    let has_our_name = cache.file_name().is_some_and(|name| name.to_string_lossy().starts_with("xrun"));
    let is_ours = has_our_name || !cache.exists();
    create_all(directory)?;
    // `XRUN_CACHE` may name a directory with other contents, which backups must not skip.
    if is_ours {
        tag(&cache);
    }
    Ok(())
}

/// Writes the file that makes backups skip the directory (bford.info/cachedir).
fn tag(cache: &Path) {
    let path = cache.join("CACHEDIR.TAG");
    if cache.is_dir() && !path.exists() {
        // The cache works without it.
        let _ = write::replace(&path, TAG);
    }
}

const TAG: &[u8] =
    b"Signature: 8a477f597d28d172789f06886806bc55\n# Cache of xrun: all files can be regenerated. See https://bford.info/cachedir/\n";

fn create_all(directory: &Path) -> io::Result<()> {
    match directory.starts_with(fallback()) && configured().is_none() {
        true => create_private(&fallback()).and_then(|()| std::fs::create_dir_all(directory)),
        false => std::fs::create_dir_all(directory),
    }
}

/// Creates a directory for the user alone, or checks that an existing one is.
fn create_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Without following a symlink.
    let found = std::fs::symlink_metadata(directory)?;
    // SAFETY: `geteuid` takes no arguments and cannot fail.
    let own = found.is_dir() && found.uid() == unsafe { libc::geteuid() } && found.mode() & 0o022 == 0;
    own.then_some(()).ok_or_else(|| {
        let message = format!("{} must be a directory that only this user can write to", directory.display());
        io::Error::new(io::ErrorKind::PermissionDenied, message)
    })
}

/// Extension of the file with the digest of a cached file.
pub const SUM: &str = "sha256";

/// Name of the lock file that guards the creation of `name`, in the same directory.
pub fn lock_of(name: &str) -> String {
    format!(".{name}.lock")
}

/// Removes all but the newest `most` files of a directory of the cache, with their digests and locks.
pub fn remove_oldest(directory: &Path, most: usize) {
    let is_counted = |path: &Path| {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        !hidden && path.extension().is_none_or(|extension| extension != SUM)
    };
    let mut files: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(directory)
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
            // Leftovers are harmless.
            let _ = std::fs::remove_file(path.with_file_name(name));
        }
    }
}

/// Advice for a cache that cannot be written, as the end of a message.
pub fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free space there, or set XRUN_CACHE to another directory"
        }
        _ => "; set XRUN_CACHE to another directory",
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_fallback_directory_must_be_private_and_no_symlink() {
        let denied =
            |directory: &Path| create_private(directory).unwrap_err().kind() == io::ErrorKind::PermissionDenied;
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("own");
        create_private(&own).unwrap();
        create_private(&own).unwrap();
        assert_eq!(std::fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
        std::os::unix::fs::symlink(&own, directory.path().join("link")).unwrap();
        assert!(denied(&directory.path().join("link")));
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(denied(&own));
    }
}
